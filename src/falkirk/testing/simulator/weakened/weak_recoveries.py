"""Parallel recoveries of tasks that lack a clause: see `weaken`."""

from __future__ import annotations

from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.testing.simulator.plan import Expel, Move, Plan, Takes
from falkirk.testing.simulator.weakened.weakening import ONE, Patch, Schedule, Weakening


def departing_while_recoveries_end(self: WorkerCore) -> bool:
    """The group is not answered before the recoveries of what it takes away have ended."""
    return bool(self._departure is not None or self._given_up)


def nothing_is_ending(_: WorkerCore) -> set[int]:
    """No task that was given up is still being recovered."""
    return set()


RECOVERIES: dict[str, Weakening] = {
    "open-twice": Weakening(
        "a task that comes back is taken over while the recovery that was given up still has its store",
        (Patch(WorkerCore, "ending", nothing_is_ending),),
        Schedule(ONE, Plan((Expel(worker=0, at=2, on="recovery of 0"),)), workers=1),
    ),
    "wait-for-recoveries": Weakening(
        "the group waits until the recoveries of the tasks that it takes away have ended",
        (Patch(WorkerCore, "departing", property(departing_while_recoveries_end)),),
        Schedule(
            ONE,
            Plan(
                (
                    Takes(worker=0, on="recovery of 0: reads", turns=800),
                    Move(worker=0, on="recovery of 0: reads", task=0, to=1),
                )
            ),
        ),
    ),
}
