"""Tasks on their way to a worker: clause 5 of the protocol, in the committer's threads, seen from the worker's thread.

group ──assigned──▶ naming ──▶ named ──▶ recovering ──▶ taken: the worker runs it
                       └────────────────────┴── given up: another worker has it, or will

Until a take-over has ended, its thread has the task's store, and closes it; after that the store is the worker's. A task that
is given up and comes back is taken over when the earlier take-over has ended: a store is open only once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.takeover import abandon
from falkirk.checkpoint.tasks import Owned, Phase
from falkirk.connectors.kafka.config import logger
from falkirk.runtime.app.app import App
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.replay import KafkaReplayer
from falkirk.runtime.worker.stores import TaskStores
from falkirk.stream.dataflow.circuit import Circuit

UNUSUAL_S = 5.0
"""Seconds after which a wait is reported."""


class Recovery(NamedTuple):
    """A task that is being recovered."""

    owned: Owned
    circuit: Circuit
    end: Future[None]


class TakeOvers:
    """Those of one worker. Tasks are identified by their partitions of the steps topic."""

    def __init__(self, app: App, settings: Settings, committer: Committer, stores: TaskStores, traces: Traces) -> None:
        self._app, self._settings, self._traces = app, settings, traces
        self._committer, self._stores = committer, stores
        self._bound = {b.task.id: b for b in app.tasks}
        self.under_way: dict[int, Owned] = {}
        """Those that are still wanted."""
        self._naming: list[tuple[list[Owned], Future[bool]]] = []
        self._recoveries: list[Recovery] = []
        self._blocked: dict[int, float] = {}
        """Tasks that are wanted again before an earlier take-over of theirs has ended, and since when."""

    def begin(self, partitions: Sequence[int]) -> None:
        """Take these tasks over, except those that were given up and have not ended yet: the worker asks again."""
        ending = {owned.task.steps.partition for tasks, _ in self._naming for owned in tasks}
        ending |= {recovery.owned.task.steps.partition for recovery in self._recoveries}
        now = time.monotonic()
        self._blocked = {p: self._blocked.get(p, now) for p in partitions if p in ending}
        partitions = [p for p in partitions if p not in ending]
        if not partitions:
            return
        tasks = [self._traces.owned(self._app.tasks[p].task) for p in partitions]
        self.under_way |= dict(zip(partitions, tasks, strict=True))
        for owned in tasks:
            self._stores.prefetch(owned.task.id, owned.go_on)
        self._naming.append((tasks, self._committer.name(tasks)))
        self._traces.taking_over(*self._naming[-1])

    def recover_named(self) -> bool:
        """Let the recovery of named tasks begin; returns whether there were any. Raises naming's exception."""
        named = [n for n in self._naming if n[1].done()]
        for naming in named:
            self._naming.remove(naming)
            self._recover(*naming)
        return bool(named)

    def _recover(self, tasks: list[Owned], named: Future[bool]) -> None:
        logger.debug("%s %s", "named" if named.result() else "not named", [str(owned.task.id) for owned in tasks])
        tasks = sorted(tasks, key=lambda owned: owned.task.recovery.order)
        circuits = [self._circuit(owned.task.id) for owned in tasks]
        replays = {
            owned.task.id: KafkaReplayer(
                self._settings.cluster(),
                self._bound[owned.task.id],
                circuit,
                owned,
                corrects=self._settings.on_divergence == "correct",
            )
            for owned, circuit in zip(tasks, circuits, strict=True)
        }
        ends = self._committer.recover(tasks, self._stores, replays)
        for recovery in map(Recovery, tasks, circuits, ends):
            self._recoveries.append(recovery)
            self._traces.taking_over([recovery.owned], recovery.end)

    def taken(self) -> Iterator[tuple[Owned, Circuit]]:
        """The tasks that have recovered, each once. Raises the exceptions of recoveries."""
        for recovery in [r for r in self._recoveries if r.end.done()]:
            self._recoveries.remove(recovery)
            owned, circuit, end = recovery
            task = owned.task.id
            if not self._is_wanted(owned):
                # Its next owner finds the problem itself.
                if (error := end.exception()) is not None:
                    logger.warning("task %s was abandoned, and its recovery had failed: %s", task, error)
                if owned.phase is Phase.RUNNING:  # taken away just as it was admitted
                    abandon(owned)
                continue
            end.result()
            del self.under_way[owned.task.steps.partition]
            if owned.phase is Phase.RUNNING:
                logger.debug("recovered %s", task)
                yield owned, circuit

    def give_up(self, partitions: Sequence[int]) -> None:
        """End those in progress, without waiting: each ends by itself, and none that was given up runs."""
        for partition in partitions:
            if (owned := self.under_way.pop(partition, None)) is not None:
                owned.revoked = True

    def waits(self) -> str:
        """Which tasks wait for the end of an earlier take-over, and how long, in words; "" if none waits unusually long."""
        now = time.monotonic()
        slow = {p: now - since for p, since in self._blocked.items() if now - since > UNUSUAL_S}
        if not slow:
            return ""
        tasks = ", ".join(str(self._app.tasks[p].task.id) for p in sorted(slow))
        return f"an earlier take-over of {tasks} to end, for {max(slow.values()):.0f} s"

    def _is_wanted(self, owned: Owned) -> bool:
        return self.under_way.get(owned.task.steps.partition) is owned

    def _circuit(self, task: TaskId) -> Circuit:
        return self._bound[task].stage.circuit(task.partition, self._app.layout)
