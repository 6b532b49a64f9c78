"""The context that the operators of a circuit share while one step runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, Batch
from falkirk.stream.dataflow.circuit import Emitted, Slice, StepInput
from falkirk.stream.dataflow.operator import Operator

if TYPE_CHECKING:
    from falkirk.stream.dataflow.event_time import EventTime, Watermark
    from falkirk.stream.dataflow.failures import Failures


@dataclass(slots=True)
class StepRun:
    """One run of a circuit. Records are numbered through all slices, in their order: those numbers are origins."""

    step: StepInput
    state: State
    failures: Failures
    emitted: list[Emitted] = field(default_factory=list)
    errors: dict[Operator, Batch] = field(default_factory=dict)
    """The failures of operators with a used stream of errors."""
    dead: int = 0
    skipped: int = 0
    """The number of failures that were skipped."""
    event_time: EventTime | None = None
    """The times of the task's inputs; None if no source of the stage has a watermark."""
    late: dict[Operator, Batch] = field(default_factory=dict)
    """The late rows of sources."""
    watermarks: dict[Operator, Watermark] = field(default_factory=dict)
    """The watermark of each operator's inputs, if all of them have one. Set before the operator runs."""
    closed: dict[Operator, Callable[[], Batch]] = field(default_factory=dict)
    """The results of windows that this step completes, by their group."""
    completed: dict[Operator, Watermark] = field(default_factory=dict)
    """The watermark of the results of complete windows, by their group: of their ends."""
    passed_on: dict[object, Watermark] = field(default_factory=dict)
    """The watermark of each input's and operator's output. An operator whose output is behind its inputs sets its own."""
    starts: list[int] = field(init=False)
    """The number of each slice's first record."""

    def __post_init__(self) -> None:
        self.starts = list(accumulate((len(s.records) for s in self.step.slices), initial=0))

    def slices(self, name: str) -> list[tuple[int, Slice]]:
        """The slices of one input that are not empty, each with the number of its first record."""
        found = zip(self.starts, self.step.slices, strict=False)
        return [(start, s) for start, s in found if s.input == name and len(s.records)]

    def bury(self, letters: Emitted) -> None:
        """Emit dead letters. Each topic is one output: a step numbers each output's records from 0."""
        self.dead += len(letters.values)
        before = next((e for e in self.emitted if e.output == letters.output), None)
        if before is None:
            self.emitted.append(letters)
            return
        before.partitions = [*before.partitions, *letters.partitions]
        before.keys = [*before.keys, *letters.keys]
        before.values = [*before.values, *letters.values]
        before.timestamps = [*before.timestamps, *letters.timestamps]

    def record(self, origin: int | None) -> tuple[Slice, int] | None:
        """The record with this number: its slice, and its place there."""
        if origin is None:
            return None
        i = bisect_right(self.starts, origin) - 1
        return self.step.slices[i], origin - self.starts[i]

    def address(self, origin: int) -> str:
        """The address of a record: topic, partition, offset."""
        found = self.record(origin)
        assert found is not None
        piece, at = found
        return f"topic {piece.topic}, partition {piece.partition}, offset {piece.records.offsets[at]}"

    def span(self, batch: Batch, rows: Sequence[int]) -> str:
        """The address of one row, or from the first to the last of several; "" if it is not known."""
        if ORIGIN not in batch.meta.columns or not rows:
            return ""
        ends = [batch.meta[ORIGIN][rows[0]], batch.meta[ORIGIN][rows[-1]]]
        # The rows of a timer have no record.
        addresses = [self.address(origin) for origin in ends if origin is not None]
        return " to ".join(dict.fromkeys(filter(None, addresses)))
