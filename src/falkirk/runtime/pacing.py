"""When a step closes: small when idle, for latency; large when behind, for throughput."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pacer:
    """Decides from what is pending. Times in seconds.

    A step takes `limit` from one commit to the next: running it takes a part, so reading gets what is left. When the input
    is drained there is nothing to wait for, but a commit that is under way: its step would only queue behind it.

    >>> pacer = Pacer(limit=0.1, max_rows=1000, max_bytes=1 << 20)
    >>> pacer.closes(rows=1, size=9, age=0.0, drained=True, committing=False)
    True
    >>> pacer.closes(rows=1, size=9, age=0.0, drained=False, committing=False)
    False
    >>> pacer.closes(rows=1000, size=9, age=0.0, drained=False, committing=True)
    True
    """

    limit: float
    max_rows: int
    max_bytes: int
    running: float = 0.0
    """How long the last steps took to run: a moving mean."""

    def closes(self, *, rows: int, size: int, age: float, drained: bool, committing: bool) -> bool:
        """Whether to close now. `age`: since the first pending row was read."""
        if rows == 0:
            return False
        if rows >= self.max_rows or size >= self.max_bytes:
            return True
        if age >= max(self.limit - self.running, self.limit / 4):
            return True
        return drained and not committing

    def ran(self, seconds: float) -> None:
        """Learn how long a step took to run."""
        self.running += (seconds - self.running) / 4
