"""When a step closes: small when idle, for latency; large when behind, for throughput."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pacer:
    """Decides from what is pending. Times in seconds.

    Behind, a step takes `limit` from one commit to the next: running it takes a part of that, reading gets what is left.
    When the input is drained there is nothing to wait for, but the commit that is under way: a step closes so early that
    it has run when that commit ends, and no earlier, for what arrives meanwhile can still come along.

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

    def closes(self, *, rows: int, size: int, age: float, drained: bool, committing: float | None) -> bool:
        """Whether to close now. `age`: since the first pending row was read; `committing`: since the last step was sent."""
        if rows == 0:
            return False
        if rows >= self.max_rows or size >= self.max_bytes:
            return True
        if age >= max(self.limit - self.running, self.limit / 4):
            return True
        return drained and (committing is None or committing >= self.commits - self.running)

    def ran(self, seconds: float) -> None:
        """Learn how long a step took to run."""
        self.running += (seconds - self.running) / 4

    def committed(self, seconds: float) -> None:
        """Learn how long a commit took."""
        self.commits += (seconds - self.commits) / 4
