"""Regimes, resolved: every default has a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal

from falkirk.checkpoint.regimes import Batch, Recovery


@dataclass(frozen=True, slots=True)
class RegimePlan:
    """A regime of steps, resolved."""

    kind: str
    """Its name, for people."""
    step: timedelta
    """The longest that a step stays open."""
    every: timedelta
    """How often a version is made."""
    max_rows: int
    max_bytes: int
    recovery: type[Recovery]
    """What it means."""
    within: timedelta | None = None
    """Versions are made so that another host recovers a task within this time. `every` is then the longest between two."""
    selective: timedelta | None = None
    """How often a step record has a selective checkpoint; None: never."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch regime, resolved."""

    kind: ClassVar[str] = "batch"
    recovery: ClassVar[type[Recovery]] = Batch
    every: timedelta | int | None
    """An epoch opens after this time, or this number of new records; None: on demand."""
    history: Literal["whole", "new"]
    """What an epoch reads: from the sources' start, or from the last epoch's end."""
