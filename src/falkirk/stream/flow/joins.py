"""`stream.join(other)`: checks what the user says, and decides what the result is called and where rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import narwhals as nw
import polars as pl

from falkirk.blame import did_you_mean, user_line
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type, check_value_type
from falkirk.stream import operators as op
from falkirk.stream.definition.expressions import IntoExpr, bare_column, evaluate, expressions
from falkirk.stream.definition.keys import same_key
from falkirk.stream.formats import Key, key_of
from falkirk.stream.formats.rows import Row
from falkirk.stream.formats.types import type_name
from falkirk.stream.operators.join import How, Out
from falkirk.stream.operators.join_side import Side
from falkirk.wording import counted

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

On = IntoExpr | Sequence[IntoExpr]


def join(
    self: Stream[Any],
    other: Stream[Any],
    on: On | None = None,
    *,
    how: How = "inner",
    left_on: On | None = None,
    right_on: On | None = None,
    suffix: str = "_right",
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Stream[Row]:
    """Join with another stream, or with a grouped result, kept up to date: names and columns are as in Polars.

    `on`, or `left_on` and `right_on`: a column, an expression, or a list of them. Their values must be equal; null equals
    nothing. `how` is "inner", "left", "right", "full", "semi" or "anti". A column of `other` whose name is taken gets the
    `suffix`. A right column that must be equal to a left column is not repeated ("right": the left one is not; "full": the
    one that is there). After an expression in `on`, all columns are kept.

    State: all rows of both sides. If a row comes later, or is taken back, the result changes: a row of a "left" join is
    first given with nulls, and taken back when its partner comes. `id` names the operator and its state. Raises
    DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> orders = flow.source("orders", key="id", value=fk.Json({"id": int, "item": str}))
    >>> paid = flow.source("paid", key="order", value=fk.Json({"order": int, "usd": int}))
    >>> orders.join(paid, left_on="id", right_on="order").sink("sold", key="id", value=fk.Json())
    >>> rows = {"orders": [{"id": 1, "item": "lamp"}, {"id": 2, "item": "chair"}], "paid": [{"order": 2, "usd": 40}]}
    >>> fk.testing.run(flow, rows).sinks["sold"].rows
    [{'id': 2, 'item': 'chair', 'usd': 40}]
    """
    from falkirk.stream.flow.streams import Stream

    line = user_line()
    where = f"join {id!r} ({line})" if id else f"join ({line})"
    _check(self, other, how, where)
    given = _both(on, left_on, right_on, where)
    left = _Input.of(self, given[0], "the stream", line, where)
    right = _Input.of(other, given[1], "the other stream", line, where)
    if left.op is right.op:
        # Each input of an operator is another operator, also if a stream is joined with itself.
        again = other._made(op.Concat, line, id=right.op.id)
        self._graph.add_hidden(again)
        right = replace(right, op=again)
    _check_types(left, right, where)
    name = id or f"join.{right.op.id}.on.{'.'.join(left.spelt)}"
    keys, root = _placed(self._graph, left, right, name)
    columns = _columns(left, right, how, suffix, where)
    types = [left.op.schema, right.op.schema]
    kept = [types[0], types[1] if how not in ("semi", "anti") else pl.Schema({c: types[1][c] for c in right.on})]
    for schema in kept:
        for column, dtype in schema.items():
            check_value_type(dtype, where=f"column {column!r} of {where}")
    made = op.Join(
        id=name, line=line, inputs=(left.op, right.op),
        schema=pl.Schema({o.name: types[o.left is None][o.left or o.right or ""] for o in columns}),
        changes=how not in ("inner", "semi") or left.op.changes or right.op.changes,
        unique=_unique(left, right, columns, how), partitioned=_partitioned(keys, columns, how), root=root,
        regime=self._op.regime, how=how, columns=columns, version=version,
        sides=(Side(left.on, keys[0], kept[0]), Side(right.on, keys[1], kept[1])),
    )  # fmt: skip
    return Stream(self._graph, self._graph.add(made, exchange=True))


def check_one_writer(before: op.Operator, key: Key, where: str) -> None:
    """Raises DefinitionError if several tasks could write one key of a sink behind a join. A row that gets another join key
    moves to another task, and its old row could be removed after its new row was written."""
    found = before
    while found.row_wise and len(found.inputs) == 1:
        found = found.inputs[0]
    if not isinstance(found, op.Join):
        return
    placed = before.partitioned if found.root == before.root else None
    in_key = placed is not None and set(placed.columns) <= set(key.columns)
    if not in_key and (found is not before or set(key.columns) != set(before.schema)):
        raise DefinitionError(
            f"the sink's key {', '.join(key.columns)} does not contain the key of {found.kind} {found.id!r}: several tasks "
            "would write it, in any order",
            where=where,
            hint="add the columns of the join to the sink's key, or group the result by the sink's key",
        )


@dataclass(frozen=True, slots=True)
class _Input:
    """One side as the user gives it."""

    op: op.Operator
    on: tuple[str, ...]
    """The columns that must be equal; an expression has a column of its own."""
    spelt: tuple[str, ...]
    """The same, for people."""
    bare: bool
    """Whether all of them are the user's columns."""
    visible: tuple[str, ...]
    """The user's columns."""

    @classmethod
    def of(cls, stream: Stream[Any], on: Sequence[IntoExpr], side: str, line: str, where: str) -> _Input:
        before, where = stream._op, f"{where}, {side}"
        exprs = expressions(on, {}, where)
        names, computed = list[str](), {}
        for i, expr in enumerate(exprs):
            name = bare_column(expr)
            if name is None:
                name = f"{op.RESERVED}_on{i}"
                computed[name] = expr
            elif name not in before.schema:
                raise DefinitionError(
                    f"there is no column {name!r}", where=where, hint=did_you_mean(name, before.schema)
                )
            elif name in names:
                raise DefinitionError(f"column {name!r} is named twice", where=where, hint="name it once")
            names.append(name)
        after = before
        if computed:
            given = tuple(expr.alias(name) for name, expr in computed.items())
            schema = evaluate(given, before.schema, "with_columns", where)
            after = stream._made(op.WithColumns, line, schema=schema, exprs=given, id=before.id)
            stream._graph.add_hidden(after)
        for name in names:
            check_key_type(after.schema[name], where=f"column {name!r} of {where}")
        spelt = tuple("expression" if name in computed else name for name in names)
        return cls(after, tuple(names), spelt, not computed, tuple(before.schema))


