"""Rows for Parquet files: from a step to the sink's own log, as batches. A publisher makes them into files after the step has
committed (`falkirk.checkpoint.outlets`).

Partition p of the log has what task p writes. So a step of a task is in one partition, in one piece.

    append-only rows   as they are
    retractions        changes=True: each change is a row, with its weight in the column `weight`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from falkirk.stream.dataflow.batch import ORIGIN
from falkirk.stream.dataflow.circuit import Emitted
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.packing import Packer
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.files import FilesPlan


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ParquetSink(Operator):
    """Rows as Parquet files."""

    kind: ClassVar[str] = "sink_parquet"
    role: ClassVar[Literal["source", "operator", "sink"]] = "sink"
    files: FilesPlan

    def topic(self, topics: str) -> str:
        """Its log, among the app's own topics."""
        return f"{topics}.files.{self.id}"

    @property
    def exact_words(self) -> str:
        return self.files.url

    def runner(self, task: TaskContext) -> Runner:
        return ParquetRunner(self, task)


class ParquetRunner(Runner):
    """Writes one sink for one task."""

    def __init__(self, sink: ParquetSink, task: TaskContext) -> None:
        self.sink, self.topic, self.partition = sink, task.files[sink.id], task.number

    def step(self, run: StepRun, *inputs: Flowing | None) -> None:
        """Emit the rows of this step."""
        batch = joined(inputs, weighted=self.sink.changes)
        if batch is None:
            return
        frame = batch.rows.select(list(self.sink.schema)).hstack(batch.meta.select(pl.exclude(ORIGIN)))
        packed = Packer(frame).pack(0, frame.height)
        nothing = [None] * len(packed)
        run.emitted.append(
            Emitted(
                output=self.sink.id,
                topic=self.topic,
                partitions=[self.partition] * len(packed),
                keys=nothing,
                values=[data for data, _ in packed],
                timestamps=[latest for _, latest in packed],
            )
        )
