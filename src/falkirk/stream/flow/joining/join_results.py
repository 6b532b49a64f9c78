"""The result of a join: its columns, what identifies a row, and what places it."""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.errors import DefinitionError
from falkirk.stream.flow.joining.join_inputs import Input
from falkirk.stream.formats import Key
from falkirk.stream.operators.joins.join import How, Out


def columns_of(left: Input, right: Input, how: How, suffix: str, where: str) -> tuple[Out, ...]:
    """The columns of the result, as in Polars."""
    if how in ("semi", "anti"):
        return tuple(Out(c, c, None) for c in left.visible)
    coalesced = left.bare and right.bare
    there = dict(zip(left.on, right.on, strict=True)) if coalesced else {}
    if how == "right":
        mine, theirs = [c for c in left.visible if c not in there], list(right.visible)
    else:
        mine, theirs = list(left.visible), [c for c in right.visible if c not in there.values()]
    both = there if how == "full" else {}
    columns = [Out(c, c, both.get(c)) for c in mine]
    columns += [Out(f"{c}{suffix}" if c in mine else c, None, c) for c in theirs]
    names = [out.name for out in columns]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise DefinitionError(
            f"the result would have two columns {twice!r}", where=where, hint="choose another suffix= or other names"
        )
    return tuple(columns)


def _named(columns: Sequence[Out], side: str, names: frozenset[str] | None, equal: dict[str, str]) -> set[str] | None:
    """Columns of one side by their names in the result, where an equal column may stand for one; None if they are not
    all there."""
    if names is None:
        return None
    mine = {(out.left if side == "left" else out.right): out.name for out in columns}
    other = {(out.right if side == "left" else out.left): out.name for out in columns}
    found = {mine.get(name) or other.get(equal.get(name, "")) for name in names}
    return None if None in found else {name for name in found if name is not None}


def unique(left: Input, right: Input, columns: Sequence[Out], how: How) -> frozenset[str] | None:
    """The columns that identify a row of the result."""
    there = dict(zip(left.on, right.on, strict=True))
    mine = _named(columns, "left", left.op.unique, there)
    theirs = _named(columns, "right", right.op.unique, {b: a for a, b in there.items()})
    one_left = left.op.unique is not None and left.op.unique <= set(left.on)
    one_right = right.op.unique is not None and right.op.unique <= set(right.on)
    if how in ("semi", "anti"):
        return left.op.unique
    if how == "full":
        return None  # two rows with a null key, one of each side, have no columns that tell them apart
    if how != "right" and one_right and mine is not None:
        return frozenset(mine)
    if how != "left" and one_left and theirs is not None:
        return frozenset(theirs)
    return None if mine is None or theirs is None else frozenset(mine | theirs)


def partitioned(keys: tuple[Key, Key], columns: Sequence[Out], how: How) -> Key | None:
    """The key that places rows of the result; None if its columns are not in the result."""
    port = 1 if how == "right" else 0
    names = {
        (out.left, out.right)[port]: out.name for out in columns if how != "full" or None not in (out.left, out.right)
    }
    key = keys[port]
    return key.over([names[c] for c in key.columns]) if set(key.columns) <= names.keys() else None
