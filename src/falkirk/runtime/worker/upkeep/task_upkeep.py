"""The upkeep of one task: what has happened since its last flush and its last version, and which of them is due."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from falkirk.cadence import Cadence
from falkirk.checkpoint.planning import LogGrowth
from falkirk.checkpoint.regimes.floors import Floors
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.state.store import Progress

FLUSH_CHANGES = 50_000
FLUSH_SECONDS = 10.0
AGAIN = 1.0
"""Seconds until a version that a person waits for is tried again."""

SLOW = 60.0
"""Seconds until a slow copy is reported, and then between reports."""


@dataclass(slots=True)
class TaskUpkeep:
    """The upkeep of one task."""

    steps: Floors
    """Step records below this may go."""
    edges: Floors
    """Where the edges were at the last versions, at the latest."""
    changes: int = 0
    """Changes of the state since the last flush."""
    flushed: float = field(default_factory=time.monotonic)
    """When that was begun; a version is one, too."""
    versioned: float = field(default_factory=time.monotonic)
    """Since when the next version is awaited: the last one was begun then, or earlier; −∞: it is due at once."""
    stepped: bool = False
    """Whether a step was committed since the last version."""
    making: Future[None] | None = None
    """A flush or a version that is being written to disk."""
    copying: Future[None] | None = None
    """Of the newest version."""
    given_up: threading.Event = field(default_factory=threading.Event)
    """The task has left: a copy in progress is useless."""
    swept: float = -math.inf
    """When copied versions that nobody needs were last deleted."""
    slow_copies: Cadence = field(default_factory=lambda: Cadence(SLOW, SLOW))
    tried: str = ""
    """The last `falkirk checkpoint` for which a version was begun."""
    answered: str = ""
    """The last for which one is in the checkpoint store; without state: the last that was heard."""
    copies: tuple[Progress, ...] = ()
    """The last two versions in the store, oldest first, once one was copied here."""
    growth: LogGrowth = field(default_factory=lambda: LogGrowth(time.monotonic()))
    looked: float = -math.inf
    """When it was last seen whether its objective needs a version."""

    @classmethod
    def begin(cls, keep: float) -> TaskUpkeep:
        """Of a task that has come. `keep`: seconds for which unneeded step records and edges stay."""
        # The older of the last two edges, so that a reader of one has the time between two versions.
        return cls(Floors(keep), Floors(keep, behind=1))

    def committed(self, step: ClosedStep) -> None:
        """The task has committed a step."""
        self.changes += len(step.overlay.changes)
        self.stepped = True
        self.growth.grew(step.owned.task.recovery.grows(step))
        if step.record.corrects >= 0:  # until there is a version behind it, each recovery runs its steps again
            self.versioned = -math.inf

    def asked(self, checkpoint: str, now: float) -> bool:
        """Whether a `falkirk checkpoint` waits for a version: not again at once, if one was tried for it."""
        wait = AGAIN if self.tried == checkpoint else 0.0
        return checkpoint not in ("", self.answered) and now - self.versioned >= wait

    def flush_due(self, now: float) -> bool:
        """Whether a flush is due."""
        return self.changes >= FLUSH_CHANGES or (self.changes > 0 and now - self.flushed >= FLUSH_SECONDS)

    def flush_begun(self, now: float) -> None:
        """A flush of all until now is made."""
        self.flushed, self.changes = now, 0

    def version_begun(self, now: float, checkpoint: str) -> None:
        """A version of all until now is made."""
        self.flush_begun(now)
        self.tried, self.versioned, self.stepped, self.copying = checkpoint, now, False, None
        self.growth.version_begun(now)
