"""What happens beside the steps: flushes, versions, copies of them, and the trimming of what no one needs any more.

    flush     bounds the log to apply after a crash of this process
    version   bounds the log to apply on another host, and lets the log below it be deleted

The low-watermark of a task is the step of the older of its two copied versions: it never rolls back below that, so step
records and edge records below it go. The last step record stays, whatever happens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import Offset, TaskId
from falkirk.checkpoint.tasks import ClosedStep, ends
from falkirk.connectors.kafka.config import logger
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import DiskError
from falkirk.runtime.floors import Floor, Floors
from falkirk.runtime.stores import TaskStores
from falkirk.runtime.task import RunningTask
from falkirk.runtime.traces import SILENT, Traces
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Progress

FLUSH_CHANGES = 50_000
FLUSH_SECONDS = 10.0
AGAIN = 1.0
"""Seconds after which a version that a person waits for is tried again."""


@dataclass(slots=True)
class Upkeep:
    """What is known of one task."""

    steps: Floors
    """Below which step records may go."""
    edges: Floors
    """Where the edges were at the last versions, at the latest."""
    changes: int = 0
    flushed: float = field(default_factory=time.monotonic)
    versioned: float = field(default_factory=time.monotonic)
    stepped: bool = False
    """Whether a step was committed since the last version."""
    busy: Future[None] | None = None
    tried: str = ""
    """The last `falkirk checkpoint` for which a version was begun."""
    answered: str = ""
    """The last for which one is in the checkpoint store; without state: that it was heard."""
    copied: int = -1
    """The step of the newest version that is there."""


class Maintenance:
    """The upkeep of one worker's tasks, in a thread of its own."""

    def __init__(self, stores: TaskStores, topics: Topics, keep: float = 0.0, traces: Traces = SILENT) -> None:
        """`keep`: seconds for which step records and edges stay that nobody needs any more."""
        self._stores, self._topics, self._keep, self._traces = stores, topics, keep, traces
        self._known: dict[TaskId, Upkeep] = {}
        self._thread = ThreadPoolExecutor(1, "falkirk-upkeep")

    def committed(self, steps: Sequence[ClosedStep]) -> None:
        """Take note of committed steps."""
        for step in steps:
            upkeep = self.known(step.owned.task.id)
            upkeep.changes += len(step.overlay.changes)
            upkeep.stepped = True
            if step.record.corrects >= 0:  # until there is a version behind it, each recovery runs its steps again
                upkeep.versioned = -math.inf

    def taken(self, task: RunningTask) -> None:
        """A task has come. Where its steps would be run again, its next version is due so long after its last one, however
        often it comes: each take-over runs again what is behind that."""
        store = task.owned.opened()
        if task.owned.task.replayed and task.owned.last is not None and isinstance(store, RocksStore):
            age = time.time() - store.version_progress(store.versions()[-1]).clock / 1000  # of version 0: since 1970
            self.known(task.owned.task.id).versioned -= max(age, 0.0)

    def known(self, task: TaskId) -> Upkeep:
        """What is known of a task."""
        if task not in self._known:
            # The older of the last two edges, so that whoever looks at one has the time between two versions to do so.
            self._known[task] = Upkeep(Floors(self._keep), Floors(self._keep, behind=1))
        return self._known[task]

    def tick(self, tasks: Sequence[RunningTask], asked: str = "") -> None:
        """Begin what is due. `asked`: the `falkirk checkpoint` that waits for a version of each."""
        now = time.monotonic()
        for task in tasks:
            if task.owned.correction is not None:
                continue  # the store is not where its last step is
            upkeep = self.known(task.owned.task.id)
            if upkeep.busy is not None:
                if not upkeep.busy.done():
                    continue
                upkeep.busy.result()
                upkeep.busy = None
            every = task.bound.stage.regime.every.total_seconds()
            wait = AGAIN if upkeep.tried == asked else 0.0
            wanted = asked not in ("", upkeep.answered) and now - upkeep.versioned >= wait and task.begun
            if wanted or (upkeep.stepped and now - upkeep.versioned >= every):
                upkeep.tried = asked
                upkeep.versioned = upkeep.flushed = now
                upkeep.changes, upkeep.stepped = 0, False
                upkeep.edges.note(now, floor_of(task))
                upkeep.busy = self._thread.submit(self._version, task, upkeep)
            elif upkeep.changes >= FLUSH_CHANGES or (upkeep.changes and now - upkeep.flushed >= FLUSH_SECONDS):
                upkeep.flushed, upkeep.changes = now, 0
                upkeep.busy = self._thread.submit(task.owned.opened().flush)

    def last_version(self, task: RunningTask) -> None:
        """Before a task is handed over: a version of all that it did, so that nothing is run again."""
        upkeep = self.known(task.owned.task.id)
        self.forget(task)
        self._thread.submit(self._version, task, upkeep).result()

    def forget(self, task: RunningTask) -> None:
        """The task goes: wait for what is under way."""
        upkeep = self._known.pop(task.owned.task.id, None)
        if upkeep is not None and upkeep.busy is not None:
            upkeep.busy.exception()

    def close(self) -> None:
        """Wait for what is under way."""
        self._thread.shutdown()

    def _version(self, task: RunningTask, upkeep: Upkeep) -> None:
        """Make a version, copy it, and delete what lies below the low-watermark."""
        store, began = task.owned.opened(), time.monotonic()
        if store.progress.step < 0:
            return
        asked = upkeep.tried
        steps_floor = store.progress.step_offset - 1
        if isinstance(store, RocksStore):
            version = store.commit()
            made, oldest = time.monotonic(), store.version_progress(store.versions()[0])
            trouble = self._copy(task, store, version, oldest)
            self._traces.version(task.owned, version, began, made, trouble)
            if trouble is not None:
                upkeep.stepped = True  # another version is due, and another attempt with it
                return
            steps_floor, upkeep.copied = oldest.step_offset - 1, store.version_progress(version).step
            logger.info("task %s: version %s in %.2f s", task.owned.task.id, version, time.monotonic() - began)
        upkeep.answered = asked
        upkeep.steps.note(began, {task.owned.task.steps: Offset(steps_floor)})
        self._topics.trim({**upkeep.steps.passed(began), **upkeep.edges.passed(began)})

    def _copy(self, task: RunningTask, store: RocksStore, version: int, oldest: Progress) -> DiskError | None:
        """Copy a version. A checkpoint store that cannot be reached holds up no steps: what it lacks is in the logs, and
        nothing of them is trimmed meanwhile."""
        copies = self._stores.copies(task.owned.task.id)
        try:
            copies.upload(store.version_folder(version), store.version_progress(version))
            copies.delete_below(oldest.step)
        except DiskError as error:
            told = {"task": str(task.owned.task.id), "where": error.where, "hint": error.hint}
            logger.warning("task %s: version %s is not copied; it is tried again: %s (%s)",
                           task.owned.task.id, version, error.what, error.where, extra=told)  # fmt: skip
            return error
        return None


def floor_of(task: RunningTask) -> Floor:
    """Where the task's edges are, as of its last committed step."""
    if task.owned.last is None:
        return {}
    at = ends(task.owned.last)
    return {i.place: at[i.partition] for i in task.bound.inputs if i.input.kind == "edge"}
