"""Parallel recoveries of tasks that lack a clause: see `weaken`."""

from __future__ import annotations

from falkirk.testing.simulator.plan import Expel, Plan, Turn
from falkirk.testing.simulator.weakening import ONE, Patch, Schedule, Weakening
from falkirk.testing.simulator.worker import Worker


def nothing_is_ending(_: Worker) -> set[int]:
    """No task that was given up is still being recovered."""
    return set()


RECOVERIES: dict[str, Weakening] = {
    "open-twice": Weakening(
        "a task that comes back is taken over while the recovery that was given up still has its store",
        (Patch(Worker, "ending", nothing_is_ending),),
        Schedule(
            ONE,
            Plan((Expel(worker=0, on="recovery of 0"), Turn(at=14, choice=1), Turn(at=17, choice=1))),
            workers=1,
        ),
    ),
}
