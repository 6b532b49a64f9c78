"""News of the worker processes, for those who show it."""

from __future__ import annotations

from dataclasses import dataclass

from falkirk.runtime.messages.protocol import EpochReport, Report


@dataclass(frozen=True, slots=True)
class Started:
    """A process became worker `slot`."""

    slot: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A process ended, in words; slot None: it was a spare."""

    slot: int | None
    pid: int
    how: str
    then: str = "a spare takes its place"
    """The reaction to it."""
    ago: float = 0.0
    """Seconds since then, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that a process wrote for people."""

    text: str


WorkerEvent = Report | EpochReport | Started | Ended | Line
