"""A worker's counts between two reports: a few numbers per step, no matter what it holds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from falkirk.checkpoint.records import StepRecord
from falkirk.runtime.messages.protocol import BOUNDS


class Durations:
    """How long many events took, in a few numbers."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.counts = [0] * (len(BOUNDS) + 1)
        """By the first of `BOUNDS` that each does not exceed."""

    def add(self, seconds: float) -> None:
        """One more."""
        self.seconds += seconds
        self.counts[bisect_left(BOUNDS, seconds)] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)

    def mean_ms(self) -> float:
        """0 if there were none."""
        return round(1000 * self.seconds / max(1, self.count), 3)

    def told(self) -> tuple[int, ...]:
        """The counts, in the form of reports."""
        return tuple(self.counts) if self.count else ()


@dataclass(slots=True)
class Stats:
    """A worker's pace since its last report."""

    rows: Counter[str] = field(default_factory=Counter)
    """Committed."""
    dead: Counter[str] = field(default_factory=Counter)
    """Committed to the dead letters."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Failed, and left out."""
    late: Counter[str] = field(default_factory=Counter)
    """Rows that came too late."""
    rounds: Durations = field(default_factory=Durations)
    """The time to close steps, each time."""
    commits: Durations = field(default_factory=Durations)

    def committed(self, record: StepRecord, late: int) -> None:
        """A step has been committed."""
        for counter, count in (
            (self.rows, record.rows),
            (self.dead, record.dead),
            (self.skipped, record.skipped),
            (self.late, late),
        ):
            counter[record.task] += count
