"""Groups of an earlier version: which part of their state is kept, and how the rest is converted."""

from __future__ import annotations

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
            f"{lost!r} needs every value of a group, for rows that are taken back, and the version before it "
            "has not kept them",
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
