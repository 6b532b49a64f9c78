"""Where a worker's tasks keep their state: a folder each, and copies of their versions in the checkpoint store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from falkirk.checkpoint.ids import Offset, Step, TaskId
from falkirk.checkpoint.ports import Backfilled
from falkirk.errors import StateError
from falkirk.runtime.app import App
from falkirk.state.checkpoints import CheckpointStore, RemoteVersion
from falkirk.state.engine import Memory
from falkirk.state.memory import MemoryStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore, install_version, make_empty, next_version
from falkirk.state.store import Identity, Store


class TaskStores:
    """`falkirk.checkpoint.ports.Stores` on RocksDB."""

    def __init__(self, app: App, folder: Path, url: str, memory: Memory, look: Callable[[], Backfilled | None]) -> None:
        """`look` asks for the app's backfill."""
        self._app, self._memory, self._url, self._look = app, memory, url, look
        # What an earlier app of the same name has left here is not seen: a store of its step 7 is none of this one's.
        self._folder = folder / app.incarnation
        self._tasks = {b.task.id: b for b in app.tasks}
        self._remote = connect(url)
        self._copies: dict[TaskId, CheckpointStore] = {}
        self._openers = ThreadPoolExecutor(4, "falkirk-open")
        self._opening: dict[TaskId, Future[Store]] = {}
        self.copying: dict[TaskId, tuple[int, int]] = {}
        """Versions that are being fetched: bytes here, and in all."""

    def prefetch(self, task: TaskId) -> None:
        """Begin to open a store, while the task is being named and read: opening one takes as long as all of that."""
        if task not in self._opening:
            self._opening[task] = self._openers.submit(self._open, task)

    def discard(self, task: TaskId) -> None:
        """Let go of a store that was opened ahead and is not wanted."""
        if (opening := self._opening.pop(task, None)) is not None and opening.exception() is None:
            opening.result().close()

    async def open(self, task: TaskId) -> Store:
        """The task's store, as `falkirk.checkpoint.ports.Stores` says."""
        opening = self._opening.pop(task, None)
        return self._open(task) if opening is None else opening.result()

    def _open(self, task: TaskId) -> Store:
        """The live copy of this host, else the newest copied version, else an empty store.

        A lazy task's step records are trimmed below its versions, so a live copy that another worker's version has
        overtaken may be of no use: it gives way. So does one that has a base or nothing at all, for what a backfill made is
        in no changelog. A task without state keeps its progress in memory: the steps topic tells it again.
        """
        bound = self._tasks[task]
        if not bound.task.stateful:
            return MemoryStore(self._identity(task))
        here = (self._folder_of(task) / "manifest.json").exists()
        store = self._opened(task) if here else None
        if store is None or bound.task.changelog is None or store.progress.base >= 0 or store.progress.step < 0:
            version = self.copies(task).newest()
            if version is not None and (store is None or version.step > store.progress.step):
                if store is not None:
                    store.close()
                self._install(task, version)
                store = None
        return store or self._opened(task)

    async def fresh(self, task: TaskId) -> Store:
        """An empty store in the place of what this host has."""
        make_empty(self._folder_of(task), self._identity(task))
        return self._opened(task)

    async def before(self, task: TaskId, step: Step) -> Store:
        """The newest version before a step, or an empty store, in the place of what this host has."""
        version = self.copies(task).newest(step - 1)
        if version is None:
            return await self.fresh(task)
        self._install(task, version)
        return self._opened(task)

    async def based(self, task: TaskId, base: Offset) -> Store:
        """The state that a backfill made, or a version that follows on it where workers have gone on since."""
        copies = self.copies(task)
        version = copies.base(base) or copies.newest()
        if version is None or version.progress.base != base:
            raise StateError(
                f"the state that the backfill made of task {task} is not in the checkpoint store",
                where=self._url,
                hint="is it the one that `falkirk backfill` was given? Give the same --checkpoints, or where none was given "
                "the same --state-dir",
            )
        self._install(task, version)
        return self._opened(task)

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill, as it is now."""
        return self._look()

    def copies(self, task: TaskId) -> CheckpointStore:
        """The task's versions in the checkpoint store."""
        if task not in self._copies:
            self._copies[task] = CheckpointStore(self._remote, self._identity(task))
        return self._copies[task]

    def _install(self, task: TaskId, version: RemoteVersion) -> None:
        copies, folder = self.copies(task), self._folder_of(task)

        def fetch(target: Path) -> None:
            copies.download(version, target, lambda done, total: self.copying.update({task: (done, total)}))

        try:
            # What is here is older, and counts until the version does: of a store that was removed first, a kill would
            # leave a part, which looks like a damaged one.
            install_version(folder, self._identity(task), next_version(folder), fetch, self._memory)
        finally:
            self.copying.pop(task, None)

    def _folder_of(self, task: TaskId) -> Path:
        return self._folder / f"{task.stage}-{task.partition}"

    def _identity(self, task: TaskId) -> Identity:
        stage = self._tasks[task].stage
        return Identity(self._app.name, str(task), stage.fingerprint, stage.state_schema, self._app.incarnation)

    def _opened(self, task: TaskId) -> RocksStore:
        return RocksStore(self._folder_of(task), self._identity(task), self._memory)
