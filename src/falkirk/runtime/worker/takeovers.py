"""Tasks on their way to a worker, in the committer's threads: their stores, their circuits, and what runs their steps again.

Until a recovery has ended, its thread has the task's store, and closes it unless the task is to run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from falkirk.checkpoint.tasks import Owned, Phase
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import SourceError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.observe.timed import Timed
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.reading.replay import KafkaReplayer
from falkirk.runtime.worker.reading.unreadable import UnreadableInputs
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.stream.dataflow.circuit import Circuit

UNUSUAL_S = 5.0
"""Seconds after which a wait is reported."""


class RecoveryJob(NamedTuple):
    """A task that is being recovered."""

    owned: Owned
    circuit: Circuit
    end: Future[None]


class TakeOvers:
    """The take-overs of one commit domain, from names to tasks that can run."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        committer: Committer,
        stores: TaskStores,
        traces: Traces,
        rates: RateBook | None = None,
    ) -> None:
        self._app, self._settings, self._traces = app, settings, traces
        self._committer, self._stores, self._rates = committer, stores, rates or RateBook()
        self._bound = {b.task.id: b for b in app.tasks}
        self._recoveries: list[RecoveryJob] = []
        self._circuits: dict[Owned, Circuit] = {}
        """Of tasks that have recovered, and do not run yet."""
        self._together: dict[Owned, Sequence[Owned]] = {}
        """The tasks that each was named with, until it runs."""
        self._blocked: dict[int, float] = {}
        self._unreadable = UnreadableInputs[Owned](settings)

    def prefetch(self, tasks: Sequence[Owned]) -> None:
        """Begin to open the stores of tasks, while they are being named."""
        for owned in tasks:
            self._stores.prefetch(owned.task.id, owned.go_on)

    def recover(self, tasks: Sequence[Owned]) -> None:
        """Begin the recovery of tasks that were named together."""
        tasks = sorted(tasks, key=lambda owned: owned.task.recovery.order)
        self._together |= dict.fromkeys(tasks, tasks)
        bound = [self._bound[owned.task.id] for owned in tasks]
        circuits = [b.stage.circuit(b.task.id.partition, self._app.layout) for b in bound]
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
        for recovery in map(RecoveryJob, tasks, circuits, ends):
            self._recoveries.append(recovery)
            self._traces.taking_over([recovery.owned], recovery.end)

    def ended(self) -> Iterator[Owned]:
        """The tasks whose recoveries have ended, each once. Raises their errors, except those of tasks that were given up:
        their next owners find the problem themselves."""
        for recovery in [r for r in self._recoveries if r.end.done() and self._counts(r)]:
            self._recoveries.remove(recovery)
            owned, circuit, end = recovery
            self._unreadable.forget(owned)
            if not owned.revoked:
                end.result()
                if owned.phase is Phase.ROLLED:
                    self._circuits[owned] = circuit
            elif (error := end.exception()) is not None:
                logger.warning("task %s was abandoned, and its recovery had failed: %s", owned.task.id, error)
            if owned not in self._circuits:
                self._together.pop(owned, None)
            self._tell(owned)
            yield owned

    @staticmethod
    def _tell(owned: Owned) -> None:
        """How a recovery has ended."""
        task = owned.task.id
        logger.debug("recovered %s: %s", task, owned.phase.value)
        if owned.steps_saved:
            logger.info("task %s: %s recorded steps need not run again, as no row that they read counts any more",
                        task, f"{owned.steps_saved:,}")  # fmt: skip
        if owned.rollback_failed:
            logger.warning("task %s: rows whose time was complete are read again, too: %s", task, owned.rollback_failed)

    def _counts(self, recovery: RecoveryJob) -> bool:
        """Whether the end of a recovery is acted on: input that cannot be read again may only mean that another worker has
        the task."""
        owned, error = recovery.owned, recovery.end.exception()
        if owned.revoked or not isinstance(error, SourceError):
            return True
        self._unreadable.note(owned, error, f"task {owned.task.id}")
        return self._unreadable.counts(owned)

    @property
    def any(self) -> bool:
        """Whether a recovery is under way."""
        return any(not recovery.end.done() for recovery in self._recoveries)

    def circuit(self, owned: Owned) -> Circuit:
        """The circuit of a task that runs now. It has run the task's recorded steps again, if they did."""
        self._measure(owned, self._together.pop(owned, ()))
        return self._circuits.pop(owned)

    def forget(self, owned: Owned) -> None:
        """The task does not run."""
        self._circuits.pop(owned, None)
        self._together.pop(owned, None)

    def _measure(self, owned: Owned, together: Sequence[Owned]) -> None:
        """Note what the take-over of a task that runs now has taken."""
        if not isinstance(owned, Timed):
            return
        rolling = [at for o in together if isinstance(o, Timed) and (at := o.moments.get(Phase.ROLLING.value))]
        task = owned.task
        fetched = self._stores.fetched.get(task.id)
        took = owned.took(min(rolling, default=0.0), None if fetched is None else (fetched.began, fetched.ended))
        if took is not None:
            size = 0 if fetched is None else fetched.size
            self._rates.note(task.id, took, size, owned.replay, task.recovery.presumed)

    def note_blocked(self, partitions: Sequence[int]) -> None:
        """These tasks wait for the end of an earlier take-over."""
        if partitions or self._blocked:
            now = time.monotonic()
            self._blocked = {p: self._blocked.get(p, now) for p in partitions}

    def waits(self) -> str:
        """Which tasks wait for the end of an earlier take-over, and how long, in words; "" if none waits unusually long."""
        now = time.monotonic()
        slow = {p: now - since for p, since in self._blocked.items() if now - since > UNUSUAL_S}
        if not slow:
            return ""
        tasks = ", ".join(str(self._app.tasks[p].task.id) for p in sorted(slow))
        return f"an earlier take-over of {tasks} to end, for {max(slow.values()):.0f} s"
