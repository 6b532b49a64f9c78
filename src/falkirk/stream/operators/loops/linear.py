"""Linear operators of a loop: a change of the input is a change of the output, iteration by iteration, and nothing is kept.

dy(i) = f(dx(i))                    f(a + b) = f(a) + f(b)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from falkirk.state.timed import Row
from falkirk.stream.dataflow.operator import Operator, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import renamed_column
from falkirk.stream.operators.loops.node import Node, ZSet, add, add_all
from falkirk.stream.operators.loops.rows import batch_of, zset_of
from falkirk.stream.operators.rows.select import Select


class RowWiseNode(Node):
    """Operators that look at one row at a time, one after another, over one frame."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators = list(operators)
        (before,) = operators[0].inputs
        self.schema = before.schema

    def append(self, operator: Operator) -> None:
        """An operator that follows."""
        self.operators.append(operator)

    def bind(self, task: TaskContext, shard: int, prefix: str) -> None:
        inside = TaskContext()
        self.runners = [operator.runner(inside) for operator in self.operators]

    def begin(self, run: StepRun, time: int) -> None:
        self.run, self.time = run, time

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        (change,) = changes
        if not change:
            return {}
        flowing = joined([batch_of(self.schema, change, self.time)], weighted=True)
        for runner in self.runners:
            flowing = joined([runner.step(self.run, flowing)], weighted=True)
            if flowing is None:
                return {}
        return {} if flowing is None else zset_of(flowing, list(self.operators[-1].schema))


class EachRow(Node):
    """A function of each row that costs no frame: some of its columns, or other columns that are null."""

    def __init__(self, function: Callable[[Row], Row]) -> None:
        self.function = function

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        (change,) = changes
        function, total = self.function, dict[Row, int]()
        for row, weight in change.items():
            add(total, function(row), weight)
        return total


class Sum(Node):
    """The rows of several inputs. Those of some are subtracted."""

    def __init__(self, signs: Sequence[int]) -> None:
        self.signs = signs

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        filled = [(change, sign) for change, sign in zip(changes, self.signs, strict=True) if change]
        if len(filled) == 1 and filled[0][1] == 1:
            return filled[0][0]
        total: ZSet = {}
        for change, sign in filled:
            add_all(total, change, sign)
        return total


def picked(columns: Sequence[Any], schema: Sequence[Any]) -> Callable[[Row], Row]:
    """The function that gives these columns of a row."""
    places = [schema.index(c) for c in columns]
    if len(places) == 1:
        (place,) = places
        return lambda row: (row[place],)
    if places == [*range(len(schema))]:
        return lambda row: row
    return itemgetter(*places)


def bare_select(operator: Operator) -> Sequence[str] | None:
    """The columns of the input that a select gives; None if it computes something, or if it is no select."""
    if not isinstance(operator, Select):
        return None
    columns = [renamed_column(expr) for expr in operator.exprs]
    return None if None in columns else [c for c in columns if c is not None]
