"""Groups in windows of event time: a group's state goes when its window is complete.

a window is complete  ⇔  its end ≤ the watermark of the input
no row comes for a complete window: its result is final, and so its state goes without a tombstone

state      (window_end, other columns of the group) → as any group's: those of one window are side by side in a shard
.ends      window_end → the shards that have groups of this window, under the task's first shard: one scan finds what is
           complete
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.errors import StateError
from falkirk.state.codec import decode_key, decode_keys, encode_keys, prefix_end
from falkirk.state.shards import SHARDS, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, TS, Batch, Updates, nulls
from falkirk.stream.dataflow.event_time import Watermark
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_tables import ShardSets, TaskTable
from falkirk.stream.definition.event_time import per_milli
from falkirk.stream.definition.windows import END, Window
from falkirk.stream.operators.groups.ends import Ends
from falkirk.stream.operators.groups.group import Group, GroupRunner
from falkirk.stream.operators.windows.final import completed

ENDS = ".ends"
AT_ONCE = 20_000
"""Entries of complete windows that one step deletes, about. The next step goes on."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WindowGroup(Group):
    """One row for each group of each window. What is complete is no longer in the state."""

    keeps_result: ClassVar[bool] = False
    timed: ClassVar[bool] = True
    window: Window

    @property
    def completes(self) -> bool:
        return True

    @property
    def compared(self) -> bool:
        return True

    @property
    def asks_time(self) -> bool:
        return True

    @property
    def remembered(self) -> int | None:
        return None if any(before.changes for before in self.inputs) else self.window.size

    @property
    def state_columns(self) -> Sequence[str]:
        return [END, *(c for c in self.columns if c != END)]

    @property
    def words(self) -> str:
        return f"{super().words}, until the watermark is past {END}"

    def runner(self, task: TaskContext) -> Runner:
        if task.batch:
            return super().runner(task)
        return WindowGroupRunner(self, task)

    def state_words(self) -> str:
        return f"{super().state_words()}, {self.window}"

    def tables(self) -> Sequence[str]:
        return [*super().tables(), ENDS]

    def task_tables(self) -> Mapping[str, TaskTable]:
        return {ENDS: ShardSets()}

    def asked_by(self, table: str) -> Sequence[str]:
        return self.columns

    def carries(self, was: Group, table: str) -> bool:
        return table == ENDS or super().carries(was, table)


class WindowGroupRunner(GroupRunner):
    """One grouping in windows in one task."""

    group: WindowGroup

    def __init__(self, group: WindowGroup, task: TaskContext) -> None:
        super().__init__(group, task.tables, task.partitioners)
        self.ends = Ends(task.tables[ENDS], task.first_shard)
        self.dtype = group.schema[END]
        self.unit = per_milli(self.dtype)

    def wake_at(self, state: State) -> int | None:
        """At once, if complete windows are left."""
        return 0 if self.ends.left(state) else None

    def complete_at(self, full: Sequence[bytes]) -> Sequence[int]:
        """The ends of their windows."""
        return (decode_keys(self.key_schema, list(full))[END].to_physical() // self.unit).to_list()

    def step(self, run: StepRun, *inputs: Flowing | None) -> Updates | None:
        """Fold the rows into the groups of their windows; then delete the groups of complete windows."""
        updates = super().step(run, *inputs)
        given = run.watermarks.get(self.group)
        if given is None:
            return updates
        if updates is not None:
            ends = updates.new[END].to_physical() // self.unit
            check_open(ends, given.before, self.group.where)
            self._note(
                run.state, ends.filter(~updates.had).to_numpy(), shard_of(updates.hashes)[~updates.had.to_numpy()]
            )
        self._close(run, given)
        return updates

    def _note(self, state: State, ends: np.ndarray, shards: np.ndarray) -> None:
        """Groups have come."""
        if not len(ends):
            return
        order = np.unique(ends)
        keys = self.ends.keys(pl.Series(order, dtype=pl.Int64))
        before = state.get(keys)
        after = [_with(bits, shards[ends == end]) for bits, end in zip(before, order, strict=True)]
        changed = [(k, new) for k, old, new in zip(keys, before, after, strict=True) if new != old]
        state.put([k for k, _ in changed], [new for _, new in changed])

    def _close(self, run: StepRun, given: Watermark) -> None:
        """Delete complete windows, in the order of their ends."""
        state = run.state
        complete = list(self.ends.scan(state, given.after + 1))
        found: list[tuple[bytes, bytes]] = []
        gone: list[bytes] = []
        over = 0
        for key, bits in complete:
            end = decode_key(key)[2][0]
            groups = list(islice(self._under(state, self.table, end, bits), AT_ONCE - len(gone)))
            found += groups
            gone += [k for k, _ in groups]
            for multiset in self.multisets:
                values = islice(self._under(state, multiset.table, end, bits), AT_ONCE - len(gone))
                gone += [k for k, _ in values]
            if len(gone) == AT_ONCE:
                break
            gone.append(key)
            over += 1
        self.ends.leave(state, left=over < len(complete))
        state.put(gone, [None] * len(gone))
        ends = [decode_key(key)[2][0] for key, _ in (*complete[:1], *complete[over : over + 1])]
        run.completed[self.group] = completed(ends[:1], ends[1:], given, 1)
        if found:
            run.closed[self.group] = lambda: self._final(found)

    def _under(self, state: State, table: int, end: object, bits: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of a table that belong to the groups of one window, in the shards that have any."""
        shards = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))
        column = (pl.Series([end], dtype=pl.Int64) * self.unit).cast(self.dtype).new_from_index(0, len(shards))
        for prefix in encode_keys(table, shards, [column]):
            yield from state.scan(prefix, prefix_end(prefix))

    def _final(self, pairs: Sequence[tuple[bytes, bytes]]) -> Batch:
        """The results of complete windows, in the order of their ends."""
        keys = decode_keys(self.key_schema, [key for key, _ in pairs])
        states, _ = self._states([value for _, value in pairs])
        rows = keys.select(self.group.columns).hstack(self.folding.results(states))
        rows = rows.sort(self.group.state_columns, maintain_order=True)
        times = (rows[END].to_physical() // self.unit - 1).cast(pl.Int64).alias(TS)
        return Batch(rows, pl.DataFrame([times, nulls(pl.UInt32(), rows.height).alias(ORIGIN)]))


def check_open(ends: pl.Series, watermark: int, where: str) -> None:
    """Invariant: no row comes for a complete window. Its state is gone, so the row would begin it again."""
    if len(ends) and (first := int(ends.min())) <= watermark:  # type: ignore[arg-type]
        raise StateError(
            f"a row came for a window that ended at {first}, and the watermark was at {watermark}",
            where=where,
            hint="report this as a bug of Falkirk",
        )


def _with(bits: bytes | None, shards: np.ndarray) -> bytes:
    """A set of shards, with these."""
    known = np.zeros(SHARDS, np.uint8) if bits is None else np.unpackbits(np.frombuffer(bits, np.uint8))
    known[shards] = 1
    return np.packbits(known).tobytes()
