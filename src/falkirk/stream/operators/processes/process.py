"""`key_by(…).process(…)`: passes the rows and timers of each key, one after another, to a user's Python object.

1. read the due timers (≤ clock) from an index that is ordered by time
2. read state and timers of all keys that have a row or a due timer, in one call per table
3. fire the timers in (time, key) order, then process the rows in their order
4. write the changes, in one call per table

A batch uses the same runner with state in memory, which is empty at the start of a bucket. The clock is the epoch's clock.
Rows come first, in the order of their places. Then all timers up to the clock fire, and the timers that they set, as in a
stream that continues with steps without rows.

    a call fails, and the app continues  ⇒  state, timers and rows are the same as before the call
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import polars as pl

from falkirk.blame import FAILURES
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.state.codec import check_value_types
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, TS, Batch, everywhere
from falkirk.stream.dataflow.catching import Catching, Misfit, made_frame, no_row, row_of, rows_for, where_of
from falkirk.stream.dataflow.earlier import From, Function
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.operator import Change, Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.partitioners import Partitioners
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.process import KeyContext, Process, Rows, Timer, moment
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_tables import TaskTable, TimedEntries, placed_by
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.frames import as_given, misfits
from falkirk.stream.formats import Key, column_key
from falkirk.stream.formats.types import schema_of
from falkirk.stream.operators.groups.versions import changed, check_earlier_tables
from falkirk.stream.operators.processes.keystate import DUE, TIMERS, KeyState, KeyTables, due_schema

_AT_ONCE = 20_000
"""Rows of one run in a batch. Each run reads and writes the state of its keys once."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Processing(Operator):
    """A Python object that gets the rows of a key one after another, with state and timers."""

    kind: ClassVar[str] = "process"
    stateful: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    columns: tuple[str, ...]
    key: Key
    """The key that partitions its tasks. The output may have other columns."""
    process: Process
    own_tables: Mapping[str, pl.Schema]
    version: int

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    def keys(self, port: int) -> Key | None:
        return self.key

    @property
    def words(self) -> str:
        tables = ", ".join(self.own_tables) or "none"
        return f"process {self.id}: by {', '.join(self.columns)}; tables: {tables}"

    def runner(self, task: TaskContext) -> Runner:
        return ProcessRunner(self, task.tables, task.first_shard, task.partitioners)

    def exchange(self) -> Exchange:
        return ProcessExchange(self)

    def state_words(self) -> str:
        keys = {c: self.inputs[0].schema[c] for c in self.columns}
        kept = "; ".join(f"{table} [{words(schema)}]" for table, schema in sorted(self.own_tables.items()))
        return f"{self.id} v{self.version}: {words(keys)} → {kept} (placed by {self.key!r})"

    def tables(self) -> Sequence[str]:
        return [*self.own_tables, TIMERS, DUE]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return self.own_tables

    def task_tables(self) -> Mapping[str, TaskTable]:
        return {DUE: TimedEntries(due_schema(self), placed_by(self.key))}

    def placed_by(self, table: str) -> Key | None:
        return self.key

    def was(self, one: From, where: str) -> Processing:
        if one.agg is not None:
            raise DefinitionError("a process does not have aggregates", where=where, hint='state={"seen": bool}')
        given = {**({} if one.state is None else {"state": one.state}), **one.tables}
        tables = {table: schema_of(spec) for table, spec in given.items()}
        for table, schema in tables.items():
            check_value_types(schema, f"table {table!r} of {where}")
        return replace(self, version=one.version, own_tables=tables)

    def check_earlier(self, was: Processing, by: Mapping[str, Function], where: str) -> None:
        check_earlier_tables(was.own_tables, self.own_tables, by, where)

    def change(self, was: Processing, function: Function | None, table: str) -> Change | None:
        return None if function is None else partial(changed, was, function, self.own_tables[table], ())


