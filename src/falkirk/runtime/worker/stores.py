"""Where a worker's tasks keep their state: one folder each, and copies of their versions in the checkpoint store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from falkirk.checkpoint.ids import Offset, Step, TaskId
from falkirk.checkpoint.planning.plan import SLOTS
from falkirk.checkpoint.ports import Backfilled
from falkirk.checkpoint.tasks import Revoked
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import AwayError, DamagedError, StateError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.open_files import raise_file_limit
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.store_health import LifeSign, StoreHealth
from falkirk.runtime.worker.threads import ConcurrencyLimit, ThreadPool
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.engine import Memory, files_each, files_needed
from falkirk.state.memory import MemoryStore
from falkirk.state.objects import connect
from falkirk.state.remote import RemoteVersion
from falkirk.state.rocks import RocksStore, install_version, make_empty, next_version
from falkirk.state.store import GoOn, Identity, Progress, Store
from falkirk.wording import counted

T = TypeVar("T")

RECOVERIES = SLOTS
"""Tasks that recover at a time. Each holds a chunk of its changelog or a division in memory, plus its reader's prefetched
data. More tasks gain nothing, as they share the interpreter and the disk."""


class Get(Protocol):
    """How a request to the checkpoint store is made: once, or until it is answered."""

    def __call__(self, call: Callable[[], T], sign: LifeSign | None = None) -> T: ...


class Fetched(NamedTuple):
    """A version that was copied to this host. Times are of `time.monotonic()`."""

    size: int
    began: float
    ended: float


class TaskStores:
    """`falkirk.checkpoint.ports.Stores` on RocksDB.

    A checkpoint store that is away is asked only for what is needed: the local store, or a changelog, is enough otherwise. A
    task that needs it waits, and reports that.
    """

    def __init__(self, app: App, folder: Path, url: str, memory: Memory, look: Callable[[], Backfilled | None]) -> None:
        """`look` finds the app's backfill."""
        self._app, self._memory, self._url, self._look = app, memory, url, look
        # Data of an earlier app of the same name is not used: its store at step 7 is not this app's.
        self._folder = folder / app.incarnation
        self._tasks = {b.task.id: b for b in app.tasks}
        self._remote = connect(url)
        self._health = StoreHealth(url)
        self._copies: dict[TaskId, CheckpointStore] = {}
        self._openers = ThreadPool(4, "falkirk-open")
        self._opening: dict[TaskId, Future[Store | None]] = {}
        self._leaving: dict[TaskId, threading.Event] = {}
        self.recovering = ConcurrencyLimit(RECOVERIES)
        """A recovery holds one of these, and leaves it to others while it waits for the checkpoint store."""
        self.copying: dict[TaskId, tuple[int, int]] = {}
        """Versions that are being fetched: bytes here, and in total."""
        self.sizes: dict[TaskId, int] = {}
        """Bytes of the versions that were copied last."""
        self.fetched: dict[TaskId, Fetched] = {}
        """What the present or the last take-over of a task has fetched."""

    # -- taking over ---------------------------------------------------------------------------------------------------

    def prefetch(self, task: TaskId, go_on: GoOn) -> None:
        """Begin to open a store, while the task is being named and read: opening one takes as long as all of that."""
        if task not in self._opening:
            self.fetched.pop(task, None)
            self._opening[task] = self._openers.submit(lambda: self._open(task, go_on, self._asking(go_on)))

    def discard(self, task: TaskId) -> None:
        """Close a store that was opened ahead and is not wanted. Waits while it is being opened."""
        opening = self._opening.pop(task, None)
        if opening is not None and opening.exception() is None and (store := opening.result()) is not None:
            store.close()

    async def open(self, task: TaskId, go_on: GoOn) -> Store:
        """The task's store, as `falkirk.checkpoint.ports.Stores` says."""
        opening = self._opening.pop(task, None)
        store = None if opening is None else opening.result()
        store = store or self._open(task, go_on, self._insisting(task, go_on))
        assert store is not None
        return store

    def _open(self, task: TaskId, go_on: GoOn, get: Get) -> Store | None:
        """The live copy of this host, else the newest copied version, else an empty store. None if that is unknown because
        the checkpoint store is away.

        A lazy task's step records are trimmed below its versions, so a live copy that is older than another worker's version
        may be useless: it is replaced. So is a copy with a base or nothing at all, because no changelog has what a backfill
        made. While the checkpoint store is away, the local copy comes first, and a changelog needs nothing else. If that is
        not enough, `newer` or `based` is called. A task without state keeps its progress in memory: the steps topic has it
        too.
        """
        recovery = self._tasks[task].task.recovery
        if not recovery.keeps_state:
            return MemoryStore(self._identity(task))
        self._forget_copies(task)
        store = self._opened(task) if (self._folder_of(task) / "manifest.json").exists() else None
        at = -1 if store is None else store.progress.step
        if store is not None and at >= 0 and recovery.rebuilds and store.progress.base < 0:
            return store
        enough = at >= 0 or recovery.rebuilds
        held = [store] if store is not None else []
        try:
            self._fetch(task, lambda step: step > at, self._asking(go_on) if enough else get, held)
        except AwayError as error:
            if not enough:
                _close(held)
                return None
            logger.info("task %s: continues from the local state: %s", task, error.what, extra={"task": str(task)})
        except DamagedError as error:
            if at < 0:
                _close(held)
                raise
            logger.warning("task %s: continues from the local state: %s (%s)", task, error.what, error.where)
        except BaseException:
            _close(held)
            raise
        return held[0] if held else self._opened(task)

    async def newer(self, task: TaskId, than: Step, go_on: GoOn) -> Store:
        """The newest version after a step, or the local store if there is none."""
        self._fetch(task, lambda step: step > than, self._insisting(task, go_on))
        return self._opened(task)

    async def fresh(self, task: TaskId) -> Store:
        """An empty store in place of the local one."""
        make_empty(self._folder_of(task), self._identity(task))
        return self._opened(task)

    async def before(self, task: TaskId, step: Step, go_on: GoOn) -> Store:
        """The newest version before a step, or an empty store, in place of the local one."""
        if self._fetch(task, lambda other: other < step, self._insisting(task, go_on)):
            return self._opened(task)
        return await self.fresh(task)

    async def based(self, task: TaskId, base: Offset, go_on: GoOn) -> Store:
        """The state that a backfill made, or a version that follows it if workers have continued since."""
        copies, get = self.copies(task), self._insisting(task, go_on)
        version = get(lambda: copies.base(base) or copies.newest())
        if version is None or version.progress.base != base:
            raise StateError(
                f"the state that the backfill made of task {task} is not in the checkpoint store",
                where=self._url,
                hint="is it the one that `falkirk backfill` was given? Give the same --checkpoints, or where none was given "
                "the same --state-dir",
            )
        self._install(task, version, get)
        return self._opened(task)

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill, in its present state."""
        return self._look()

    def waits(self, task: TaskId) -> str | None:
        """What a task waits for and since when, in words; None if it does not wait."""
        return self._health.waits(task)

    def close(self) -> None:
        """No store is opened ahead any more, and no version of a task that has left is copied: another worker of this process
        may have the task."""
        for back in self._leaving.values():
            back.set()
        self._openers.close()

    # -- versions ------------------------------------------------------------------------------------------------------

    def upload(self, task: TaskId, folder: Path, progress: Progress, go_on: GoOn) -> Progress:
        """Copy a version. Returns how far the older of the last two copies in the store is. Raises AwayError, at once if the
        checkpoint store is known to be away."""
        copies = self.copies(task)
        self.sizes[task] = self._health.make(lambda: copies.upload(folder, progress, go_on=go_on)).size
        return copies.floor

    def sweep(self, task: TaskId, below: Step) -> None:
        """Delete copied versions below a step, and unneeded files. Raises AwayError and StateError."""
        copies = self.copies(task)
        self._health.make(lambda: copies.delete_below(below))

    def leave(self, task: TaskId) -> GoOn:
        """The task leaves, and its last version is still to be copied: returns what is called before each read of it. It
        raises Revoked once the task has come back, as its folder may then be another."""
        back = self._leaving[task] = threading.Event()

        def go_on() -> None:
            if back.is_set():
                raise Revoked

        return go_on

    def copies(self, task: TaskId) -> CheckpointStore:
        """The task's versions in the checkpoint store."""
        if task not in self._copies:
            self._copies[task] = CheckpointStore(self._remote, self._identity(task))
        return self._copies[task]

    def _forget_copies(self, task: TaskId) -> None:
        """What was known of its copies may have changed while another worker had the task."""
        if (back := self._leaving.pop(task, None)) is not None:
            back.set()
        self._copies.pop(task, None)

    def _asking(self, go_on: GoOn) -> Get:
        def get(call: Callable[[], T], sign: LifeSign | None = None) -> T:
            return self._health.ask(call, go_on, sign)

        return get

    def _insisting(self, task: TaskId, go_on: GoOn) -> Get:
        def get(call: Callable[[], T], sign: LifeSign | None = None) -> T:
            try:
                return self._health.ask(call, go_on, sign)
            except AwayError:
                with self.recovering.left():
                    return self._health.insist(task, call, go_on, sign)

        return get

    def _fetch(
        self, task: TaskId, wanted: Callable[[int], bool], get: Get, held: list[RocksStore] | None = None
    ) -> bool:
        """Replace the local store with the newest version whose step is wanted; False if there is none. `held`: the open
        local store, which is closed before it is replaced.

        A damaged version is replaced by an older one, which the logs reach back to (`CheckpointStore.floor`). Raises
        DamagedError if all are.
        """
        copies = self.copies(task)
        steps = [step for step in reversed(get(copies.versions)) if wanted(step)]
        for step in steps:
            try:
                version = get(lambda step=step: copies.read(step))  # type: ignore[misc]
                _close(held if held is not None else [])
                self._install(task, version, get)
            except DamagedError as error:
                if step == steps[-1]:
                    raise
                logger.warning("task %s: its copied version of step %s cannot be used, trying an older one: %s (%s)",
                               task, step, error.what, error.where, extra={"task": str(task)})  # fmt: skip
            else:
                return True
        return False

    def _install(self, task: TaskId, version: RemoteVersion, get: Get) -> None:
        copies, folder, sign, over = self.copies(task), self._folder_of(task), LifeSign(), threading.Event()
        began = time.monotonic()

        def report(done: int, total: int) -> None:
            if over.is_set():
                raise Revoked  # nobody waits for this download any more
            sign.give()
            self.copying[task] = (done, total)

        def fetch(target: Path) -> None:
            get(lambda: copies.download(version, target, report), sign)

        try:
            # The local store is older, and counts until the version does. If it was removed first, a kill would leave a part
            # of it, which looks like a damaged store.
            install_version(folder, self._identity(task), next_version(folder), fetch, self._memory)
            self.fetched[task] = Fetched(version.size, began, time.monotonic())
        finally:
            over.set()
            self.copying.pop(task, None)

    def _folder_of(self, task: TaskId) -> Path:
        return self._folder / f"{task.stage}-{task.partition}"

    def _identity(self, task: TaskId) -> Identity:
        stage = self._tasks[task].stage
        return Identity(self._app.name, str(task), stage.fingerprint, stage.state_schema, self._app.incarnation)

    def _opened(self, task: TaskId) -> RocksStore:
        return RocksStore(self._folder_of(task), self._identity(task), self._memory)


def memory_of(app: App, settings: Settings) -> Memory:
    """The memory that a worker's stores may use together, if it comes to own all tasks."""
    stores, limit = sum(b.task.recovery.keeps_state for b in app.tasks), raise_file_limit()
    if limit < files_needed(stores):
        logger.warning("a process may open %s files here, and %s may need %s: raise the limit (ulimit -n)",
                       f"{limit:,}", counted(stores, "task"), f"{files_needed(stores):,}")  # fmt: skip
    return Memory(settings.cache_bytes * 2 // 3, settings.cache_bytes // 3, files_each(limit, stores))


def _close(stores: list[RocksStore]) -> None:
    while stores:
        stores.pop().close()
