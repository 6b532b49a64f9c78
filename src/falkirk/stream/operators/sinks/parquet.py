"""Rows for Parquet files. A publisher makes them into files after the step has committed (`falkirk.checkpoint.outlets`).

append-only rows   as they are
retractions        changes=True: each change is a row, with its weight in the column `weight`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.durations import duration_text
from falkirk.stream.dataflow.batch import ORIGIN
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.outlets import FilesPlan
from falkirk.stream.operators.sinks.outlet import OutletLog, OutletSink


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ParquetSink(OutletSink):
    """Rows as Parquet files."""

    kind: ClassVar[str] = "sink_parquet"
    log: ClassVar[str] = "files"
    plan: FilesPlan

    @property
    def exact_words(self) -> str:
        return self.plan.url

    @property
    def written(self) -> str:
        return f"files {self.id}: Parquet in {self.plan.url}, every {duration_text(self.plan.every)}"

    def runner(self, task: TaskContext) -> Runner:
        return ParquetRunner(self, task)


class ParquetRunner(Runner):
    """Writes one sink for one task."""

    def __init__(self, sink: ParquetSink, task: TaskContext) -> None:
        self.sink, self._log = sink, OutletLog(sink, task)

    def step(self, run: StepRun, *inputs: Flowing | None) -> None:
        """Emit the rows of this step."""
        batch = joined(inputs, weighted=self.sink.changes)
        if batch is not None:
            columns = batch.rows.select(list(self.sink.schema))
            self._log.write(run, columns.hstack(batch.meta.select(pl.exclude(ORIGIN))))
