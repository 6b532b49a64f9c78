"""Take-overs that note when each of their parts begins."""

from __future__ import annotations

import time

from falkirk.checkpoint.planning import Replay, Seconds
from falkirk.checkpoint.tasks import Owned, Phase, Task

REPLAYS = "replays"
"""When the store is open, the step records are read, and the log begins to be replayed."""


class Timed(Owned):
    """An ownership that knows when it entered each phase, by `time.monotonic()`."""

    __slots__ = ("moments",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.moments: dict[str, float] = {}

    def enter(self, phase: Phase) -> None:
        """As an ownership does, and note the time. A take-over that begins again is measured from there."""
        super().enter(phase)
        if phase is Phase.NAMING:
            self.moments.clear()
        self.moments[phase.value] = time.monotonic()

    def rolls(self, replay: Replay) -> None:
        """As an ownership does, and note the time."""
        super().rolls(replay)
        self.moments[REPLAYS] = time.monotonic()

    def took(self, first: float, fetched: tuple[float, float] | None) -> Seconds | None:
        """How long each part has taken, without the wait for its turn; None if it does not run.

        `first`: when the first of the tasks that were named together began to roll. `fetched`: when a version began to be
        fetched, and when it was there.
        """
        at = self.moments
        if not {p.value for p in (Phase.NAMING, Phase.ROLLING, Phase.ROLLED, Phase.RUNNING)} <= at.keys():
            return None
        began, ended = fetched or (0.0, 0.0)
        opens = max(at[Phase.ROLLING.value], min(ended, at[REPLAYS]))
        return Seconds(
            max(0.0, first - at[Phase.NAMING.value]),
            at[REPLAYS] - opens + at[Phase.RUNNING.value] - at[Phase.ROLLED.value],
            ended - began,
            at[Phase.ROLLED.value] - at[REPLAYS],
        )
