"""`key_by(…).process(…)`: rows and timers of each key, one after another, through a user's Python object.

1. due timers (≤ clock) are read from an index in the order of time
2. state and timers of all keys that have a row or a due timer are read, in one call a table
3. timers fire, in (time, key) order; then rows are seen, in theirs
4. what changed is written, in one call a table

    call fails, and the app goes on  ⇒  state, timers and rows are what they were before the call
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.circuit import State
from falkirk.stream.engine.batch import ORIGIN, TS, Batch, everywhere
from falkirk.stream.engine.catching import Catching, Misfit, made_frame, no_row, where_of
from falkirk.stream.engine.keystate import KeyState, KeyTables
from falkirk.stream.engine.partitioners import Partitioners
from falkirk.stream.engine.step import StepRun
from falkirk.stream.frames import misfits
from falkirk.stream.operators import Processing
from falkirk.stream.process import KeyContext, Rows, Timer, moment
from falkirk.stream.tables import TIMERS


class ProcessRunner:
    """One process in one task."""

    def __init__(
        self, operator: Processing, numbers: Mapping[str, int], first_shard: int, partitioners: Partitioners | None
    ) -> None:
        self.operator, self.partitioners = operator, partitioners
        self.tables = KeyTables(operator, numbers, first_shard)

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        return self.tables.wake_at(state)

    def run(self, run: StepRun, batch: Batch | None, *, fires: bool = True) -> Batch | None:
        """Fire what is due, then see the rows; what both gave, in that order. Unless it `fires`, what is due waits."""
        columns = list(self.operator.columns)
        due = self.tables.due(run.state, run.step.clock) if fires else self.tables.due_keys.to_frame()
        rows = self.tables.keys.to_frame() if batch is None else batch.rows.select(columns)
        met = pl.concat([due.select(columns), rows])
        if not met.height:
            return None
        spelt = self.operator.key.encode(met)
        hashes = murmur2([k or b"" for k in spelt])
        if self.partitioners is not None:
            self.partitioners.recall(lambda: self.operator.key.encode(self.tables.known(run.state)))
            row_of = lambda i: "" if batch is None or i < due.height else run.span(batch, [i - due.height])  # noqa: E731
            self.partitioners.check(spelt, hashes, everywhere(True, len(spelt)), row_of)
        shards = shard_of(hashes)
        # Bytes tell keys apart as state does; as values, a NaN would not equal itself.
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
                for i, row in enumerate(batch.rows.iter_rows(named=True)):
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
            # What was put or given does not fit. It is seen for all rows at once, and what came after has met it: so all of
            # it is done again, looking at each call. Too many failures are no such thing.
            if not isinstance(error.__cause__, Misfit):
                raise
        for of_key, before in zip(known, read, strict=True):
            of_key.restore(before)
        return called(careful=True)


class _Out:
    """The user's calls of one step, and what they gave."""

    def __init__(self, operator: Processing, run: StepRun, batch: Batch | None, *, careful: bool) -> None:
        """If `careful`, what a call puts and gives is looked at before the next call."""
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

    def batch(self) -> Batch | None:
        """All rows that came out. Raises UserCodeError for one that does not fit."""
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
        """One call: all of what it does, or, where it fails and the app goes on, nothing."""
        state.where = where
        before = state.saved() if self.catching.goes_on else None
        self.calls += 1
        try:
            made = call()
            # A generator runs while it is read.
            rows = [] if made is None else [made] if isinstance(made, Mapping) else list(made)
            if self.careful:
                self._check(state, where, rows)
        except Exception as error:
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
        """Raises Misfit for what a call put or gave that does not fit."""
        if wrong := misfits(rows, self.operator.schema):
            raise no_row(rows[wrong[0]], self.operator.schema)
        for table, last in state.put_by.items():
            if last is where:
                state.check(table)
