"""Copies of versions in the checkpoint store, and the trimming of what nobody needs any more.

    version made ──▶ copied ──▶ versions swept, topics trimmed        threads that each may wait for the checkpoint store

What is below a task's low-watermark goes (`falkirk.state.store.low_watermark`): step records, edge records and versions below
the older of its last two copied versions. The last step record always stays.

A task that is handed over is released as soon as its last version is made. The copy follows, if there is time. If not, the
next owner continues from the copied version before it, and the logs, which reach back to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from falkirk.checkpoint.ids import Step, TaskId
from falkirk.checkpoint.regimes.floors import Floor, kept_from
from falkirk.checkpoint.tasks import Revoked
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import AwayError, DiskError, FalkirkError, StateError
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.store_health import wait_for
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.runtime.worker.upkeep.task_upkeep import TaskUpkeep
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Progress, Store
from falkirk.wording import counted

COPIERS = 8
"""Threads that copy versions."""

SWEEP = 60.0
"""Seconds between two deletions of copied versions, which need several requests. Those that wait for it take some space."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version on this host's disk."""

    task: RunningTask
    upkeep: TaskUpkeep
    store: Store
    number: int | None
    """None: the task has no state, and only its topics are trimmed."""
    floor: Floor
    """Where the task's edges were when it was made, at the latest."""
    began: float
    made: float

    @property
    def name(self) -> TaskId:
        """The task's."""
        return self.task.owned.task.id


class Copies:
    """The copies of one worker's versions."""

    def __init__(self, stores: TaskStores, topics: Topics, traces: Traces) -> None:
        self._stores, self._topics, self._traces = stores, topics, traces
        self._threads = ThreadPool(COPIERS, "falkirk-copy")
        self._last: dict[TaskId, Future[None]] = {}
        """Copies of the last versions of tasks that were handed over."""

    def begin(self, version: Version, asked: str) -> None:
        """Copy the version of a task that runs. `asked`: the `falkirk checkpoint` that waits for it."""
        version.upkeep.copying = self._threads.submit(lambda: self._copy(version, asked))

    def begin_last(self, version: Version) -> None:
        """Copy the last version of a task that is handed over."""
        go_on = self._stores.leave(version.name)
        self._last[version.name] = self._threads.submit(lambda: self._copy_last(version, go_on))

    def close(self, seconds: float) -> None:
        """The worker ends: wait at most this long for the copies of last versions, and report which are missing."""
        until = time.monotonic() + seconds
        missing = [task for task, copy in self._last.items() if not wait_for(copy, max(0.0, until - time.monotonic()))]
        missing += [task for task, copy in self._last.items() if task not in missing and copy.exception() is not None]
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            logger.warning("the last versions of %s are not in the checkpoint store, but on this host only; another "
                           "host continues from earlier versions: %s", counted(len(missing), "task"), names)  # fmt: skip
        self._threads.close()

    def _copy(self, version: Version, asked: str) -> None:
        """Copy a version, and trim. An unreachable checkpoint store blocks no steps: what it lacks is in the logs, which are
        not trimmed meanwhile."""
        upkeep, store = version.upkeep, version.store
        if version.number is None or not isinstance(store, RocksStore):
            low = progress = store.progress
        else:
            progress, trouble = store.version_progress(version.number), None
            try:
                low = self._upload(version, store.version_folder(version.number), progress)
            except Revoked:
                return
            except FalkirkError as error:
                if upkeep.given_up.is_set():
                    return
                if not isinstance(error, DiskError):
                    raise
                trouble = error
            self._traces.version(version.task.owned, version.number, version.began, version.made, trouble)
            if trouble is not None:
                upkeep.growth.not_copied()
                upkeep.stepped = True  # another version is due, and another attempt with it
                return
            upkeep.copies = (low, progress) if low.step >= 0 else (progress,)
            took = upkeep.growth.lead = time.monotonic() - version.began
            logger.info("task %s: version %s in %.2f s", version.name, version.number, took)
        upkeep.answered = asked
        self._trim(version, progress.step, low)

    def _upload(self, version: Version, folder: Path, progress: Progress) -> Progress:
        """Returns how far the older of the last two copies is. Raises Revoked once the task has left."""
        name, upkeep = version.name, version.upkeep

        def go_on() -> None:
            if upkeep.given_up.is_set():
                raise Revoked

        try:
            low = self._stores.upload(name, folder, progress, go_on)
            self._sweep(version, low)
        except AwayError:
            raise  # reported once for all tasks
        except DiskError as error:
            told = {"task": str(name), "where": error.where, "hint": error.hint}
            logger.warning("task %s: the version of step %s is not copied; retrying: %s (%s)",
                           name, progress.step, error.what, error.where, extra=told)  # fmt: skip
            raise
        return low

    def _copy_last(self, version: Version, go_on: Callable[[], None]) -> None:
        """The same for a task that has left. If it cannot be copied, nothing is tried again."""
        store = version.store
        assert isinstance(store, RocksStore)
        assert version.number is not None
        progress = store.version_progress(version.number)
        told = partial(self._traces.version, version.task.owned, version.number, version.began, version.made)
        try:
            low = self._stores.upload(version.name, store.version_folder(version.number), progress, go_on)
        except FalkirkError as error:
            told(error)
            raise
        told(None)
        with suppress(DiskError):  # the next run deletes it
            self._sweep(version, low)  # short runs in a row may copy no other version
        self._trim(version, progress.step, low)

    def _sweep(self, version: Version, low: Progress) -> None:
        """Delete the copied versions that nobody needs, now and then."""
        if time.monotonic() - version.upkeep.swept < SWEEP:
            return
        version.upkeep.swept = time.monotonic()
        try:
            self._stores.sweep(version.name, Step(low.step))
        except StateError as error:
            logger.warning("task %s: unneeded files are kept, because one version cannot be read: %s (%s)",
                           version.name, error.what, error.where, extra={"task": str(version.name)})  # fmt: skip

    def _trim(self, version: Version, step: int, low: Progress) -> None:
        """A version of `step` is copied: delete what is below the low-watermark.

        Edges go only behind step records that have gone. Otherwise an old store of another host, which the step records still
        reach back to, would be rolled along edges that do not.
        """
        upkeep, began, steps = version.upkeep, version.began, version.task.owned.task.steps
        upkeep.steps.note(began, {steps: kept_from(low)})
        upkeep.edges.note(began, version.floor, step)
        if self._topics.trim(upkeep.steps.passed(began)):
            self._topics.trim(upkeep.edges.passed(began))
