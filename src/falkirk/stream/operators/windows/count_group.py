"""Groups in windows of so many rows. Rows of a group are numbered from 0 on, in the order in which they are read.

number(row)            = how many rows of its group came before it, in this step and in earlier ones
a row is in a window   ⇔  start ≤ number < start + size
a window is complete   ⇔  the row with the number start + size − 1 has come

No later row has a number of a complete window. So its result is final, and its state goes without a tombstone.

state      columns of the group, window_start and window_end among them → as any group's
.counts    other columns of the group → how many rows have come, for ever
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.state.codec import encode_keys, encode_values, prefix_end
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, TS, Batch, Updates, matched, nulls
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, together
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.windows import END, START, CountWindow
from falkirk.stream.formats import column_key
from falkirk.stream.operators.groups.group import Group, GroupRunner
from falkirk.stream.operators.groups.group_batch import RowExchange
from falkirk.stream.operators.groups.multiset import counts_in
from falkirk.stream.operators.windows.session_fold import groups_of
from falkirk.stream.operators.windows.spans import Numbers

COUNTS = ".counts"
COUNT = pl.Schema({"rows": pl.Int64()})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CountGroup(Group):
    """One row for each group of each window. What is complete is no longer in the state."""

    keeps_result: ClassVar[bool] = False
    window: CountWindow

    @property
    def own(self) -> tuple[str, ...]:
        """The columns of the group without those of its windows."""
        return tuple(c for c in self.columns if c not in (START, END))

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return super().reads(port, needed) - {START, END}

    def state_keys(self, table: str) -> pl.Schema:
        return pl.Schema({c: self.schema[c] for c in (self.own if table == COUNTS else self.columns)})

    @property
    def words(self) -> str:
        return f"{super().words}, in {self.window}, until one is full; the count of each group is kept for ever"

    def state_words(self) -> str:
        return f"{super().state_words()}, {self.window}"

    def tables(self) -> Sequence[str]:
        return [*super().tables(), COUNTS]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {**super().table_schemas(), COUNTS: COUNT}

    def runner(self, task: TaskContext) -> Runner:
        return CountGroupRunner(self, task)

    def exchange(self) -> Exchange:
        return CountExchange(self)


def nth_of(group: Numbers) -> Numbers:
    """How many rows of its group are before each row.

    >>> nth_of(np.array([0, 1, 0, 0, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    return pl.DataFrame({"group": group}).select(pl.int_range(pl.len()).over("group")).to_series().to_numpy()


def held(numbers: Numbers, window: CountWindow) -> tuple[Numbers, Numbers]:
    """The windows of rows with these numbers: the position of the row, and the start of the window, the earliest first.

    >>> [column.tolist() for column in held(np.array([0, 3, 4]), CountWindow(4, 2))]
    [[0, 1, 1, 2, 2], [0, 0, 2, 2, 4]]
    """
    most = -(-window.size // window.every)
    last = numbers // window.every * window.every
    starts = (last[:, None] - np.arange(most - 1, -1, -1) * window.every).ravel()
    index = np.repeat(np.arange(len(numbers)), most)
    there = (starts >= 0) & (starts + window.size > numbers[index])
    return index[there], starts[there]


def with_bounds(rows: pl.DataFrame, starts: Numbers, window: CountWindow) -> pl.DataFrame:
    """Rows with the bounds of their windows."""
    return rows.with_columns(pl.Series(START, starts), pl.Series(END, starts + window.size))


class CountGroupRunner(GroupRunner):
    """One grouping in windows of so many rows in one task."""

    group: CountGroup

    def __init__(self, group: CountGroup, task: TaskContext) -> None:
        super().__init__(group, task.tables, task.partitioners)
        self.window, self.own, self.counts = group.window, list(group.own), task.tables[COUNTS]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Updates | None:
        """Number the rows and fold them into the groups of their windows; then delete the groups of complete windows."""
        batch = joined(inputs, weighted=False)
        if batch is None:
            return None
        numbers = self._numbered(run.state, batch)
        index, starts = held(numbers, self.window)
        batch = batch.gather(pl.Series(index))
        batch = Batch(with_bounds(batch.rows, starts, self.window), batch.meta)
        updates = super().step(run, batch)
        last = batch.filter(pl.Series(numbers[index] == starts + self.window.size - 1))
        if updates is not None and len(last):
            self._close(run, last, updates)
        return updates

    def _numbered(self, state: State, batch: Batch) -> Numbers:
        """The numbers of rows in their groups. Adds the rows to the counts."""
        group, keys = groups_of(batch.rows.select(self.own).hstack(batch.meta.select(TS)), self.own)
        full = encode_keys(self.counts, self._shards(keys), [keys[c] for c in self.own])
        before = counts_in(state.get(full), COUNT, "rows").to_numpy()
        after = before + np.bincount(group, minlength=len(before))
        state.put(full, encode_values(COUNT, pl.DataFrame({"rows": after}, COUNT)))
        return before[group] + nth_of(group)

    def _shards(self, keys: pl.DataFrame) -> np.ndarray:
        assert self.group.partitioned is not None
        return shard_of(murmur2(self.group.partitioned.encode(keys)))

    def _close(self, run: StepRun, last: Batch, updates: Updates) -> None:
        """Delete complete windows. `last`: their last rows."""
        ended = last.rows.select(self.group.columns)
        shards, columns = self._shards(ended), [ended[c] for c in self.key_schema]
        gone = encode_keys(self.table, shards, columns)
        for multiset in self.multisets:
            for prefix in encode_keys(multiset.table, shards, columns):
                gone += [key for key, _ in run.state.scan(prefix, prefix_end(prefix))]
        run.state.put(gone, [None] * len(gone))
        run.closed[self.group] = lambda: self._final(ended, last.meta[TS], updates)

    def _final(self, ended: pl.DataFrame, times: pl.Series, updates: Updates) -> Batch:
        """The results of complete windows, in the order of their last rows and with their timestamps."""
        rows = matched(ended, updates.new, self.group.columns)
        return Batch(rows, pl.DataFrame([times, nulls(pl.UInt32(), rows.height).alias(ORIGIN)]))


class CountExchange(RowExchange):
    """The batch form: all rows of a group meet in a bucket, in the order of reading."""

    def __init__(self, group: CountGroup) -> None:
        super().__init__(group, group.columns, [b.append_only() for b in group.aggregates.values()])
        self.window, self.own = group.window, list(group.own)
        self.key = column_key(self.own)
        self.sending = [c for c in self.sending if c not in (START, END)]

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        rows = together([frame for _, frame in parcels])
        if not rows.height:
            return
        index, starts = held(nth_of(groups_of(rows, self.own)[0]), self.window)
        yield self.finished(self.merged(self.folding.partials(with_bounds(rows[index], starts, self.window))))
