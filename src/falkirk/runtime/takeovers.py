"""Tasks on their way to a worker: clause 5 of the protocol, in the committer's threads, looked at from the worker's own.

group ──assigned──▶ naming ──▶ named ──▶ recovering, part by part ──▶ taken: the worker runs it
                       └──────────────────────┴── given up: another has it, or will
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.takeover import abandon
from falkirk.checkpoint.tasks import Owned, Phase
from falkirk.connectors.kafka.config import logger
from falkirk.runtime.app import App
from falkirk.runtime.committer import Committer
from falkirk.runtime.replay import Replays
from falkirk.runtime.settings import Settings
from falkirk.runtime.stores import TaskStores
from falkirk.runtime.traces import Traces
from falkirk.stream.circuit import Circuit

Circuits = dict[TaskId, Circuit]


class TakeOvers:
    """Of one worker. Tasks are called by their partitions of the steps topic."""

    def __init__(self, app: App, settings: Settings, committer: Committer, stores: TaskStores, traces: Traces) -> None:
        self._app, self._settings, self._traces = app, settings, traces
        self._committer, self._stores = committer, stores
        self._bound = {b.task.id: b for b in app.tasks}
        self.under_way: dict[int, Owned] = {}
        self._naming: list[tuple[list[Owned], Future[bool]]] = []
        self._recoveries: list[tuple[list[Owned], Circuits, Future[None]]] = []

    def begin(self, partitions: Sequence[int]) -> None:
        """Take these tasks over."""
        tasks = [self._traces.owned(self._app.tasks[p].task) for p in partitions]
        self.under_way |= dict(zip(partitions, tasks, strict=True))
        for owned in tasks:
            self._stores.prefetch(owned.task.id)
        self._naming.append((tasks, self._committer.name(tasks)))
        self._traces.taking_over(*self._naming[-1])

    def recover_named(self) -> bool:
        """Let the recovery of tasks that are named begin; say whether there were any. Raises what naming raised."""
        named = [n for n in self._naming if n[1].done()]
        for naming in named:
            self._naming.remove(naming)
            self._recover(*naming)
        return bool(named)

    def _recover(self, tasks: list[Owned], named: Future[bool]) -> None:
        logger.debug("named %s", [str(owned.task.id) for owned in tasks])
        tasks = [owned for owned in tasks if self._is_wanted(owned)]
        if not named.result():
            for owned in tasks:
                del self.under_way[owned.task.steps.partition]
            return
        circuits = {o.task.id: self._circuit(o.task.id) for o in tasks}
        replays = Replays(
            self._settings.cluster(),
            self._bound,
            circuits,
            {o.task.id: o for o in tasks},
            corrects=self._settings.on_divergence == "correct",
        )
        for part, recovered in self._committer.recover(tasks, self._stores, replays):
            self._recoveries.append((part, circuits, recovered))
            self._traces.taking_over(part, recovered)

    def taken(self) -> Iterator[tuple[Owned, Circuit]]:
        """The tasks that are recovered by now, each once. Raises what a recovery raised."""
        for recovery in [r for r in self._recoveries if r[2].done()]:
            self._recoveries.remove(recovery)
            tasks, circuits, recovered = recovery
            recovered.result()
            logger.debug("recovered %s", [str(owned.task.id) for owned in tasks])
            for owned in filter(self._is_wanted, tasks):
                del self.under_way[owned.task.steps.partition]
                if owned.phase is Phase.RUNNING:
                    yield owned, circuits[owned.task.id]

    def give_up(self, partitions: Sequence[int]) -> None:
        """End those that are under way. An ownership that outlived its assignment could run beside its successor's."""
        gone = [self.under_way.pop(p) for p in partitions if p in self.under_way]
        for owned in gone:
            owned.revoked = True
        working: list[tuple[list[Owned], Future[bool] | Future[None]]] = [*self._naming]
        working += [(tasks, future) for tasks, _, future in self._recoveries]
        for tasks, future in working:
            if any(owned.task.steps.partition in partitions for owned in tasks):
                future.exception()  # waits for its end
        for owned in gone:
            self._stores.discard(owned.task.id)
            if owned.phase is not Phase.IDLE:
                abandon(owned)

    def _is_wanted(self, owned: Owned) -> bool:
        return self.under_way.get(owned.task.steps.partition) is owned

    def _circuit(self, task: TaskId) -> Circuit:
        return self._bound[task].stage.circuit(task.partition, self._app.layout)
