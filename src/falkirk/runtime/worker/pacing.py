"""When a step closes, and how large it is: small when idle, for latency; large when behind, for throughput; and never larger
than what can be written in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ports import Why
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.checkpoint.transaction import Fate
from falkirk.stream.stages.plan import Stage

IDLE_WAIT = 0.01
"""Seconds that one poll for input waits: all other work is done between two polls."""

PROMPT = 2.0
"""Seconds that a commit should take at most: a broker with a quota, or a slow line, gets smaller steps."""

FEW = 10
"""Rows. A commit of at most this many takes the same for any number: connections break, or each request is slow."""

CUT = 8
"""A step that could not be written in time is tried again with this many times fewer rows."""

ALONG = 5_000
"""Rows beyond the bound that a step may take along: what one poll of a source gives."""


@dataclass(slots=True)
class Pacer:
    """Decides by what is pending. Times in seconds.

    When behind, a step takes `limit` from one commit to the next: running it takes a part of that, reading gets the rest.
    When the input is drained, only the commit in progress is left to wait for. Either way a step closes just early enough to
    have run when that commit ends, and not earlier: it would only wait, without the rows that arrive meanwhile.

    A step has `most` rows. That is `max_rows` unless commits take long. Then it is what commits in PROMPT seconds, learned
    from each commit; a CUT-th of that after one that timed out; and a quarter more after each quick one. If a commit of few
    rows takes nearly as long, smaller steps would not be quicker, only more: then PROMPT is three times that.

    >>> pacer = Pacer(limit=0.1, max_rows=1000, max_bytes=1 << 20)
    >>> pacer.closes(rows=1, size=9, age=0.0, drained=True, committing=None)
    True
    >>> pacer.closes(rows=1, size=9, age=0.0, drained=False, committing=None)
    False
    >>> pacer.closes(rows=1000, size=9, age=0.0, drained=False, committing=0.0)
    True
    """

    limit: float
    max_rows: int
    max_bytes: int
    running: float = 0.0
    """How long the last steps took to run: a moving mean."""
    commits: float = 0.01
    """How long the last commits took: a moving mean."""
    least: float = 0.0
    """How long the last commits of FEW rows took, and not longer than others took since: a moving mean."""
    most: int = field(init=False)
    """Rows that a step may have."""

    def __post_init__(self) -> None:
        self.most = self.max_rows

    def closes(self, *, rows: int, size: int, age: float, drained: bool, committing: float | None) -> bool:
        """Whether to close now. `age`: since the first pending row was read; `committing`: since the last step was sent."""
        if rows == 0:
            return False
        if self.full(rows=rows, size=size):
            return True
        if committing is not None and committing < self.commits - self.running:
            return False
        return drained or age >= max(self.limit - self.running, self.limit / 4)

    def full(self, *, rows: int, size: int) -> bool:
        """Whether as much is pending as a step may have: then no more is read."""
        return rows >= self.most or size >= self.max_bytes

    def ran(self, seconds: float) -> None:
        """Learn how long a step took to run."""
        self.running += (seconds - self.running) / 4

    def share(self, rows: int) -> float:
        """The share of this many pending rows that the next step takes. At full speed, what the last poll has read beyond the
        bound comes along; but from an edge, it may have read a thousand times the bound.

        >>> pacer = Pacer(limit=0.1, max_rows=1000, max_bytes=1 << 20)
        >>> pacer.share(1500)
        1.0
        >>> pacer.slow(1500)
        >>> pacer.most, pacer.share(1500)
        (125, 0.08333333333333333)
        >>> Pacer(limit=0.1, max_rows=1000, max_bytes=1 << 20).share(100_000)
        0.01
        """
        bound = self.most + (ALONG if self.most == self.max_rows else 0)
        return 1.0 if rows <= bound else self.most / rows

    def part(self, rows: int, of: int) -> int:
        """The rows that a task's next step takes, at most, of the `rows` that it has pending. `of`: rows pending in all."""
        return max(1, int(self.share(of) * rows))

    def decided(self, steps: Sequence[ClosedStep], fates: Sequence[Fate], seconds: float) -> None:
        """Learn from a transaction of some steps that has ended: the size of the next ones."""
        rows = sum(step.rows for step in steps)
        if Fate.COMMITTED in fates:
            self.committed(seconds, rows)
        elif any(step.failed is not None and step.failed.why is Why.SLOW for step in steps):
            self.slow(rows)

    def committed(self, seconds: float, rows: int) -> None:
        """Learn how long the commit of a step of this many rows took.

        >>> pacer = Pacer(limit=0.1, max_rows=1000, max_bytes=1 << 20)
        >>> pacer.committed(8.0, 1000)
        >>> pacer.most
        250
        >>> for _ in range(7):
        ...     pacer.committed(0.5, pacer.most)
        >>> pacer.most
        1000
        """
        self.commits += (seconds - self.commits) / 4
        if rows <= FEW or seconds < self.least:
            self.least += (seconds - self.least) / 4
        prompt = max(PROMPT, 3 * self.least)
        if seconds > prompt:
            self.most = max(1, min(self.most, int(rows * prompt / seconds))) if rows else self.most
        elif seconds < prompt / 2 and (not rows or 2 * rows >= self.most):
            self.most = min(self.max_rows, self.most + self.most // 4 + 1)

    def slow(self, rows: int) -> None:
        """A step of this many rows could not be written in time."""
        self.most = max(1, min(self.most, rows or self.most) // CUT)


def pacer_of(stage: Stage) -> Pacer:
    """The pace of a stage's regime."""
    regime = stage.regime
    return Pacer(regime.step.total_seconds(), regime.max_rows, regime.max_bytes)


def each_of(most: int, places: int) -> int:
    """The rows that each of so many inputs with something pending gives to a step of `most` rows: in whole records, and one
    record at least."""
    return max(1, most // max(1, places))


def poll_wait(staged: object, committing: float | None) -> float:
    """Seconds that a poll for input waits. `committing`: since the last step was sent. While a staged step waits for a
    commit, a poll is short compared with the commit's time so far: so it ends soon after the commit, and a long commit does
    not keep a core busy."""
    return IDLE_WAIT if not staged or committing is None else min(IDLE_WAIT, max(0.001, committing / 20))
