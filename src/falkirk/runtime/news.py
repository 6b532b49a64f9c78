"""What becomes of the worker processes, as those who show it are told."""

from __future__ import annotations

from dataclasses import dataclass

from falkirk.runtime.protocol import EpochReport, Report


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


@dataclass(frozen=True, slots=True)
class Line:
    """Something that a process wrote for people."""

    text: str


News = Report | EpochReport | Started | Ended | Line
