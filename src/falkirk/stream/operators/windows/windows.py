"""Rows, each as often as there are windows that hold its time, with the window's start and end.

start(t, k) = ⌊(t − offset) / every⌋ · every + offset − k · every        for k = 0, 1, …  as long as t < start + size
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.event_time import per_milli
from falkirk.stream.definition.windows import END, START, Window
from falkirk.stream.operators.windows.spans import GREATEST


def bound_type(column: pl.DataType) -> pl.DataType:
    """The type of a window's start and end: the time's, if it is a datetime, or else Int64."""
    return column if isinstance(column, pl.Datetime) else pl.Int64()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Windows(Operator):
    """Rows with their windows."""

    kind: ClassVar[str] = "windows"
    row_wise: ClassVar[bool] = True
    window: Window

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return (needed - {START, END}) | {self.window.column}

    @property
    def expire(self) -> bool:
        """Whether the watermark tells when a window is complete."""
        return self.watermarked and self.time == self.window.column and not self.changes

    @property
    def words(self) -> str:
        return f"windows: {self.window}{'' if self.expire else '; never complete, so their state is kept for ever'}"

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(self._windowed, weighted=self.weighted(task))

    def _windowed(self, run: StepRun, batch: Batch) -> Batch:
        if batch.rows[self.window.column].null_count():
            batch = batch.filter(batch.rows[self.window.column].is_not_null())
        dtype = self.schema[START]
        unit, times = per_milli(dtype), batch.rows[self.window.column].to_physical().cast(pl.Int64).to_numpy()
        size, every, offset = (n * unit for n in (self.window.size, self.window.every, self.window.offset))
        # Beyond, windows would not fit into Int64: times like −2⁶³, which stand for none, are in the first or the last ones.
        times = np.clip(times, size + every + offset - GREATEST, GREATEST - size - every - offset)
        last = (times - offset) // every * every + offset
        most = -(-size // every)
        # The earliest window of each row first.
        starts = (last[:, None] - np.arange(most - 1, -1, -1) * every).ravel()
        if most > 1:
            index = np.repeat(np.arange(len(times)), most)
            held = starts + size > times[index]
            index, starts = index[held], starts[held]
            batch = batch.gather(pl.Series(index))
        bounds = [pl.Series(name, starts + n).cast(dtype) for name, n in ((START, 0), (END, size))]
        return Batch(batch.rows.hstack(bounds), batch.meta)