class ProcessRunner(Runner):
    """One process in one task."""

    def __init__(
        self, operator: Processing, numbers: Mapping[str, int], first_shard: int, partitioners: Partitioners | None
    ) -> None:
        self.operator, self.partitioners = operator, partitioners
        self.tables = KeyTables(operator, numbers, first_shard)

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        return self.tables.wake_at(state)

    def step(self, run: StepRun, *inputs: Flowing | None) -> Batch | None:
        """Fire the due timers, then process the rows."""
        return self.run(run, joined(inputs, weighted=False))

    def run(self, run: StepRun, batch: Batch | None, *, fires: bool = True) -> Batch | None:
        """Fire the due timers (only if `fires`), then process the rows. Returns the results of both, in this order."""
        columns = list(self.operator.columns)
        due = self.tables.due(run.state, run.step.clock) if fires else self.tables.due_keys.to_frame()
        rows = self.tables.keys.to_frame() if batch is None else batch.rows.select(columns)
        met = pl.concat([due.select(columns), rows])
        if not met.height:
            return None
        spelt = self.operator.key.encode(met)
        hashes = murmur2(spelt)
        if self.partitioners is not None:
            self.partitioners.recall(lambda: self.operator.key.encode(self.tables.known(run.state)))
            row_of = lambda i: "" if batch is None or i < due.height else run.span(batch, [i - due.height])  # noqa: E731
            self.partitioners.check(spelt, hashes, everywhere(True, len(spelt)), row_of)
        shards = shard_of(hashes)
        # Compare keys by their bytes, as state does. As a value, a NaN would not equal itself.
        numbers: dict[bytes, int] = {}
        key_of = [numbers.setdefault(k, len(numbers)) for k in self.tables.full_keys(TIMERS, shards, met)]
        _, first = np.unique(key_of, return_index=True)
        keys, shards = met[first], shards[first]
        known = self.tables.read(run.state, run.step.clock, shards, keys)
        contexts = [KeyContext(key, of_key) for key, of_key in zip(keys.rows(), known, strict=True)]
        due_calls = list(zip(key_of, due[".at"], due[".name"], strict=False))

        def called(careful: bool) -> Batch | None:
            out = _Out(self.operator, run, batch, careful=careful)
            for i, at, name in due_calls:
                out.fire(contexts[i], known[i], name, at)
            if batch is not None:
                for i, row in rows_for(batch.rows, out.unread):
                    number = key_of[due.height + i]
                    out.see(contexts[number], known[number], i, row)
            made = out.batch()
            self.tables.write(run.state, known, shards, keys)
            out.catching.close(out.calls)
            return made

        if run.failures.stops(self.operator):
            return called(careful=False)
        read = [of_key.saved() for of_key in known]
        try:
            return called(careful=False)
        except UserCodeError as error:
            # A write or a result does not fit. The check covers all rows at once, and later calls have already seen the bad
            # row. So run all calls again, and check each one. (Too many failures is another error.)
            if not isinstance(error.__cause__, Misfit):
                raise
        for of_key, before in zip(known, read, strict=True):
            of_key.restore(before)
        return called(careful=True)


