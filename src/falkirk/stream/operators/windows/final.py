"""`.final()`: the results of complete windows, once each, in the order of their ends.

A result has the timestamp of the window's last millisecond, or, if its event time is the window's start, of that.

completed = w        no result comes any more with a last millisecond before w
for starts           windows of one size start in the order of their ends: none comes any more that starts before w + 1 − size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.event_time import BEGINNING, Watermark
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Final(Operator):
    """The rows of complete windows, once each: its input is a grouping in windows."""

    kind: ClassVar[str] = "final"
    size: int | None = None
    """The milliseconds of all windows, if the event time is their start; None: it is their end."""

    @property
    def remembered(self) -> int | None:
        return self.size or 0  # its rows, and their watermark, are earlier than those of the windows

    @property
    def words(self) -> str:
        return f"{self.kind} {self.id}{f', dated by {self.time}' if self.time else ''}"

    def runner(self, task: TaskContext) -> Runner:
        return FinalRunner(self)


class FinalRunner(Runner):
    """The windows that this step completes."""

    def __init__(self, operator: Final) -> None:
        self.operator, self.group = operator, operator.inputs[0]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        closed, reached = run.closed.get(self.group), run.completed.get(self.group)
        size = self.operator.size
        if reached is not None:
            run.passed_on[self.operator] = _earlier(reached, 0 if size is None else size - 1)
        if closed is None:
            return None
        rows = closed()
        if size is None:
            return rows
        return Batch(rows.rows, rows.meta.with_columns(pl.col(TS) - (size - 1)))


def completed(first: Sequence[Any], left: Sequence[Any], given: Watermark, beyond: int) -> Watermark:
    """The watermark of results, after a step that completes windows. `first` and `left`: the end, if any, of the first window
    that was complete, and of the first that is left. The windows that are not complete end at `given` + `beyond` or later."""
    before, after = min([given.before + beyond, *first]), min([given.after + beyond, *left])
    return _earlier(Watermark(before, after, given.idle), 1)


def _earlier(watermark: Watermark, by: int) -> Watermark:
    """An earlier watermark. Before the beginning there is none."""
    before, after = (max(BEGINNING, time - by) for time in watermark[:2])
    return Watermark(before, after, watermark.idle)
