"""`key_by(…).process(…)` in a batch: the runner of the stream, over a state in memory that is empty when a bucket begins.

Its clock is the epoch's. Rows are seen first, in the order of their places; then timers fire that the clock has passed, and
those that they set, as in a stream whose steps go on without rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from falkirk.stream.engine.batch import ORIGIN, TS, Batch
from falkirk.stream.engine.processes import ProcessRunner
from falkirk.stream.engine.step import StepRun
from falkirk.stream.exchanges.base import BucketRun, SendsRows, together
from falkirk.stream.exchanges.place import Place
from falkirk.stream.formats import Key
from falkirk.stream.operators import Processing
from falkirk.stream.tables import tables_of

_AT_ONCE = 20_000
"""Rows of one run: it reads and writes the state of their keys once."""


class ProcessExchange(SendsRows):
    """Sends rows."""

    def __init__(self, operator: Processing) -> None:
        columns = list(operator.columns)
        self.key = Key(columns if len(columns) > 1 else columns[0])
        self.columns = list(operator.inputs[0].schema)
        numbers = {table: i for i, table in enumerate(tables_of(operator), start=1)}
        self.runner = ProcessRunner(operator, numbers, 0, None)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.columns).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        for batch in self._batches(run, parcels):
            # Firing between them would make results depend on how rows are cut into parcels.
            if (out := self.runner.run(run, batch, fires=False)) is not None:
                yield out
        last = -1
        # A timer that sets itself for the clock again is due for ever: it waits once no other is before it.
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
