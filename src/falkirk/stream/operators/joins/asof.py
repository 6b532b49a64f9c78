"""`stream.join_asof(other)`: to each row the one row of the other side that is the nearest to it in time.

    out[a]   = (a, match(a))                                   match: `falkirk.stream.operators.joins.nearest`
    Δout     = ΔA · match'(A)  +  A · (match' − match)         only for rows of A that a row of ΔB can reach

With a watermark w on both inputs, before which no row comes or is taken back, and with a tolerance t:

    |          | a leaves when  | b leaves when                                   | watermark of the result |
    |---|---|---|---|
    | backward | a.time < w     | b.time + t < w; without t: a later b is before w | w                       |
    | forward  | a.time + t < w | b.time + t < w                                  | w − t                   |
    | nearest  | a.time + t < w | b.time + 2t < w                                 | w − t                   |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import Runner, TaskContext
from falkirk.stream.operators.joins.asof_batch import AsofExchange
from falkirk.stream.operators.joins.asof_step import AsofRunner
from falkirk.stream.operators.joins.interval import span_text
from falkirk.stream.operators.joins.timed_join import TimedJoin

Strategy = Literal["backward", "forward", "nearest"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AsofJoin(TimedJoin):
    """Each row of the left input, with the nearest row of the right one."""

    strategy: Strategy
    tolerance: int | None
    """In milliseconds. None: any distance, which only "backward" has."""

    @property
    def delay(self) -> int:
        """How far the watermark of the result is behind that of its inputs: how long left rows are kept."""
        return 0 if self.strategy == "backward" else self.tolerance or 0

    @property
    def kept(self) -> tuple[int, int]:
        """How long rows of both sides are kept after their time, in milliseconds."""
        return self.delay, (self.tolerance or 0) * (2 if self.strategy == "nearest" else 1)

    @property
    def words(self) -> str:
        within = "" if self.tolerance is None else f" within {span_text(self.tolerance)}"
        return f"{super().words.replace('left join', 'as-of join', 1)}, {self.strategy}{within}"

    @property
    def notes(self) -> Sequence[str]:
        if not self.expire:
            return super().notes
        left, right = (span_text(kept) for kept in self.kept)
        last = ", and the last one of each key" if self.tolerance is None else ""
        return (
            f"keeps rows until the watermark is past their time and {left} on the left side, {right} on the right{last}",
        )

    @property
    def bounded_by(self) -> str:
        return 'give both sources a watermark (late="30s"), which says when a row can have no other partner'

    def state_words(self) -> str:
        return f"{super().state_words()}, {self.times[0]} {self.strategy} {self.tolerance} ms of {self.times[1]}"

    def runner(self, task: TaskContext) -> Runner:
        return AsofRunner(self, task)

    def exchange(self) -> Exchange:
        return AsofExchange(self)
