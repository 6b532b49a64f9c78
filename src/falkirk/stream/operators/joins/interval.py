"""`stream.join(other, within=(lower, upper))`: rows with equal keys whose times are near each other.

    a ~ b   ⇔   a.key = b.key  and  a.time + lower ≤ b.time ≤ a.time + upper
    the rules of `falkirk.stream.operators.joins.join`, with the partners of a row in place of all rows of its key

With a watermark w on both inputs, before which no row comes or is taken back:

    a goes from state       ⇔  a.time + max(upper, 0) < w     every b that comes has b.time ≥ w, and a may be taken back
    b goes from state       ⇔  b.time − min(lower, 0) < w
    watermark of the result =  w − max(upper, 0)              with the left row's time; w + min(lower, 0) with the right row's

Where rows without a partner count, rows go later. Otherwise a row would be alone again when its first partner has gone from
state, and the next one would take back nulls that are not there:

    "left", "full", "semi", "anti"      b goes from state  ⇔  b.time + max(upper, 0) − lower < w
    "right", "full"                     a goes from state  ⇔  a.time + upper − min(lower, 0) < w

Rows of a key are in state in the order of their times. A step reads only those that its own rows can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from falkirk.durations import duration_text
from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import Runner, TaskContext
from falkirk.stream.operators.joins.interval_batch import IntervalExchange
from falkirk.stream.operators.joins.interval_expiry import bucket_size
from falkirk.stream.operators.joins.interval_step import IntervalRunner
from falkirk.stream.operators.joins.timed_join import TimedJoin

FARTHEST_APART = timedelta(days=36_500) // timedelta(milliseconds=1)
"""Times farther apart do not fit the places in state, which may count nanoseconds."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class IntervalJoin(TimedJoin):
    """Rows of two inputs with equal keys and times near each other."""

    lower: int
    upper: int
    """The least and the greatest b.time − a.time, in milliseconds."""

    @property
    def bounded_by(self) -> str:
        return 'give both sources a watermark (late="30s"), which says when a row can have no more partners'

    @property
    def delay(self) -> int:
        """How far the watermark of the result is behind that of its inputs."""
        return max(0, -self.lower if self.how == "right" else self.upper)

    @property
    def kept(self) -> tuple[int, int]:
        """How long rows of both sides are kept after their time, in milliseconds."""
        left, right = max(self.upper, 0), max(-self.lower, 0)
        if self.how in ("left", "full", "semi", "anti"):
            right = left - self.lower
        if self.how in ("right", "full"):
            left = self.upper + max(-self.lower, 0)
        return left, right

    @property
    def remembered(self) -> int | None:
        """A row is kept until its bucket is past. What is said of it depends on the rows that it may join, some of which are
        earlier. The watermark of the result is later."""
        if not self.expire or any(before.changes for before in self.inputs):
            return None
        return max(self.kept) + bucket_size(self.kept, 1) + self.upper - self.lower + self.delay

    @property
    def words(self) -> str:
        return f"{super().words}, within {span_text(self.lower)} to {span_text(self.upper)}"

    @property
    def notes(self) -> Sequence[str]:
        if not self.expire:
            return super().notes
        left, right = map(span_text, self.kept)
        return (f"keeps rows until the watermark is past their time and {left} on the left side, {right} on the right",)

    def state_words(self) -> str:
        return f"{super().state_words()}, {self.times[0]} {self.lower} to {self.upper} ms before {self.times[1]}"

    def runner(self, task: TaskContext) -> Runner:
        return IntervalRunner(self, task)

    def exchange(self) -> Exchange:
        return IntervalExchange(self)


def span_text(millis: int) -> str:
    """A number of milliseconds, which can be negative.

    >>> span_text(-300_000), span_text(0)
    ('-5m', '0s')
    """
    return f"{'-' if millis < 0 else ''}{duration_text(timedelta(milliseconds=abs(millis)))}"


def time_of(how: str, names: tuple[str | None, str | None]) -> str | None:
    """The column of the result that has its event time, given the names of both times there. None: with "full" there is no
    column that every row has."""
    return None if how == "full" else names[how == "right"]