def _check(self: Stream[Any], other: Any, how: Any, where: str) -> None:
    from falkirk.stream.flow.lookups import Table
    from falkirk.stream.flow.streams import Stream

    if isinstance(other, Table):
        raise DefinitionError("a table is looked up, not joined", where=where, hint="write stream.lookup(table)")
    if not isinstance(other, Stream):
        raise DefinitionError(f"{other!r} is not a stream", where=where, hint="join with a source or what follows one")
    if other._graph is not self._graph:
        raise DefinitionError(
            "the streams belong to different flows", where=where, hint="read both sources in one flow"
        )
    if how not in get_args(How):
        raise DefinitionError(f"how={how!r} is not a join", where=where, hint=did_you_mean(str(how), get_args(How)))
    if other._op.batch and not self._op.batch:
        raise DefinitionError(
            "the other stream is batch, and the output of a batch part cannot be a stream again",
            where=where,
            hint="sink it, and read the topic as a source",
        )


def _both(on: On | None, left_on: On | None, right_on: On | None, where: str) -> tuple[list[IntoExpr], list[IntoExpr]]:
    """What must be equal, on the left and on the right."""
    if on is not None:
        if left_on is not None or right_on is not None:
            raise DefinitionError("on= and left_on= or right_on= are both given", where=where, hint="give one of them")
        left_on = right_on = on
    if left_on is None or right_on is None:
        raise DefinitionError(
            "the columns to join on are missing", where=where, hint='on="id", or both left_on="id" and right_on="order"'
        )
    left, right = _listed(left_on), _listed(right_on)
    if len(left) != len(right) or not left:
        raise DefinitionError(
            f"left_on= names {counted(len(left), 'column')}, and right_on= {counted(len(right), 'column')}", where=where
        )
    return left, right


