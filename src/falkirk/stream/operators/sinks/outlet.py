"""Sinks outside Kafka: a step writes their rows to the sink's own log, as batches. A publisher copies them from there when
the step has committed (`falkirk.checkpoint.outlets`).

Partition p of the log has what task p writes. So a step of a task is in one partition, in one piece.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from falkirk.stream.dataflow.circuit import Emitted
from falkirk.stream.dataflow.operator import Operator, TaskContext
from falkirk.stream.dataflow.packing import Packer
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.outlets import OutletPlan


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OutletSink(Operator):
    """A sink outside Kafka."""

    role: ClassVar[Literal["source", "operator", "sink"]] = "sink"
    log: ClassVar[str]
    """What the name of its log has before the sink's own."""
    plan: OutletPlan

    def topic(self, topics: str) -> str:
        """Its log, among the app's own topics."""
        return f"{topics}.{self.log}.{self.id}"

    @property
    @abstractmethod
    def written(self) -> str:
        """What it writes and where, for people who read a plan."""


class OutletLog:
    """The log of one sink for one task."""

    def __init__(self, sink: OutletSink, task: TaskContext) -> None:
        self._id, self._topic, self._partition = sink.id, task.logs[sink.id], task.number

    def write(self, run: StepRun, frame: pl.DataFrame) -> None:
        """Emit the rows of this step; one column is their times."""
        packed = Packer(frame).pack(0, frame.height)
        run.emitted.append(
            Emitted(
                output=self._id,
                topic=self._topic,
                partitions=[self._partition] * len(packed),
                keys=[None] * len(packed),
                values=[data for data, _ in packed],
                timestamps=[latest for _, latest in packed],
            )
        )
