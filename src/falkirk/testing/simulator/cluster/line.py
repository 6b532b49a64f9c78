"""A worker's way to the brokers that takes its time."""

from __future__ import annotations

from dataclasses import dataclass

TURNS_A_SECOND = 10
"""How many turns a second is to whoever waits."""


@dataclass(slots=True)
class Line:
    """Over a slow line, records arrive one after another. A broker with a quota takes them at once, and then nothing for as
    long as they were too many: it says so, and everything else on the connection waits, the end of the transaction too.

    >>> line = Line(every=5, until=100, quota=False)
    >>> line.takes(3, now=10), line.takes(1, now=10), line.takes(0, now=10)
    (25, 30, 30)
    >>> line = Line(every=5, until=100, quota=True)
    >>> line.takes(3, now=10), line.takes(1, now=10), line.takes(0, now=10)
    (10, 25, 30)
    """

    every: int
    """Turns that each record takes."""
    until: int
    """When it is as quick as others again."""
    quota: bool
    free: int = 0
    """When all that was sent has been taken."""

    def takes(self, records: int, now: int) -> int:
        """Send so many records. Returns when they arrive; a request without records waits for those before it."""
        begins = max(now, self.free)
        self.free = begins + records * self.every
        return begins if self.quota else self.free
