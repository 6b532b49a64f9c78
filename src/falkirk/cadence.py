"""How often a wait is logged."""

from __future__ import annotations


class Cadence:
    """When to log something that lasts: once it has lasted `after` seconds, and then every `every` seconds.

    >>> cadence = Cadence(after=5, every=30)
    >>> [now for now in range(100, 200) if cadence.due(now, since=100)]
    [105, 135, 165, 195]

    The next wait is not logged sooner because it is another one:

    >>> [now for now in range(200, 250) if cadence.due(now, since=200)]
    [225]
    """

    def __init__(self, after: float, every: float) -> None:
        self._after, self._every = after, every
        self._said = float("-inf")

    def due(self, now: float, since: float = float("-inf")) -> bool:
        """Whether to log it now, in which case it counts as logged. Without `since` it need not last."""
        if now - since < self._after or now - self._said < self._every:
            return False
        self._said = now
        return True
