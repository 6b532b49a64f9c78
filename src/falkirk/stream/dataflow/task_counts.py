"""What tasks tell people: calls of services, hot keys, watermarks. Supervisors read it too, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class CallCounts(NamedTuple):
    """Calls of users' async functions.

    >>> CallCounts(calls=2, seconds=0.5) + CallCounts(calls=1, retries=1)
    CallCounts(calls=3, retries=1, failures=0, seconds=0.5)
    """

    calls: int = 0
    """Each attempt is one."""
    retries: int = 0
    failures: int = 0
    """Rows that have no answer after the last attempt."""
    seconds: float = 0.0
    """The time of all calls together."""

    def __add__(self, other: Any) -> CallCounts:
        return CallCounts(*(a + b for a, b in zip(self, other, strict=True)))


def summed(some: Mapping[str, CallCounts], more: Mapping[str, CallCounts]) -> dict[str, CallCounts]:
    """Counts by operator, of both.

    >>> summed({"score": CallCounts(2)}, {"score": CallCounts(1), "place": CallCounts(1)})["score"].calls
    3
    """
    return {name: some.get(name, CallCounts()) + more.get(name, CallCounts()) for name in {**some, **more}}


class SourceWatermark(NamedTuple):
    """How far a source is in event time, in one task, after its last step."""

    at: int | None
    """Milliseconds since 1970. None: no time is complete yet."""
    held_by: str
    """The partition that holds it back: the one with the least time. "" if all partitions are idle."""


class HotKey(NamedTuple):
    """What was found at the last look."""

    key: str
    """The columns of the key and their values."""
    share: float
    """Of the task's rows: 0 to 1."""
