"""Joins inside a loop. Both sides are in state, by join key and iteration.

    the product of two rows that come at iterations j and k is there from iteration max(j, k) on

    a(i), b(i)     changes before this step, in state           A(i) = Σ a(j) for j ≤ i
    da(i), db(i)   the changes of this step                     DA(i) = Σ da(j) for j ≤ i

    dy(i) =  da(i) ⋈ (B(i) + DB(i))                 rows of the left that come now, with all of the right
           + (A(i) + DA(i−1)) ⋈ db(i)               rows of the right that come now, with the others of the left
           + a(i) ⋈ DB(i−1)  +  DA(i−1) ⋈ b(i)      rows that came here in earlier steps, with earlier rows of this step

The third line makes an iteration due. It is not needed for a stream from outside the loop: that changes at iteration 0 only.

Other joins are made of this one and of the rows that are there once:

    semi   A ⋉ B = A ⋈ unique(keys of B)        anti   A ▷ B = A − A ⋉ B        left   A ⋈ B  +  A ▷ B with nulls
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import polars as pl

from falkirk.state.timed import Row, TimedTable, Times, until
from falkirk.stream.dataflow.operator import TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.loops.linear import picked
from falkirk.stream.operators.loops.node import Due, Node, ZSet, add, never_added
from falkirk.stream.operators.loops.rows import coding

ByKey = dict[Row, dict[Row, int]]
"""Rows with weights, by join key."""


class JoinSide:
    """One side in one task. Its rows begin with the columns of the join key."""

    def __init__(self, schema: pl.Schema, on: Sequence[str], where: str) -> None:
        self.columns, self.where, self.width = [*on, *(c for c in schema if c not in on)], where, len(on)
        self.arranged = picked(self.columns, list(schema))
        self.coding = coding(schema, self.columns)

    def bind(self, table: int, shard: int) -> None:
        self.table, self.shard = table, shard

    def begin(self, run: StepRun) -> None:
        self.stored = TimedTable(run.state, self.table, self.shard, self.coding)
        self.old: dict[Row, dict[Row, Times]] = {}
        """The state of keys that were loaded."""
        self.new: dict[Row, dict[Row, Times]] = {}
        """The changes of this step."""

    def by_key(self, change: ZSet) -> ByKey:
        """The rows of a change by join key. A row with a null in its key matches nothing."""
        found: ByKey = {}
        arranged, width = self.arranged, self.width
        for row, weight in change.items():
            ours = arranged(row)
            key = ours[:width]
            if None not in key:
                found.setdefault(key, {})[ours] = weight
        return found

    def add(self, i: int, change: ByKey) -> None:
        """The rows of iteration i."""
        for key, rows in change.items():
            known = self.new.setdefault(key, {})
            for row, weight in rows.items():
                known.setdefault(row, {})[i] = weight

    def load(self, keys: Iterable[Row]) -> None:
        """Read all rows of these keys."""
        for key in keys:
            if key not in self.old:
                self.old[key] = dict(self.stored.rows(key))

    def iterations(self, key: Row) -> Iterator[int]:
        """Where a loaded key changed in earlier steps."""
        return chain.from_iterable(self.old[key].values())

    def before(self, key: Row, i: int) -> Iterator[tuple[Row, int]]:
        """A(i): what the key had there before this step."""
        return _at(self.old[key], i)

    def changed(self, key: Row, i: int) -> Iterator[tuple[Row, int]]:
        """DA(i): what this step has added to it."""
        return _at(self.new.get(key, {}), i)

    def came(self, key: Row, i: int) -> Iterator[tuple[Row, int]]:
        """a(i): what came there in earlier steps."""
        return ((row, times[i]) for row, times in self.old[key].items() if i in times)

    def end(self) -> None:
        changes = {row: times for rows in self.new.values() for row, times in rows.items()}
        known = {row: self.old[key].get(row, {}) for key, rows in self.new.items() if key in self.old for row in rows}
        for row in self.stored.write(changes, known):
            raise never_added(dict(zip(self.columns, row, strict=True)), self.where)


def _at(rows: dict[Row, Times], i: int) -> Iterator[tuple[Row, int]]:
    for row, times in rows.items():
        if weight := until(times, i):
            yield row, weight


class JoinNode(Node):
    """An inner join. `output` gives the row of a pair: its columns of the left side, then those of the right."""

    tables = ("left", "right")

    def __init__(self, left: JoinSide, right: JoinSide, output: Callable[[Row], Row]) -> None:
        self.left, self.right, self.output = left, right, output

    def bind(self, task: TaskContext, shard: int, prefix: str) -> None:
        self.left.bind(task.tables[f"{prefix}.left"], shard)
        self.right.bind(task.tables[f"{prefix}.right"], shard)

    def begin(self, run: StepRun, time: int) -> None:
        self.left.begin(run)
        self.right.begin(run)
        self.due_left, self.due_right = Due(), Due()

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        left, right = self.left, self.right
        lefts, rights = left.by_key(changes[0]), right.by_key(changes[1])
        again_left, again_right = self.due_left.take(i), self.due_right.take(i)
        right.load(lefts)
        left.load(rights)
        right.add(i, rights)
        total: ZSet = {}
        for key, rows in lefts.items():
            self._pair(total, rows.items(), [*right.before(key, i), *right.changed(key, i)])
            self.due_right.add(key, i, right.iterations(key))
        for key, rows in rights.items():
            self._pair(total, [*left.before(key, i), *left.changed(key, i - 1)], rows.items())
            self.due_left.add(key, i, left.iterations(key))
        for key in again_left:
            self._pair(total, left.came(key, i), [*right.changed(key, i - 1)])
        for key in again_right:
            self._pair(total, left.changed(key, i - 1), [*right.came(key, i)])
        left.add(i, lefts)
        return total

    def _pair(self, total: ZSet, left: Iterable[tuple[Row, int]], right: Iterable[tuple[Row, int]]) -> None:
        """Each row with each, with the product of their weights."""
        output = self.output
        for one, weight in left:
            for other, more in right:
                add(total, output(one + other), weight * more)

    def due(self) -> Iterable[int]:
        return chain(self.due_left.iterations(), self.due_right.iterations())

    def end(self) -> None:
        self.left.end()
        self.right.end()
