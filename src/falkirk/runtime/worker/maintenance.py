"""What happens beside the steps: flushes, versions, copies of them, and the trimming of what nobody needs any more.

    flush     bounds the log to apply after a crash of this process
    version   bounds the log to apply on another host, and lets the log below it be deleted

    due ──▶ flush, or version made, on this host's disk        a few threads; a step's commit never waits for them
                        └──▶ copied ──▶ topics trimmed          more threads; each may wait for the checkpoint store

What is below a task's low-watermark goes (`falkirk.state.store.low_watermark`): step records, edge records and versions below
the older of its last two copied versions. The last step record always stays.

A task that is handed over is released as soon as its last version is made. The copy follows, if there is time. If not, the
next owner continues from the copied version before it, and the logs, which reach back to it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Millis, Step, TaskId, TopicPartition
from falkirk.checkpoint.planning import LogGrowth, Objective, Replay
from falkirk.checkpoint.planning.placement import PAUSE, possible
from falkirk.checkpoint.regimes.floors import Floor, Floors, kept_from
from falkirk.checkpoint.tasks import ClosedStep, Revoked, Task
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import AwayError, DiskError, FalkirkError, StateError
from falkirk.runtime.observe.traces import SILENT, Traces
from falkirk.runtime.worker.rates import RateBook
from falkirk.runtime.worker.store_health import wait_for
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Progress, Store
from falkirk.wording import counted

FLUSH_CHANGES = 50_000
FLUSH_SECONDS = 10.0
AGAIN = 1.0
"""Seconds until a version that a person waits for is tried again."""

MAKERS, COPIERS = 4, 8
"""Threads that write versions to disk, and threads that copy them."""

SWEEP = 60.0
"""Seconds between two deletions of copied versions, which need several requests. Those that wait for it take some space."""

LOOK = 0.2
"""Seconds between two looks at an objective, which take some microseconds each for every task."""

SLOW = 60.0
"""Seconds until a slow copy is reported, and then between reports."""

LEAVE = 20.0
"""Seconds that an ending worker gives the copies of its last versions. Its supervisor kills it after 60."""


@dataclass(slots=True)
class TaskUpkeep:
    """The upkeep of one task."""

    steps: Floors
    """Step records below this may go."""
    edges: Floors
    """Where the edges were at the last versions, at the latest."""
    changes: int = 0
    """Changes of the state since the last flush."""
    flushed: float = field(default_factory=time.monotonic)
    """When that was begun; a version is one, too."""
    versioned: float = field(default_factory=time.monotonic)
    """Since when the next version is awaited: the last one was begun then, or earlier; −∞: it is due at once."""
    stepped: bool = False
    """Whether a step was committed since the last version."""
    making: Future[None] | None = None
    """A flush or a version that is being written to disk."""
    copying: Future[None] | None = None
    """Of the newest version."""
    given_up: threading.Event = field(default_factory=threading.Event)
    """The task has left: a copy in progress is useless."""
    swept: float = -math.inf
    slow_copies: Cadence = field(default_factory=lambda: Cadence(SLOW, SLOW))
    tried: str = ""
    """The last `falkirk checkpoint` for which a version was begun."""
    answered: str = ""
    """The last for which one is in the checkpoint store; without state: the last that was heard."""
    copies: tuple[Progress, ...] = ()
    """The last two versions in the store, oldest first, once one was copied here."""
    growth: LogGrowth = field(default_factory=lambda: LogGrowth(time.monotonic()))
    looked: float = -math.inf
    """When it was last seen whether its objective needs a version."""


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
        self._stores, self._topics, self._keep, self._traces = stores, topics, keep, traces
        self._rates = rates or RateBook()
        self._unmet: set[str] = set()
        """The stages of which was said that their objective cannot be met."""
        self._upkeep: dict[TaskId, TaskUpkeep] = {}
        self._makers, self._copiers = ThreadPool(MAKERS, "falkirk-version"), ThreadPool(COPIERS, "falkirk-copy")
        self._last: dict[TaskId, Future[None]] = {}
        """Copies of the last versions of tasks that were handed over."""

    def committed(self, steps: Sequence[ClosedStep]) -> None:
        """Take note of committed steps."""
        for step in steps:
            upkeep = self.upkeep_of(step.owned.task.id)
            upkeep.changes += len(step.overlay.changes)
            upkeep.stepped = True
            upkeep.growth.grew(step.owned.task.recovery.grows(step))
            if step.record.corrects >= 0:  # until there is a version behind it, each recovery runs its steps again
                upkeep.versioned = -math.inf

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
            # The older of the last two edges, so that a reader of one has the time between two versions.
            self._upkeep[task] = TaskUpkeep(Floors(self._keep), Floors(self._keep, behind=1))
        return self._upkeep[task]

    def tick(self, tasks: Sequence[RunningTask], asked: str = "") -> None:
        """Begin what is due. `asked`: the `falkirk checkpoint` that waits for a version of each."""
        now = time.monotonic()
        for task in tasks:
            if task.owned.correction is not None:
                continue  # the store is not at its last step
            upkeep = self.upkeep_of(task.owned.task.id)
            if not _ended(upkeep.making):
                continue
            upkeep.making = None
            self._remind(task, upkeep, now)
            wait = AGAIN if upkeep.tried == asked else 0.0
            wanted = asked not in ("", upkeep.answered) and now - upkeep.versioned >= wait and task.begun
            if (wanted or (upkeep.stepped and self._due(task, upkeep, now))) and _ended(upkeep.copying):
                upkeep.tried = asked
                upkeep.versioned = upkeep.flushed = now
                upkeep.growth.version_begun(now)
                upkeep.changes, upkeep.stepped, upkeep.copying = 0, False, None
                self._begin_version(task, upkeep)
            elif upkeep.changes >= FLUSH_CHANGES or (upkeep.changes and now - upkeep.flushed >= FLUSH_SECONDS):
                upkeep.flushed, upkeep.changes = now, 0
                upkeep.making = self._makers.submit(task.owned.opened().flush)

    def _due(self, task: RunningTask, upkeep: TaskUpkeep, now: float) -> bool:
        """Whether it is time for a version, by the regime's interval or by its objective."""
        regime, since = task.bound.stage.regime, now - upkeep.versioned
        if regime.within is None:
            return since >= regime.every.total_seconds()
        if now < upkeep.looked + LOOK:
            return False
        upkeep.looked = now
        objective = Objective(regime.within.total_seconds(), task.owned.task.recovery.presumed)
        name, behind = task.owned.task.id, upkeep.growth.behind
        lead = PAUSE if upkeep.growth.lead is None else upkeep.growth.lead
        rates, size = self._rates.of(name.stage), self._stores.sizes.get(name, 0)
        pace = upkeep.growth.pace(now)
        if upkeep.growth.lead is not None and name.stage not in self._unmet:
            least = objective.least(rates, pace, lead, size)
            if least > objective.seconds:
                self._unmet.add(name.stage)
                hint = f"{possible(least)} can be met; or give the stage more tasks, so that each has less"
                why = objective.unmet(name.stage, rates, pace, lead, size)
                logger.warning("%s (%s)", why, hint, extra={"task": str(name), "hint": hint})
        return objective.due(rates, Replay(max(1, behind.parts), behind.records), pace, lead, size, since)

    def _remind(self, task: RunningTask, upkeep: TaskUpkeep, now: float) -> None:
        """Report copies that take very long: a folder that hangs gives no answer, not even an error."""
        if not _ended(upkeep.copying) and upkeep.slow_copies.due(now, since=upkeep.versioned):
            logger.warning("task %s: copying its version to the checkpoint store has taken %.0f s so far",
                           task.owned.task.id, now - upkeep.versioned)  # fmt: skip

    def last_versions(self, tasks: Sequence[RunningTask]) -> None:
        """Before tasks are handed over: make a version of all that each did, so that this host runs nothing again. Waits only
        for the disk: the copies follow."""
        began, made = time.monotonic(), []
        for task in tasks:
            upkeep = self.upkeep_of(task.owned.task.id)
            self.forget(task)
            made.append((upkeep, self._makers.submit(partial(_made, task.owned.opened()))))
        for task, (upkeep, making) in zip(tasks, made, strict=True):
            name, store, version = task.owned.task.id, task.owned.opened(), making.result()
            if version is not None and isinstance(store, RocksStore):
                folder, progress = store.version_folder(version), store.version_progress(version)
                upload = partial(self._stores.upload, name, folder, progress, self._stores.leave(name))
                told = partial(self._traces.version, task.owned, version, began, time.monotonic())
                tidy = partial(self._tidy, task.owned.task, upkeep, floor_of(task), began, progress.step)
                self._last[name] = self._copiers.submit(partial(_copy_last, upload, told, tidy))

    def _tidy(self, task: Task, upkeep: TaskUpkeep, floor: Floor, began: float, step: int, older: Progress) -> None:
        """The last version is copied: delete what nobody needs any more. Short runs in a row may copy no other version."""
        with suppress(DiskError):  # the next run deletes it
            if time.monotonic() - upkeep.swept >= SWEEP:
                self._sweep(task.id, older, upkeep)
        self._trim(upkeep, task.steps, floor, began, step, older)

    def forget(self, task: RunningTask) -> None:
        """The task leaves: wait for the disk, but for no copy."""
        upkeep = self._upkeep.pop(task.owned.task.id, None)
        if upkeep is not None:
            upkeep.given_up.set()
            if upkeep.making is not None:
                upkeep.making.exception()

    def close(self, seconds: float = LEAVE) -> None:
        """The worker ends: wait at most this long for the copies of last versions, and report which are missing."""
        until = time.monotonic() + seconds
        missing = [task for task, copy in self._last.items() if not wait_for(copy, max(0.0, until - time.monotonic()))]
        missing += [task for task, copy in self._last.items() if task not in missing and copy.exception() is not None]
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            logger.warning("the last versions of %s are not in the checkpoint store, but on this host only; another "
                           "host continues from earlier versions: %s", counted(len(missing), "task"), names)  # fmt: skip

    def _begin_version(self, task: RunningTask, upkeep: TaskUpkeep) -> None:
        store, floor, began = task.owned.opened(), floor_of(task), time.monotonic()

        def make() -> None:
            version = _made(store)
            made = time.monotonic()
            if store.progress.step >= 0:
                copy = Copy(
                    task=task,
                    upkeep=upkeep,
                    store=store,
                    version=version,
                    asked=upkeep.tried,
                    floor=floor,
                    began=began,
                    made=made,
                )
                upkeep.copying = self._copiers.submit(lambda: self._copy(copy))

        upkeep.making = self._makers.submit(make)

    def _copy(self, copy: Copy) -> None:
        """Copy a version, and delete what lies below the low-watermark."""
        upkeep, owned, store = copy.upkeep, copy.task.owned, copy.store
        steps = owned.task.steps
        if copy.version is None or not isinstance(store, RocksStore):
            low, step = store.progress, store.progress.step
        else:
            trouble: DiskError | None = None
            progress = store.version_progress(copy.version)
            try:
                older = self._upload(owned.task.id, store.version_folder(copy.version), progress, upkeep)
            except Revoked:
                return
            except FalkirkError as error:
                if upkeep.given_up.is_set():
                    return
                if not isinstance(error, DiskError):
                    raise
                trouble = error
            self._traces.version(owned, copy.version, copy.began, copy.made, trouble)
            if trouble is not None:
                upkeep.growth.not_copied()
                upkeep.stepped = True  # another version is due, and another attempt with it
                return
            low, step = older, progress.step
            upkeep.copies = (older, progress) if older.step >= 0 else (progress,)
            upkeep.growth.lead = time.monotonic() - copy.began
            logger.info("task %s: version %s in %.2f s", owned.task.id, copy.version, time.monotonic() - copy.began)
        upkeep.answered = copy.asked
        self._trim(upkeep, steps, copy.floor, copy.began, step, low)

    def _trim(
        self, upkeep: TaskUpkeep, steps: TopicPartition, floor: Floor, began: float, step: int, low: Progress
    ) -> None:
        """A version of `step` is copied: delete what is below the low-watermark.

        Edges go only behind step records that have gone. Otherwise an old store of another host, which the step records still
        reach back to, would be rolled along edges that do not.
        """
        upkeep.steps.note(began, {steps: kept_from(low)})
        upkeep.edges.note(began, floor, step)
        if self._topics.trim(upkeep.steps.passed(began)):
            self._topics.trim(upkeep.edges.passed(began))

    def _upload(self, task: TaskId, folder: Path, progress: Progress, upkeep: TaskUpkeep) -> Progress:
        """Copy a version. An unreachable checkpoint store blocks no steps: what it lacks is in the logs, which are not
        trimmed meanwhile. Returns how far the older of the last two copies is."""

        def go_on() -> None:
            if upkeep.given_up.is_set():
                raise Revoked

        try:
            older = self._stores.upload(task, folder, progress, go_on)
            if time.monotonic() - upkeep.swept >= SWEEP:
                self._sweep(task, older, upkeep)
        except AwayError:
            raise  # reported once for all tasks
        except DiskError as error:
            told = {"task": str(task), "where": error.where, "hint": error.hint}
            logger.warning("task %s: the version of step %s is not copied; retrying: %s (%s)",
                           task, progress.step, error.what, error.where, extra=told)  # fmt: skip
            raise
        return older

    def _sweep(self, task: TaskId, older: Progress, upkeep: TaskUpkeep) -> None:
        upkeep.swept = time.monotonic()
        try:
            self._stores.sweep(task, Step(older.step))
        except StateError as error:
            logger.warning("task %s: unneeded files are kept, because one version cannot be read: %s (%s)",
                           task, error.what, error.where, extra={"task": str(task)})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Copy:
    """A version to be copied."""

    task: RunningTask
    upkeep: TaskUpkeep
    store: Store
    version: int | None
    """None: the task has no state, and only its topics are trimmed."""
    asked: str
    floor: Floor
    """Where the task's edges were when it was made, at the latest."""
    began: float
    made: float


def _copy_last(
    upload: Callable[[], Progress], told: Callable[[FalkirkError | None], None], tidy: Callable[[Progress], None]
) -> None:
    try:
        older = upload()
    except FalkirkError as error:
        told(error)
        raise
    told(None)
    tidy(older)


def _ended(job: Future[None] | None) -> bool:
    """Whether there is none, or it is over. Raises the job's error."""
    if job is not None and job.done():
        job.result()
    return job is None or job.done()


def _made(store: Store) -> int | None:
    """Make a version; None if there is no step, or no state."""
    return store.commit() if isinstance(store, RocksStore) and store.progress.step >= 0 else None


def floor_of(task: RunningTask) -> Floor:
    """Where the task's edges are, as of its last committed step."""
    edges = {i.partition: i.place for i in task.bound.inputs if i.input.kind == "edge"}
    return task.owned.task.recovery.floor(task.owned.last, edges)