class _Out:
    """The user's calls of one step, and their results."""

    def __init__(self, operator: Processing, run: StepRun, batch: Batch | None, *, careful: bool) -> None:
        """If `careful`, the writes and results of a call are checked before the next call."""
        self.operator, self.run, self.source, self.careful = operator, run, batch, careful
        self.catching = Catching(operator, run, batch)
        self.calls = 0
        self.rows: list[Any] = []
        self.times: list[int] = []
        self.origins: list[int | None] = []
        self.wheres: list[Callable[[], str]] = []
        self.times_in = [] if batch is None else batch.meta[TS].to_list()
        self.origins_in = [] if batch is None else batch.meta[ORIGIN].to_list()

    def fire(self, context: KeyContext, state: KeyState, name: str, at: int) -> None:
        """A due timer, unless a timer before it deleted or moved it."""
        if state.timers.get(name) != at:
            return
        del state.timers[name]
        timer = Timer(name, moment(at))
        where = f"{self.operator.where}, timer {name!r} of key {context.key}"
        key = dict(zip(self.operator.columns, context.key, strict=True))
        self._call(
            state,
            lambda: self.operator.process.on_timer(timer, context),
            lambda: where,
            at,
            None,
            lambda: {"timer": name, "at": moment(at), "key": key},
        )

    def see(self, context: KeyContext, state: KeyState, i: int, row: dict[str, Any]) -> None:
        """A row of the batch."""
        batch = self.source
        assert batch is not None
        self._call(
            state,
            lambda: self.operator.process.on_row(row, context),
            lambda: where_of(self.operator, self.run, batch, [i]),
            self.times_in[i],
            self.origins_in[i],
            lambda: batch.rows.row(i, named=True),
        )

    def unread(self, i: int, error: Misfit) -> None:
        """A row of the batch that the process cannot be given."""
        batch = self.source
        assert batch is not None
        self.calls += 1
        if not self.catching.goes_on:
            raise self.catching.stopped(error, where_of(self.operator, self.run, batch, [i])) from error
        times, origins = self.times_in, self.origins_in
        self.catching.note(self.calls - 1, error, origins[i], times[i], lambda: row_of(batch.rows, i))

    def batch(self) -> Batch | None:
        """All output rows. Raises UserCodeError for a row that does not fit."""
        if not self.rows:
            return None
        meta = {TS: pl.Series(self.times, dtype=pl.Int64), ORIGIN: pl.Series(self.origins, dtype=pl.UInt32)}
        return Batch(made_frame(self.operator, self.rows, self.wheres), pl.DataFrame(meta))

    def _call(
        self,
        state: KeyState,
        call: Callable[[], Rows],
        where: Callable[[], str],
        time: int,
        origin: int | None,
        given: Callable[[], Mapping[str, Any]],
    ) -> None:
        """One call. If it fails and the app continues, it has no effect."""
        state.where = where
        before = state.saved() if self.catching.goes_on else None
        self.calls += 1
        try:
            made = call()
            # A generator runs while its results are read.
            several = () if made is None else (made,) if isinstance(made, Mapping) else made
            rows = [as_given(row) for row in several]
            if self.careful:
                self._check(state, where, rows)
        except FAILURES as error:
            if before is None:
                raise self.catching.stopped(error, where()) from error
            state.restore(before)
            self.catching.note(self.calls - 1, error, origin, time, given)
            return
        self.rows += rows
        self.times += [time] * len(rows)
        self.origins += [origin] * len(rows)
        self.wheres += [where] * len(rows)

    def _check(self, state: KeyState, where: Callable[[], str], rows: Sequence[Any]) -> None:
        """Raises Misfit if a row that a call wrote or returned does not fit."""
        if wrong := misfits(rows, self.operator.schema):
            raise no_row(rows[wrong[0]], self.operator.schema)
        for table, last in state.put_by.items():
            if last is where:
                state.check(table)


class ProcessExchange(SendsRows):
    """Sends rows."""

    def __init__(self, operator: Processing) -> None:
        self.key = column_key(operator.columns)
        self.columns = list(operator.inputs[0].schema)
        numbers = {table: i for i, table in enumerate(operator.tables(), start=1)}
        self.runner = ProcessRunner(operator, numbers, 0, None)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.columns).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        for batch in self._batches(run, parcels):
            # Firing timers between them would make results depend on how rows are divided into parcels.
            if (out := self.runner.run(run, batch, fires=False)) is not None:
                yield out
        last = -1
        # A timer that sets itself for the current clock is always due. Stop when only such timers are left.
        while (due := self.runner.wake_at(run.state)) is not None and last < due <= run.step.clock:
            last = due
            if (out := self.runner.run(run, None)) is not None:
                yield out

    def _batches(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        waiting: list[pl.DataFrame] = []
        rows = 0
        for place, frame in parcels:
            waiting.append(frame.with_columns(pl.lit(len(run.places), pl.UInt32).alias(ORIGIN)))
            run.places.append(place)
            rows += frame.height
            if rows >= _AT_ONCE:
                yield self._batch(waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._batch(waiting)

    def _batch(self, frames: Sequence[pl.DataFrame]) -> Batch:
        whole = together(frames)
        return Batch(whole.select(self.columns), whole.select(TS, ORIGIN))