def _listed(on: On) -> list[IntoExpr]:
    return [on] if isinstance(on, nw.Expr | str) else list(on)


def _check_types(left: _Input, right: _Input, where: str) -> None:
    for i, (a, b) in enumerate(zip(left.on, right.on, strict=True)):
        mine, theirs = left.op.schema[a], right.op.schema[b]
        if mine != theirs:
            raise DefinitionError(
                f"{left.spelt[i]!r} of the stream is {type_name(mine)}, and {right.spelt[i]!r} of the other stream is "
                f"{type_name(theirs)}: they never match",
                where=where,
                hint=f"cast one of them: left_on=fk.col({left.spelt[i]!r}).cast(…)",
            )


def _placed(graph: op.Graph, left: _Input, right: _Input, name: str) -> tuple[tuple[Key, Key], str]:
    """The keys that place rows of both sides, and the join's root.

    Rows that are where they must be already need no exchange: those of both sides, if both are in one stage; or those of
    one side, if an exchange by a part of the join key has brought them there, and the other side can follow.
    """
    there = dict(zip(left.on, right.on, strict=True))
    mine, theirs = left.op.partitioned, right.op.partitioned
    by_mine = None if mine is None else _over(mine, there)
    by_theirs = None if theirs is None else _over(theirs, {b: a for a, b in there.items()})
    if left.op.root == right.op.root:
        if mine is not None and theirs is not None and by_mine is not None and same_key(by_mine, theirs):
            return (mine, theirs), left.op.root
    elif mine is not None and by_mine is not None and _leads(graph, left.op, right.op):
        return (mine, by_mine), left.op.root
    elif theirs is not None and by_theirs is not None and _leads(graph, right.op, left.op):
        return (by_theirs, theirs), right.op.root
    keys = [key_of(list(side.on) if len(side.on) > 1 else side.on[0]) for side in (left, right)]
    return (keys[0], keys[1]), name


def _over(key: Key, names: dict[str, str]) -> Key | None:
    """The same key of the other side, if all its columns must be equal."""
    return key.over([names[c] for c in key.columns]) if set(key.columns) <= names.keys() else None


def _leads(graph: op.Graph, one: op.Operator, other: op.Operator) -> bool:
    """Whether rows of `other` can be sent to the tasks that have the rows of `one`: an exchange by key has placed those,
    and they do not have to wait for rows of `other`."""
    heads = [o for o in graph.upstream([one]) if o.root == one.root and all(i.root != o.root for i in o.inputs)]
    by_key = all(o.inputs and all(o.keys(port) is not None for port in range(len(o.inputs))) for o in heads)
    same = one.regime == other.regime
    return by_key and same and all(o.root != one.root for o in graph.upstream([other]))


def _columns(left: _Input, right: _Input, how: How, suffix: str, where: str) -> tuple[Out, ...]:
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


def _unique(left: _Input, right: _Input, columns: Sequence[Out], how: How) -> frozenset[str] | None:
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


def _partitioned(keys: tuple[Key, Key], columns: Sequence[Out], how: How) -> Key | None:
    """The key that places rows of the result; None if its columns are not in the result."""
    port = 1 if how == "right" else 0
    names = {
        (out.left, out.right)[port]: out.name for out in columns if how != "full" or None not in (out.left, out.right)
    }
    key = keys[port]
    return key.over([names[c] for c in key.columns]) if set(key.columns) <= names.keys() else None
