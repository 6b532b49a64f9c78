"""The inputs of a join as users give them: what must be equal, and where rows meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type
from falkirk.stream import operators as op
from falkirk.stream.definition.expressions import IntoExpr, bare_column, evaluate, expressions
from falkirk.stream.definition.keys import same_key
from falkirk.stream.formats import Key, column_key
from falkirk.stream.formats.types import type_name
from falkirk.wording import counted

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

On = IntoExpr | Sequence[IntoExpr]
ON = ("on=", "left_on=", "right_on=")


@dataclass(frozen=True, slots=True)
class Input:
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
    def of(cls, stream: Stream[Any], on: Sequence[IntoExpr], side: str, line: str, where: str) -> Input:
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


def both(
    on: On | None, left_on: On | None, right_on: On | None, where: str, names: tuple[str, str, str] = ON
) -> tuple[list[IntoExpr], list[IntoExpr]]:
    """What must be equal, on the left and on the right. `names`: of the parameters."""
    one, mine, theirs = names
    if on is not None:
        if left_on is not None or right_on is not None:
            raise DefinitionError(f"{one} and {mine} or {theirs} are both given", where=where, hint="give one of them")
        left_on = right_on = on
    if left_on is None or right_on is None:
        raise DefinitionError(
            "the columns to join on are missing", where=where, hint=f'{one}"id", or both {mine}"id" and {theirs}"order"'
        )
    left, right = _listed(left_on), _listed(right_on)
    if len(left) != len(right) or not left:
        raise DefinitionError(
            f"{mine} names {counted(len(left), 'column')}, and {theirs} {counted(len(right), 'column')}", where=where
        )
    return left, right


def _listed(on: On) -> list[IntoExpr]:
    return [on] if isinstance(on, nw.Expr | str) else list(on)


def inputs_of(
    stream: Stream[Any], other: Stream[Any], on: tuple[Sequence[IntoExpr], Sequence[IntoExpr]], line: str, where: str
) -> tuple[Input, Input]:
    """Both sides. `on`: what must be equal in each. Raises DefinitionError."""
    left = Input.of(stream, on[0], "the stream", line, where)
    right = Input.of(other, on[1], "the other stream", line, where)
    if left.op is right.op:
        # Each input of an operator is another operator, also if a stream is joined with itself.
        again = other._made(op.Concat, line, id=right.op.id)
        stream._graph.add_hidden(again)
        right = replace(right, op=again)
    _check_types(left, right, where)
    return left, right


def _check_types(left: Input, right: Input, where: str) -> None:
    for i, (a, b) in enumerate(zip(left.on, right.on, strict=True)):
        mine, theirs = left.op.schema[a], right.op.schema[b]
        if mine != theirs:
            raise DefinitionError(
                f"{left.spelt[i]!r} of the stream is {type_name(mine)}, and {right.spelt[i]!r} of the other stream is "
                f"{type_name(theirs)}: they never match",
                where=where,
                hint=f"cast one of them: left_on=fk.col({left.spelt[i]!r}).cast(…)",
            )


def placed(graph: op.Graph, left: Input, right: Input, name: str) -> tuple[tuple[Key, Key], str]:
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
    keys = [column_key(side.on) for side in (left, right)]
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
