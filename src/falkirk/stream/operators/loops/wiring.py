"""From the operators of a body to the nodes of a loop.

slot 0               the loop's variable
slots 1, 2, …        the streams from outside, in the order of ports
the slots behind     nodes: each reads slots before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.bound import Bound
from falkirk.stream.aggregates.builtin import BoundDecimals, BoundFloats, BoundIntegers, BoundLen
from falkirk.stream.aggregates.values import BoundExtreme, DecimalExtreme
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.definition.expressions import evaluate
from falkirk.stream.operators.groups.group import Group
from falkirk.stream.operators.groups.unique import Unique
from falkirk.stream.operators.joins.join import Join
from falkirk.stream.operators.joins.join_side import Side
from falkirk.stream.operators.loops.counting import UniqueNode
from falkirk.stream.operators.loops.extremes import Extreme
from falkirk.stream.operators.loops.folds import Floats, Fold, Integers, Rows
from falkirk.stream.operators.loops.grouping import FIRST, Aggregate, GroupNode
from falkirk.stream.operators.loops.joining import JoinNode, JoinSide
from falkirk.stream.operators.loops.linear import EachRow, RowWiseNode, Sum, bare_select, picked
from falkirk.stream.operators.loops.node import Node
from falkirk.stream.operators.loops.rows import check_columns
from falkirk.stream.operators.rows.concat import Concat
from falkirk.stream.operators.rows.explode import Explode
from falkirk.stream.operators.rows.filter import Filter
from falkirk.stream.operators.rows.flat_map import FlatMap
from falkirk.stream.operators.rows.map import Map
from falkirk.stream.operators.rows.map_batches import MapBatches
from falkirk.stream.operators.rows.select import Select, WithColumns

_ROW_WISE = (Filter, Select, WithColumns, Map, FlatMap, MapBatches, Explode)
ALLOWED = (
    "filter, select, with_columns, map, flat_map, map_batches, explode, concat, unique, join, and group_by with len, sum, "
    "mean, min and max"
)
"""For people."""


@dataclass(frozen=True, slots=True)
class Wired:
    """One node, and the slots that it reads."""

    node: Node
    inputs: tuple[int, ...]
    prefix: str
    """Of the names of its tables."""


class Wiring:
    """The nodes of a body. Raises DefinitionError for operators that a loop cannot run."""

    def __init__(
        self, variable: Operator, outside: Sequence[Operator], body: Sequence[Operator], result: Operator
    ) -> None:
        """`outside`: the streams that flow into the loop; `body`: its operators, inputs before their readers."""
        self.slots: dict[Operator, int] = {before: 1 + port for port, before in enumerate(outside)}
        self.slots[variable] = 0
        self.first = 1 + len(outside)
        self.nodes: list[Wired] = []
        self.readers = [before for operator in body for before in operator.inputs] + [result]
        for operator in body:
            _check(operator)
            check_columns(operator.schema, operator.where)
            self.slots[operator] = self._wired(operator)
        self.result = self.slots[result]

    @property
    def tables(self) -> Sequence[str]:
        """The names of all tables."""
        return [f"{wired.prefix}.{table}" for wired in self.nodes for table in wired.node.tables]

    def _wired(self, operator: Operator) -> int:
        inputs = [self.slots[before] for before in operator.inputs]
        if isinstance(operator, Concat):
            return self._add(Sum([1] * len(inputs)), *inputs)
        if isinstance(operator, Unique):
            return self._add(UniqueNode(operator.schema, operator.where), *inputs, kind="unique")
        if isinstance(operator, Group):
            return self._grouped(operator, *inputs)
        if isinstance(operator, Join):
            return self._joined(operator, *inputs)
        (before,) = operator.inputs
        columns = bare_select(operator)
        if columns is not None:
            return self._add(EachRow(picked(columns, list(before.schema))), *inputs)
        return self._row_wise(operator, *inputs)

    def _row_wise(self, operator: Operator, slot: int) -> int:
        """A frame costs more than a few rows: operators that follow each other share one."""
        (before,) = operator.inputs
        found = self.nodes[slot - self.first].node if slot >= self.first else None
        if isinstance(found, RowWiseNode) and found.operators[-1] is before and self.readers.count(before) == 1:
            found.append(operator)
            return slot
        return self._add(RowWiseNode([operator]), slot)

    def _grouped(self, group: Group, slot: int) -> int:
        before = group.inputs[0]
        computed = [e.alias(c) for b in group.aggregates.values() for c, e in b.computed.items()]
        schema = before.schema
        if computed:
            schema = evaluate(computed, schema, "with_columns", group.where)
            columns = WithColumns(
                id=group.id, line=group.line, inputs=(before,), schema=schema, changes=True, root=group.root,
                regime=group.regime, exprs=tuple(computed),
            )  # fmt: skip
            slot = self._row_wise(columns, slot)
        keys = pl.Schema({c: schema[c] for c in group.columns})
        aggregates, width = list[Aggregate](), FIRST
        for bound in group.aggregates.values():
            (column,) = bound.arguments or (None,)
            how = _how(bound, keys, group.where)
            aggregates.append(Aggregate(None if column is None else list(schema).index(column), how, width))
            width += how.width if isinstance(how, Fold) else 0
        node = GroupNode(group.columns, schema, aggregates, width, group.where)
        return self._add(node, slot, kind="group_by")

    def _joined(self, join: Join, left: int, right: int) -> int:
        """See `falkirk.stream.operators.loops.joining`: all joins are made of inner joins."""
        schemas = [before.schema for before in join.inputs]
        if join.how in ("semi", "anti"):
            there = self._there(join, 0, left, right)
            found = there if join.how == "semi" else self._add(Sum([1, -1]), left, there)
            return self._add(EachRow(picked([out.left or "" for out in join.columns], list(schemas[0]))), found)
        parts = [self._inner(join, left, right)]
        for port, slot, other in ((0, left, right), (1, right, left)):
            if join.how in (("left", "full"), ("right", "full"))[port]:
                alone = self._add(Sum([1, -1]), slot, self._there(join, port, slot, other))
                names = [(out.left, out.right)[port] for out in join.columns]
                places = [None if name is None else list(schemas[port]).index(name) for name in names]
                parts.append(self._add(EachRow(lambda row, at=places: _padded(row, at)), alone))  # type: ignore[misc]
        return parts[0] if len(parts) == 1 else self._add(Sum([1] * len(parts)), *parts)

    def _inner(self, join: Join, left: int, right: int) -> int:
        one, other = (_side(side, before, join.where) for side, before in zip(join.sides, join.inputs, strict=True))
        both = [*((0, c) for c in one.columns), *((1, c) for c in other.columns)]
        wanted = [(0, out.left or "") if out.left is not None else (1, out.right or "") for out in join.columns]
        output = picked(wanted, both)
        return self._add(JoinNode(one, other, output), left, right, kind="join")

    def _there(self, join: Join, port: int, slot: int, other: int) -> int:
        """The rows of one side whose key the other side has."""
        mine, theirs = join.sides[port], join.sides[1 - port]
        before, beyond = join.inputs[port], join.inputs[1 - port]
        keys = pl.Schema({c: beyond.schema[c] for c in theirs.on})
        key = self._add(EachRow(picked(theirs.on, list(beyond.schema))), other)
        once = self._add(UniqueNode(keys, join.where), key, kind="keys")
        sides = _side(mine, before, join.where), JoinSide(keys, theirs.on, join.where)
        output = picked(list(before.schema), [*sides[0].columns, *(f"{c}." for c in theirs.on)])
        return self._add(JoinNode(*sides, output), slot, once, kind="semi")

    def _add(self, node: Node, *inputs: int, kind: str = "") -> int:
        self.nodes.append(Wired(node, inputs, f"{len(self.nodes)}.{kind}"))
        return self.first + len(self.nodes) - 1


def _side(side: Side, before: Operator, where: str) -> JoinSide:
    return JoinSide(before.schema, side.on, where)


def _padded(row: tuple[object, ...], places: Sequence[int | None]) -> tuple[object, ...]:
    return tuple([None if place is None else row[place] for place in places])


def _check(operator: Operator) -> None:
    if type(operator) not in (*_ROW_WISE, Concat, Unique, Group, Join):
        raise DefinitionError(
            f"a loop cannot run {operator.kind}",
            where=operator.where,
            hint=f"inside a loop there are {ALLOWED}; do the rest before it or behind it",
        )
    if operator.on_error is not None:
        raise DefinitionError(
            "a loop cannot go on without a row that failed, because later iterations depend on it",
            where=operator.where,
            hint="leave out on_error= inside the loop, and filter such rows out before it",
        )


def _how(bound: Bound, group: pl.Schema, where: str) -> Fold | Extreme:
    """How a loop keeps an aggregate. Raises DefinitionError for those that it cannot keep."""
    if isinstance(bound, BoundLen):
        return Rows()
    if isinstance(bound, BoundIntegers) and not isinstance(bound, BoundDecimals):
        return Integers(bound.name, where, mean=bound.mean_wanted)
    if isinstance(bound, BoundFloats) and (bound.dtype == pl.Float64() or bound.mean_wanted):
        return Floats(mean=bound.mean_wanted)
    if isinstance(bound, BoundExtreme) and not isinstance(bound, DecimalExtreme):
        return Extreme(bound.name, bound.dtype, group, where, greatest=bound.descending)
    raise DefinitionError(
        f"a loop cannot keep {bound.name} = {bound.words}",
        where=where,
        hint="inside a loop there are len, sum, mean, min and max of integers, Float64, text, times and booleans",
    )
