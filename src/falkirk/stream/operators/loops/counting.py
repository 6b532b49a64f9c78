"""`unique` inside a loop: each row once, however often it comes.

y(i) = [X(i) > 0]        Dy(i) = [X(i) + Dx(i) > 0] − [X(i) > 0]        row by row
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from falkirk.state.timed import Row, TimedTable, Times, until
from falkirk.stream.dataflow.operator import TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.loops.node import Due, Node, ZSet, never_added
from falkirk.stream.operators.loops.rows import coding


class UniqueNode(Node):
    """Each row once."""

    tables = ("rows",)

    def __init__(self, schema: pl.Schema, where: str) -> None:
        self.columns, self.coding, self.where = list(schema), coding(schema, list(schema)), where

    def bind(self, task: TaskContext, shard: int, prefix: str) -> None:
        self.table, self.shard = task.tables[f"{prefix}.rows"], shard

    def begin(self, run: StepRun, time: int) -> None:
        self.stored = TimedTable(run.state, self.table, self.shard, self.coding)
        self.old: dict[Row, Times] = {}
        self.new: dict[Row, Times] = {}
        self.last: dict[Row, int] = {}
        """Dy of the iteration before."""
        self.later = Due()

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        (change,) = changes
        again = self.later.take(i)
        first = [row for row in change if row not in self.old]
        for row, times in zip(first, self.stored.times(first) if first else (), strict=True):
            self.old[row] = times
            self.later.add(row, i, times)
        for row, weight in change.items():
            self.new.setdefault(row, {})[i] = weight
        total: ZSet = {}
        for row in dict.fromkeys((*change, *again)):
            before = until(self.old[row], i)
            now = (before + until(self.new[row], i) > 0) - (before > 0)
            if weight := now - self.last.get(row, 0):
                total[row] = weight
                self.last[row] = now
        return total

    def due(self) -> Iterable[int]:
        return self.later.iterations()

    def end(self) -> None:
        for row in self.stored.write(self.new, self.old):
            raise never_added(dict(zip(self.columns, row, strict=True)), self.where)
