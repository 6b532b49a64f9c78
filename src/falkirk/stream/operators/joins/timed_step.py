"""One step of a join by event time: the rows of the step, then the watermark, then the rows that are not needed any more."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from falkirk.state.store import State
from falkirk.stream.dataflow.event_time import BEGINNING, Watermark
from falkirk.stream.dataflow.operator import Flowing, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.joins.interval_expiry import Expiry
from falkirk.stream.operators.joins.join_side import Change
from falkirk.stream.operators.joins.join_step import JoinRunner
from falkirk.stream.operators.joins.timeline import place_units

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.timed_join import TimedJoin


class TimedRunner(JoinRunner):
    """One join by event time in one task."""

    operator: TimedJoin
    expiry: Expiry | None = None
    """None: rows are kept without end."""

    def __init__(self, operator: TimedJoin, task: TaskContext, sign: int = 1) -> None:
        """`sign`: −1 puts the latest rows first."""
        self.unit, *units = place_units([i.schema[c] for i, c in zip(operator.inputs, operator.times, strict=True)])
        super().__init__(operator, task, [(c, sign * unit) for c, unit in zip(operator.times, units, strict=True)])

    @abstractmethod
    def _joined(self, run: StepRun, left: Change, right: Change) -> Flowing | None:
        """The change of the result, given those of both sides."""

    def wake_at(self, state: State) -> int | None:
        """At once, if there are more rows to drop."""
        return None if self.expiry is None or not self.expiry.has_more(state) else 0

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        left, right = (side.change(flowing) for side, flowing in zip(self.sides, inputs, strict=True))
        out = self._joined(run, left, right) if left.rows.height or right.rows.height else None
        given = run.watermarks.get(self.operator)
        if given is not None:
            run.passed_on[self.operator] = behind(given, self.operator.delay)
            if self.expiry is not None:
                self.expiry.note(run.state, (left, right))
                self.expiry.expire(run.state, given.after)
        return out


def behind(given: Watermark, delay: int) -> Watermark:
    """The watermark of a result that is so far behind its inputs."""
    return Watermark(max(given.before - delay, BEGINNING), max(given.after - delay, BEGINNING), given.idle)
