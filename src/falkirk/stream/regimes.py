"""Regimes as a user writes them: what is made durable with each step, and what rolls state forward after a crash."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from falkirk.errors import DefinitionError
from falkirk.stream.blame import user_line
from falkirk.stream.plan import RegimePlan

Duration = str | timedelta
"""`"100ms"`, `"2.5s"`, `"10m"`, `"1h"`, or a timedelta."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: Duration, what: str) -> timedelta:
    """A positive duration. Raises DefinitionError, naming `what`.

    >>> duration("100ms", "step")
    datetime.timedelta(microseconds=100000)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)", value.strip()) if isinstance(value, str) else None
    time = value if isinstance(value, timedelta) else None
    if found:
        time = timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    if time is None or time <= timedelta(0):
        raise DefinitionError(
            f"{what}={value!r} is no duration",
            where=user_line(),
            hint='write "100ms", "10s", "5m", "1h", or a timedelta',
        )
    return time


@dataclass(frozen=True)
class Checkpoint:
    """What both checkpoint regimes share."""

    kind: ClassVar[Literal["eager", "lazy"]]
    step: Duration = "100ms"
    """The longest that a step stays open: it bounds latency."""
    every: Duration = "10s"
    """How often state becomes a version: it bounds what is rolled forward after a crash."""
    max_rows: int = 200_000
    """A step closes when it has read this many records."""
    max_bytes: int = 64 << 20
    """A step closes when it has read this many bytes."""

    def __post_init__(self) -> None:
        self.plan()
        if self.max_rows < 1 or self.max_bytes < 1:
            raise DefinitionError(
                f"max_rows={self.max_rows!r} and max_bytes={self.max_bytes!r}: a step reads at least 1 of each",
                where=user_line(),
            )

    def plan(self) -> RegimePlan:
        """The regime, resolved."""
        return RegimePlan(
            self.kind, duration(self.step, "step"), duration(self.every, "every"), self.max_rows, self.max_bytes
        )


@dataclass(frozen=True)
class EagerCheckpoint(Checkpoint):
    """Every step logs its state changes: recovery applies the log's tail and runs nothing again.

    >>> EagerCheckpoint(step="50ms").plan().kind
    'eager'
    """

    kind: ClassVar[Literal["eager", "lazy"]] = "eager"


@dataclass(frozen=True)
class LazyCheckpoint(Checkpoint):
    """Steps log no state: recovery opens the newest version and runs the recorded divisions again. Functions must be
    deterministic; each replayed step is compared with what it published.

    >>> LazyCheckpoint(every="10s").plan().every
    datetime.timedelta(seconds=10)
    """

    kind: ClassVar[Literal["eager", "lazy"]] = "lazy"


Regime = EagerCheckpoint | LazyCheckpoint


def checked_regime(regime: object, where: str) -> Regime:
    """The regime, if it is one. Raises DefinitionError: a name or a class would be found out only when it runs."""
    if isinstance(regime, EagerCheckpoint | LazyCheckpoint):
        return regime
    raise DefinitionError(
        f"{regime!r} is no regime", where=where, hint="use fk.EagerCheckpoint() or fk.LazyCheckpoint()"
    )
