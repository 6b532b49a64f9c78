"""Regimes as a user writes them. A checkpoint regime decides what each step makes durable, and how state is rolled forward
after a crash. The batch regime has epochs and no steps.

What a regime means is its `recovery`. No other code asks which regime it is, so another regime is a subclass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal

from falkirk.blame import user_line
from falkirk.checkpoint import regimes
from falkirk.checkpoint.planning.placement import LONGEST
from falkirk.checkpoint.regimes import Recovery
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream.definition.regime_plan import BatchPlan, RegimePlan

SELECTIVE_EVERY = timedelta(seconds=1)
"""Between two selective checkpoints: a few bytes in a step record, for each partition that is read."""


class Regime:
    """What every regime answers."""

    kind: ClassVar[str]
    """Its name, for people."""
    recovery: ClassVar[type[Recovery]]
    """What it means: what survives a crash, and how."""

    def plan(self) -> Any:
        """The regime, resolved: a BatchPlan or a RegimePlan."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecoverWithin:
    """Versions as often as needed, in the place of an interval: `every=fk.RecoverWithin("2s")`.

    A version is due when a recovery on another host would take this `time`: to name the task, fetch its version and replay
    what is behind it, at the rates of the recoveries so far. The time until the failure is noticed is not included. If no
    version would help, the log says which time can be met. Raises DefinitionError for what is not a duration.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example", regime=fk.LazyCheckpoint(step="100ms", every=fk.RecoverWithin("2s")))
    """

    time: DurationLike

    def __post_init__(self) -> None:
        self.seconds()

    def seconds(self) -> timedelta:
        """The time as a timedelta.

        >>> RecoverWithin("1.5s").seconds()
        datetime.timedelta(seconds=1, microseconds=500000)
        """
        return _duration(self.time, "RecoverWithin")


@dataclass(frozen=True)
class Checkpoint(Regime):
    """The base of both checkpoint regimes."""

    step: DurationLike = "100ms"
    """The longest that a step stays open: it bounds latency."""
    every: DurationLike | RecoverWithin = "10s"
    """How often state becomes a version. This bounds the work of rolling forward after a crash."""
    max_rows: int = 200_000
    """A step closes when it has read this many records."""
    max_bytes: int = 64 << 20
    """A step closes when it has read this many bytes."""

    def __post_init__(self) -> None:
        self.plan()
        for name, value in (("max_rows", self.max_rows), ("max_bytes", self.max_bytes)):
            if not isinstance(value, int):
                raise DefinitionError(
                    f"{name}={value!r} is not a whole number", where=user_line(), hint=f"{name}=10_000"
                )
        if self.max_rows < 1 or self.max_bytes < 1:
            raise DefinitionError(
                f"max_rows={self.max_rows!r} and max_bytes={self.max_bytes!r}: a step reads at least 1 of each",
                where=user_line(),
            )

    def plan(self) -> RegimePlan:
        """The regime with its durations as timedeltas. Raises DefinitionError for a duration that cannot be read.

        >>> EagerCheckpoint(every="1m").plan().every
        datetime.timedelta(seconds=60)
        """
        within = self.every.seconds() if isinstance(self.every, RecoverWithin) else None
        longest = (
            timedelta(seconds=LONGEST) if isinstance(self.every, RecoverWithin) else _duration(self.every, "every")
        )
        return RegimePlan(
            self.kind, _duration(self.step, "step"), longest, self.max_rows, self.max_bytes, self.recovery, within
        )  # fmt: skip


@dataclass(frozen=True)
class EagerCheckpoint(Checkpoint):
    """Each step logs its state changes. Recovery applies the end of the log and runs no step again.

    `step` is the longest time that a step stays open. It bounds latency. `every` is how often state becomes a version.
    It bounds the number of changes that another host must apply. It is a duration, or fk.RecoverWithin. A step also closes
    at `max_rows` records or `max_bytes` bytes. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example", regime=fk.EagerCheckpoint(step="50ms"))
    """

    kind: ClassVar[str] = "eager"
    recovery: ClassVar[type[Recovery]] = regimes.Eager


@dataclass(frozen=True)
class LazyCheckpoint(Checkpoint):
    """Steps log no state. Recovery opens the newest version and runs the recorded steps since then again.

    Functions must be deterministic: Falkirk compares each step that runs again with its published output. Parameters
    are those of `fk.EagerCheckpoint`. Raises DefinitionError.

    With `selective=True`, recovery reads only rows again whose time is not complete, if that is less than what a version
    needs. All state must then go with time: groups in windows of event time, interval joins. Steps that run again before the
    watermark of the crash is reached are not compared with their output.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example", regime=fk.LazyCheckpoint(step="100ms", every="10s"))
    """

    kind: ClassVar[str] = "lazy"
    recovery: ClassVar[type[Recovery]] = regimes.Lazy
    selective: bool = False

    def plan(self) -> RegimePlan:
        """As of any regime with steps, and how often a step has a selective checkpoint.

        >>> LazyCheckpoint(selective=True).plan().selective
        datetime.timedelta(seconds=1)
        """
        return replace(super().plan(), selective=SELECTIVE_EVERY if self.selective else None)


@dataclass(frozen=True)
class Batch(Regime):
    """No steps: Spark computes results from the sources, epoch by epoch, and each epoch is published once.

    `every` opens an epoch after this time ("1h") or this number of new records (1_000_000). With None, epochs open only
    on request.
    `history` is the part of the topics that an epoch reads. With "whole", its results replace the results of the epoch
    before. With "new", an epoch reads only new records and adds its results. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example", regime=fk.Batch(every="1h"))
    """

    kind: ClassVar[str] = "batch"
    recovery: ClassVar[type[Recovery]] = regimes.Batch
    every: DurationLike | int | None = None
    history: Literal["whole", "new"] = "whole"

    def __post_init__(self) -> None:
        self.plan()

    def plan(self) -> BatchPlan:
        """The regime with its duration as a timedelta. Raises DefinitionError for one that cannot be read.

        >>> Batch(every="1h").plan()
        BatchPlan(every=datetime.timedelta(seconds=3600), history='whole')
        """
        if self.history not in ("whole", "new"):
            raise DefinitionError(
                f"history={self.history!r} is not known", where=user_line(), hint='use history="whole" or history="new"'
            )
        if self.every is None or (type(self.every) is int and self.every > 0):
            return BatchPlan(self.every, self.history)
        if isinstance(self.every, str | timedelta):
            return BatchPlan(_duration(self.every, "every"), self.history)
        raise DefinitionError(
            f"every={self.every!r} is neither a duration nor a number of records",
            where=user_line(),
            hint='write "1h", a timedelta, 1_000_000 for as many new records, or None for epochs on demand',
        )


def _duration(value: DurationLike, name: str) -> timedelta:
    return duration(value, name, where=user_line(), error=DefinitionError)


def checked_regime(regime: object, where: str) -> Regime:
    """The regime. Raises DefinitionError for anything else, because a name or a class would fail only when it runs."""
    if isinstance(regime, Regime):
        return regime
    raise DefinitionError(
        f"{regime!r} is not a regime", where=where, hint="use fk.EagerCheckpoint(), fk.LazyCheckpoint() or fk.Batch()"
    )
