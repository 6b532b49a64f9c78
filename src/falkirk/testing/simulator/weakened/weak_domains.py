"""A worker's commit domains, under protocols that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Iterable

from falkirk.checkpoint.tasks import Owned
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.testing.simulator.flows.joins import Joins
from falkirk.testing.simulator.plan import Expel, Move, Plan
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.weakened.weakening import Patch, Schedule, Weakening
from falkirk.testing.simulator.worker import Worker

_drop = WorkerCore._drop


async def answered_after_the_first(self: Worker, tasks: Iterable[int], *, clean: bool) -> None:
    """The group is answered when the first domain has departed."""
    tasks = list(tasks)
    for domain in self.domains:
        domain.core.revoke([t for t in tasks if self._domain(t) is domain], clean=clean)
    while self.domains[0].core.departing:
        if not await self.domains[0].depart():
            await reach(Point("waits for its committer", waits=True))


def drop_and_rewind(self: WorkerCore, owned: Owned) -> None:
    """What was to be done with the task is done all the same."""
    before = self._ready
    _drop(self, owned)
    self._ready = before + [i for i in self._ready if i not in before]


DOMAINS: dict[str, Weakening] = {
    "wait-for-one-domain": Weakening(
        "the group is answered when the worker's first commit domain has departed, and its others have not",
        (Patch(Worker, "let_go", answered_after_the_first),),
        Schedule(Toy(inputs=4, domains=2), Plan((Move(worker=0, at=48, task=1, to=1),))),
    ),
    "rewind-dropped": Weakening(
        "a task that is lost while its first step is aborted stages that step again, and the worker commits it",
        (Patch(WorkerCore, "_drop", drop_and_rewind),),
        Schedule(Joins(inputs=4), Plan((Expel(worker=0, at=16),))),
    ),
}
