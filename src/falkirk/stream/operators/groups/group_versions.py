"""Groups of an earlier version: which part of their state is kept, and how the rest is converted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.bound import Bound
from falkirk.stream.dataflow.earlier import Function
from falkirk.stream.dataflow.operator import Pairs
from falkirk.stream.definition.frames import frame_of
from falkirk.stream.operators.groups.folding import ROWS
from falkirk.stream.operators.groups.versions import changed

if TYPE_CHECKING:
    from falkirk.stream.operators.groups.group import Group

GROUPS = ""
"""The table of groups; multisets are in tables named after their output column, which is never empty."""


def check_earlier_group(was: Group, now: Group, by: Mapping[str, Function], where: str) -> None:
    """Check that groups of `was` can continue as groups of `now`. Raises DefinitionError."""
    if by.keys() - {GROUPS}:
        raise DefinitionError("`by` of a group is one function", where=where, hint="by=function")
    kept = {b.name for b in kept_aggregates(was, now)}
    if (lost := next((b.name for b in now.multisets if b.name not in kept), None)) is not None:
        raise DefinitionError(
            f"{lost!r} needs every value of a group, and the version before it has not kept them",
            where=where,
            hint="make it in a grouping of its own, with another id=",
        )
    if not by and (other := sorted((was.aggregates.keys() & now.aggregates.keys()) - kept)):
        raise DefinitionError(
            f"{other[0]!r} is a different aggregate in the next version, and nothing says how to compute its parts",
            where=where,
            hint="by=function, from the parts of before to the new ones; or give it another name, and it begins empty",
        )


def regrouped(was: Group, now: Group, function: Function | None, rows: pl.DataFrame, of: Pairs) -> pl.DataFrame:
    """Unchanged aggregates keep their parts. The others get their parts from the function, or start empty."""
    kept = [column for b in kept_aggregates(was, now) for column in b.states()]
    columns = now.state_schema
    others = pl.Schema({c: t for c, t in columns.items() if c not in kept})
    if function is None:
        made = frame_of([{}] * rows.height, others)
    else:
        made = changed(was, function, others, [c for c in rows.columns if c.startswith(f"{ROWS}.")], rows, of)
    return pl.DataFrame([(rows if column in kept else made)[column] for column in columns])


def kept_aggregates(was: Group, now: Group) -> list[Bound]:
    """The aggregates of `now` with the same parts as before."""
    before = {b.name: b for b in was.bounds}
    return [b for b in now.bounds if (old := before.get(b.name)) and (old.words, old.states()) == (b.words, b.states())]


_WORDS = re.compile(r"\S+ v\d+: (.*?) → .+ = .+ \[.*\] \(placed by (.*?)\)(, (?:tumbling|hopping) .*)?", re.DOTALL)
"""What a group keeps, in words: its keys, what places them, and its windows, if the watermark completes them."""
_INTEGERS = [["Int8", "Int16", "Int32", "Int64"], ["UInt8", "UInt16", "UInt32", "UInt64"]]


def was_group(words: str) -> bool:
    """Whether these are the words of a group.

    >>> was_group("g v2: k String → s = len [rows Int64] (placed by Key('k'))")
    True
    >>> was_group("g v2: k String → 2 of v Int64 by v (placed by Key('k'))")
    False
    >>> was_group("g v2: k String → v Int64 by v → n = row_number [row_number Int64] (placed by Key('k'))")
    False
    """
    return _WORDS.fullmatch(words) is not None and words.count(" → ") == 1


def keyed_alike(was: str, now: str, keys: Mapping[str, pl.DataType]) -> bool:
    """Whether what had the words `was` has its groups under the keys of a group with the words `now`. Columns may have other
    names, and integers more bits: their bytes are the same. A name that is in another place means other values there.

    >>> now, keys = "g v2: k String, n Int64 → s = len [rows Int64] (placed by Key('k'))", {"k": pl.String(), "n": pl.Int64()}
    >>> keyed_alike("g v1: u String, n Int32 → s = len [rows Int64] (placed by Key('u'))", now, keys)
    True
    >>> keyed_alike("g v1: n Int64, k String → s = len [rows Int64] (placed by Key('k'))", now, keys)
    False
    >>> a, b = (f"g v1: {k} Int64, {n} Int64 → s = len [rows Int64] (placed by Key('{k}', '{n}'))" for k, n in ("ab", "ba"))
    >>> keyed_alike(a, b, {"b": pl.Int64(), "a": pl.Int64()})
    False
    >>> keyed_alike("g v1: k String, n Int64 → 2 of v Int64 by v (placed by Key('k'))", now, keys)
    False
    >>> keyed_alike("g v1: a Int64, k String, n Int64 → s = len [rows Int64] (placed by Key('k'))", now, keys)
    False
    """
    old, new = _WORDS.fullmatch(was), _WORDS.fullmatch(now)
    if (
        old is None or new is None or bool(old[3]) != bool(new[3])
    ):  # windows that end have their ends first in their keys
        return False
    columns = re.fullmatch(", ".join(f"(.+) (?:{_types(dtype)})" for dtype in keys.values()), old[1], re.DOTALL)
    if columns is None or any(
        before != name and (before in keys or ", " in before)  # several columns, or one with a strange name
        for before, name in zip(columns.groups(), keys, strict=True)
    ):
        return False
    names = {repr(before): repr(name) for before, name in zip(columns.groups(), keys, strict=True)}
    return re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], old[2]) == new[2]


def _types(dtype: pl.DataType) -> str:
    """The types whose values are in a column of this type too, as a pattern."""
    same = next((sizes[: sizes.index(f"{dtype}") + 1] for sizes in _INTEGERS if f"{dtype}" in sizes), [f"{dtype}"])
    return "|".join(map(re.escape, same))
