"""When the next version is due, so that another host can recover the task within a given time.

    max(name, fetch(bytes)) + open + replay(behind + pace · lead)  ≤  objective

`behind` is what the log has since the newest version, and `lead` is how long the next one takes until it is in the checkpoint
store: until then a recovery begins with the one before. So a version is begun when the left side reaches the objective.

No placement meets an objective that is less than `least`, which versions made one after another need. Then they are placed so
that the replay alone takes no longer than the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from falkirk.checkpoint.planning.rates import NOTHING, Cost, Rates, Replay, Seconds

PAUSE = 1.0
"""Seconds between two versions at least: each costs a flush of the store and some requests."""

LONGEST = 60.0
"""Seconds between two versions at most: topics are trimmed below versions."""

FIRM = 1.0
"""Seconds until a pace is taken seriously: it may begin with a burst."""


class Pace(NamedTuple):
    """How fast the log grows: parts and records a second."""

    parts: float = 0.0
    records: float = 0.0

    @classmethod
    def of(cls, behind: Replay, seconds: float) -> Pace:
        """The pace that has made so much.

        >>> Pace.of(Replay(10, 5_000), 5.0)
        Pace(parts=2.0, records=1000.0)
        """
        return cls(behind.parts / max(seconds, FIRM), behind.records / max(seconds, FIRM))

    def after(self, behind: Replay, seconds: float) -> Replay:
        """What there will be to replay so many seconds later."""
        return Replay(behind.parts + round(self.parts * seconds), behind.records + round(self.records * seconds))


@dataclass(slots=True)
class LogGrowth:
    """How much of its log a recovery of a task would replay, and how fast that grows.

    >>> growth = LogGrowth(began=0.0)
    >>> growth.grew(Replay(10, 100))
    >>> growth.version_begun(10.0)
    >>> growth.grew(Replay(10, 100))
    >>> growth.behind, growth.pace(20.0)
    (Replay(parts=10, records=100), Pace(parts=1.0, records=10.0))
    >>> growth.not_copied()
    >>> growth.behind, growth.pace(20.0)
    (Replay(parts=20, records=200), Pace(parts=1.0, records=10.0))
    """

    began: float
    """When the newest version was begun, or the task came."""
    before: float = field(init=False)
    """When the one before that was, likewise."""
    behind: Replay = NOTHING
    """What the log has since the newest version."""
    uncopied: Replay = NOTHING
    """What it had between these two versions: a recovery replays it, too, until the newest is copied."""
    lead: float | None = None
    """Seconds that the last copied version took until it was copied; None: none has been here."""

    def __post_init__(self) -> None:
        self.before = self.began

    def grew(self, replay: Replay) -> None:
        """A step has committed."""
        self.behind = self.behind.plus(replay)

    def version_begun(self, now: float) -> None:
        """A version of all until now is made."""
        self.before, self.began = self.began, now
        self.uncopied, self.behind = self.behind, NOTHING

    def not_copied(self) -> None:
        """That version will not be copied."""
        self.behind, self.uncopied = self.behind.plus(self.uncopied), NOTHING

    def pace(self, now: float) -> Pace:
        """How fast it has grown since the version before the newest."""
        return Pace.of(self.behind.plus(self.uncopied), now - self.before)


@dataclass(frozen=True, slots=True)
class Objective:
    """How long a recovery of a task may take.

    >>> objective = Objective(2.0, Cost(0.01, 0.0))              # each step that runs again takes 10 ms
    >>> [objective.due(Rates(), Replay(steps), Pace(10.0), 1.0, 0, since=5.0) for steps in (100, 130, 140)]
    [False, True, True]
    """

    seconds: float
    presumed: Cost
    """What the task's regime presumes of a replay, until one is measured."""

    def expect(self, rates: Rates, behind: Replay, pace: Pace, lead: float, size: int) -> Seconds:
        """What a recovery takes if a version that is begun now is needed just before it is there.

        `lead`: seconds that a version takes until it is copied. `size`: its bytes.
        """
        return rates.expect(size, pace.after(behind, lead), self.presumed)

    def due(self, rates: Rates, behind: Replay, pace: Pace, lead: float, size: int, since: float) -> bool:
        """Whether the next version is due, `since` seconds after the last one was begun."""
        if since < PAUSE:
            return False
        if since >= LONGEST:
            return True
        needs = self.expect(rates, behind, pace, lead, size)
        if needs.total < self.seconds:
            return False
        return needs.replay >= self.seconds or self.least(rates, pace, lead, size) <= self.seconds

    def least(self, rates: Rates, pace: Pace, lead: float, size: int) -> float:
        """The least objective that can be met: what a recovery takes, with versions made one after another, just before the
        next one is there.

        >>> round(Objective(0.5, Cost(0.01, 0.0)).least(Rates(), Pace(10.0), 1.0, 0), 2)
        0.8
        """
        return self.expect(rates, Replay(), pace, lead + max(lead, PAUSE), size).total

    def unmet(self, stage: str, rates: Rates, pace: Pace, lead: float, size: int) -> str:
        """That it cannot be met, and why.

        >>> said = Objective(0.5, Cost(0.01, 0.0)).unmet("stats", Rates(), Pace(10.0), 1.0, 0)
        >>> for part in said.split(": ")[1].split(", "): print(part)
        it needs 0.8 s. These are naming 0.3 s (presumed)
        opening 0.3 s (presumed)
        fetching 0 bytes 0.0 s
        replaying 2.0 s of work 0.2 s (presumed)
        """
        window = lead + max(lead, PAUSE)
        replay = pace.after(Replay(), window)
        needs, presumed = rates.expect(size, replay, self.presumed), rates.unmeasured(size, replay)
        words = {
            "name": "naming",
            "open": "opening",
            "fetch": f"fetching {size:,} bytes",
            "replay": f"replaying {window:.1f} s of work",
        }
        parts = [
            f"{said} {getattr(needs, part):.1f} s{' (presumed)' if part in presumed else ''}"
            for part, said in words.items()
        ]
        return (
            f"stage {stage} cannot recover within {self.seconds:g} s: it needs {needs.total:.1f} s. These are "
            f"{', '.join(parts)}"
        )


def possible(least: float) -> str:
    """An objective that can be met if this is the least, with some room.

    >>> possible(0.8), possible(18.3)
    ('every=fk.RecoverWithin("1s")', 'every=fk.RecoverWithin("22s")')
    """
    return f'every=fk.RecoverWithin("{math.ceil(1.2 * least)}s")'
