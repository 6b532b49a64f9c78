"""Input that cannot be read, and whether that is an error of the app or only means that another worker has the task.

A worker that slept past its session may find that its successor has trimmed an edge, or retention a topic, beyond its own
position. So an error counts only when the worker would know of a successor: the group tells it within a session.

    note ──▶ held, and logged once ──session_timeout──▶ counts
                    │
                    └──forget: the task was taken away, or has recovered──▶ (nothing)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import SourceError
from falkirk.runtime.host.settings import Settings

OfT = TypeVar("OfT")
"""A task, or an ownership of one."""


class UnreadableInputs(Generic[OfT]):
    """Those of one worker's tasks, or of some of them.

    >>> now = 0.0
    >>> unreadable = UnreadableInputs[str](Settings("b:1", "state", session_timeout_ms=10_000), lambda: now)
    >>> unreadable.note("stats/0", SourceError("offset 7 is gone"), "task stats/0")
    >>> now = 9.0
    >>> unreadable.note("stats/0", SourceError("offset 8 is gone"), "task stats/0")
    >>> unreadable.counts("stats/0"), unreadable.counting()
    (False, [])
    >>> now = 10.0
    >>> unreadable.counts("stats/0"), [(of, error.what) for of, error in unreadable.counting()]
    (True, [('stats/0', 'offset 7 is gone')])
    >>> unreadable.forget("stats/0")
    >>> unreadable.counting()
    []
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._clock = settings.session_timeout_ms / 1000, clock
        self._noted: dict[OfT, tuple[SourceError, float]] = {}
        """The first error of each, and since when."""

    def note(self, of: OfT, error: SourceError, where: str) -> None:
        """An input of `of` cannot be read. `where` is for the log."""
        if of not in self._noted:
            self._noted[of] = error, self._clock()
            logger.warning("%s: %s; the task stops in %.0f s, unless another worker has it by then",
                           where, error.what, self._patience)  # fmt: skip

    def forget(self, of: OfT) -> None:
        """It has no error, or is no longer here."""
        self._noted.pop(of, None)

    def counts(self, of: OfT) -> bool:
        """Whether its error counts by now."""
        return of in self._noted and self._clock() - self._noted[of][1] >= self._patience

    def counting(self) -> list[tuple[OfT, SourceError]]:
        """Those whose errors count by now."""
        return [(of, error) for of, (error, _) in self._noted.items() if self.counts(of)]
