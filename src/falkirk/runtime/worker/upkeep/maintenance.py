"""What happens beside the steps: flushes, versions, copies of them, and the trimming of what nobody needs any more.

flush     bounds the log to apply after a crash of this process
version   bounds the log to apply on another host, and lets the log below it be deleted

due ──▶ flush, or version made, on this host's disk        a few threads; a step's commit never waits for them
                    └──▶ copied ──▶ topics trimmed          more threads: copies.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from falkirk.checkpoint.ids import Millis, TaskId
from falkirk.checkpoint.regimes.floors import Floor
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.runtime.observe.traces import SILENT, Traces
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.runtime.worker.upkeep.copies import Copies, Version
from falkirk.runtime.worker.upkeep.objectives import Objectives
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.runtime.worker.upkeep.task_upkeep import TaskUpkeep
from falkirk.state.rocks import RocksStore

MAKERS = 4
"""Threads that write versions to disk."""

LEAVE = 20.0
"""Seconds that an ending worker gives the copies of its last versions. Its supervisor kills it after 60."""


class Maintenance:
    """The upkeep of one worker's tasks, in its own threads."""

    def __init__(
        self,
        stores: TaskStores,
        topics: Topics,
        keep: float = 0.0,
        traces: Traces = SILENT,
        rates: RateBook | None = None,
    ) -> None:
        """`keep`: seconds for which unneeded step records and edges stay. `rates`: what recoveries take."""
        self._keep = keep
        self._objectives = Objectives(stores, rates or RateBook())
        self._copies = Copies(stores, topics, traces)
        self._makers = ThreadPool(MAKERS, "falkirk-version")
        self._upkeep: dict[TaskId, TaskUpkeep] = {}

    def committed(self, steps: Sequence[ClosedStep]) -> None:
        """Take note of committed steps."""
        for step in steps:
            self.upkeep_of(step.owned.task.id).committed(step)

    def taken(self, task: RunningTask) -> None:
        """A task has come. If its newest version is older than it, another is due, as it may be long until a step asks for
        one. The regime says how long that version has been awaited."""
        store = task.owned.opened()
        if not isinstance(store, RocksStore):
            return
        upkeep, newest = self.upkeep_of(task.owned.task.id), store.version_progress(store.versions()[-1])
        upkeep.stepped = store.progress.step > newest.step
        if task.owned.last is not None:
            upkeep.versioned -= task.owned.task.recovery.waited(Millis(newest.clock), time.time())
            if task.bound.stage.regime.within is not None:  # how much is behind the newest copy is not known
                upkeep.versioned = -math.inf

    def upkeep_of(self, task: TaskId) -> TaskUpkeep:
        """The upkeep of a task, from the first time that it is asked for until `forget`."""
        if task not in self._upkeep:
            self._upkeep[task] = TaskUpkeep.begin(self._keep)
        return self._upkeep[task]

    def tick(self, tasks: Sequence[RunningTask], asked: str = "") -> None:
        """Begin what is due. `asked`: the `falkirk checkpoint` that waits for a version of each."""
        now = time.monotonic()
        for task in tasks:
            upkeep = self.upkeep_of(task.owned.task.id)
            if task.owned.correction is not None or not _ended(upkeep.making):
                continue  # the store is not at its last step, or something is being written
            upkeep.making = None
            _remind(task, upkeep, now)
            wanted = upkeep.asked(asked, now) and task.begun
            due = wanted or (upkeep.stepped and self._objectives.due(task, upkeep, now))
            if due and _ended(upkeep.copying):
                upkeep.version_begun(now, asked)
                self._begin_version(task, upkeep)
            elif upkeep.flush_due(now):
                upkeep.flush_begun(now)
                upkeep.making = self._makers.submit(task.owned.opened().flush)

    def last_versions(self, tasks: Sequence[RunningTask]) -> None:
        """Before tasks are handed over: make a version of all that each did, so that this host runs nothing again. Waits only
        for the disk: the copies follow."""
        making = list[Future[Version]]()
        for task in tasks:
            upkeep = self.upkeep_of(task.owned.task.id)
            self.forget(task)
            making.append(self._makers.submit(partial(_made, task, upkeep, time.monotonic(), floor_of(task))))
        for made in making:
            if (version := made.result()).number is not None:
                self._copies.begin_last(version)

    def forget(self, task: RunningTask) -> None:
        """The task leaves: wait for the disk, but for no copy."""
        upkeep = self._upkeep.pop(task.owned.task.id, None)
        if upkeep is not None:
            upkeep.given_up.set()
            if upkeep.making is not None:
                upkeep.making.exception()

    def close(self, seconds: float = LEAVE) -> None:
        """The worker ends: wait at most this long for the copies of last versions."""
        self._makers.close()
        self._copies.close(seconds)

    def _begin_version(self, task: RunningTask, upkeep: TaskUpkeep) -> None:
        asked, began, floor = upkeep.tried, time.monotonic(), floor_of(task)

        def make() -> None:
            version = _made(task, upkeep, began, floor)
            if version.store.progress.step >= 0:
                self._copies.begin(version, asked)

        upkeep.making = self._makers.submit(make)


def _made(task: RunningTask, upkeep: TaskUpkeep, began: float, floor: Floor) -> Version:
    """Make a version; without a number if there is no step, or no state."""
    store = task.owned.opened()
    number = store.commit() if isinstance(store, RocksStore) and store.progress.step >= 0 else None
    return Version(task, upkeep, store, number, floor, began, made=time.monotonic())


def _remind(task: RunningTask, upkeep: TaskUpkeep, now: float) -> None:
    """Report copies that take very long: a folder that hangs gives no answer, not even an error."""
    if not _ended(upkeep.copying) and upkeep.slow_copies.due(now, since=upkeep.versioned):
        logger.warning("task %s: copying its version to the checkpoint store has taken %.0f s so far",
                       task.owned.task.id, now - upkeep.versioned)  # fmt: skip


def _ended(job: Future[None] | None) -> bool:
    """Whether there is none, or it is over. Raises the job's error."""
    if job is not None and job.done():
        job.result()
    return job is None or job.done()


def floor_of(task: RunningTask) -> Floor:
    """Where the task's edges are, as of its last committed step."""
    edges = {i.partition: i.place for i in task.bound.inputs if i.input.kind == "edge"}
    return task.owned.task.recovery.floor(task.owned.last, edges)
