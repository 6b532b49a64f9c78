"""A worker's disk: task stores that lose what was not flushed.

A store is a list of writes. A crash keeps the flushed ones and any prefix of the rest; nothing is ever torn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import Offset, Step, TaskId
from falkirk.checkpoint.ports import Backfilled
from falkirk.errors import StateError
from falkirk.state.store import EMPTY, Changes, Progress

Snapshot = tuple[dict[bytes, bytes], Progress]


@dataclass(slots=True)
class SimStore:
    """`falkirk.state.store.Store` in memory.

    >>> s = SimStore(); s.write({b"k": b"1"}, Progress(0, 1, 1)); s.flush(); s.write({b"k": None}, Progress(1, 2, 2))
    >>> s.get([b"k"]); s.crash(keep=0); s.get([b"k"]), s.progress.step
    [None]
    ([b'1'], 0)
    """

    on_write: Callable[[Progress], None] = lambda _: None
    """Called before every write that is about to happen."""
    kept: dict[int, Snapshot] = field(default_factory=lambda: {0: ({}, EMPTY)})
    """The versions that can be opened."""
    _data: dict[bytes, bytes] = field(default_factory=dict)
    _progress: Progress = EMPTY
    _flushed: Snapshot = field(default_factory=lambda: ({}, EMPTY))
    _unflushed: list[tuple[Changes, Progress]] = field(default_factory=list)

    @property
    def progress(self) -> Progress:
        """How far the live copy is."""
        return self._progress

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values, in the order asked."""
        return [self._data.get(k) for k in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in order."""
        return iter(sorted((k, v) for k, v in self._data.items() if start <= k < end))

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply at once."""
        self.on_write(progress)
        self._unflushed.append((dict(changes), progress))
        self._apply(changes, progress)

    def _apply(self, changes: Changes, progress: Progress) -> None:
        for k, v in changes.items():
            if v is None:
                self._data.pop(k, None)
            else:
                self._data[k] = v
        self._progress = progress

    def flush(self) -> None:
        """Survive crashes from here on."""
        self._flushed, self._unflushed = (dict(self._data), self._progress), []

    def crash(self, keep: int) -> None:
        """Lose the unflushed writes but for the first `keep`."""
        kept = self._unflushed[:keep]
        (data, self._progress), self._unflushed = self._flushed, []
        self._data = dict(data)
        for changes, progress in kept:
            self._apply(changes, progress)
        self.flush()

    def versions(self) -> range:
        """What `open` takes."""
        return range(min(self.kept), max(self.kept) + 1)

    def open(self, version: int) -> None:
        """Go back to a version."""
        if version not in self.kept:
            raise StateError(f"there is no version {version}")
        self.kept = {v: s for v, s in self.kept.items() if v <= version}
        data, self._progress = self.kept[version]
        self._data = dict(data)
        self.flush()

    def commit(self) -> int:
        """The live copy becomes the next version."""
        self.flush()
        number = max(self.kept) + 1
        self.kept = {number - 1: self.kept[number - 1], number: self._flushed}
        return number

    def snapshot(self, number: int) -> Snapshot:
        """What a version holds."""
        return self.kept[number]

    def close(self) -> None:
        """Flush."""
        self.flush()


@dataclass(slots=True)
class Copies:
    """The checkpoint store: copies of versions, which every host can reach, by their steps."""

    versions: dict[TaskId, dict[int, Snapshot]] = field(default_factory=dict)
    bases: dict[tuple[TaskId, Offset], Snapshot] = field(default_factory=dict)
    """What backfills made."""

    def upload(self, task: TaskId, store: SimStore, number: int) -> None:
        """Copy a version, and forget those that the store no longer keeps, but for the newest."""
        known = self.versions.setdefault(task, {})
        version, oldest = store.snapshot(number), store.snapshot(min(store.versions()))
        known[version[1].step] = version
        self.versions[task] = {step: v for step, v in known.items() if step >= oldest[1].step or step == max(known)}

    def newest(self, task: TaskId) -> Snapshot | None:
        """The version that is furthest on."""
        known = self.versions.get(task, {})
        return known[max(known)] if known else None


async def _none() -> None:
    return None


@dataclass(slots=True)
class Disk:
    """The port `Stores`: every store of one host. It outlives the process.

    The live copy of this host, else the newest copied version, else an empty store. A lazy task's step records are
    trimmed below its versions, so there a live copy that another worker's version has overtaken gives way to it; so does
    one that has a base, or nothing at all.
    """

    copies: Copies
    lazy: bool
    on_write: Callable[[TaskId, Progress], None] = lambda _, __: None
    look: Callable[[], Awaitable[Backfilled | None]] = _none
    """Asks for the app's backfill."""
    stores: dict[TaskId, SimStore] = field(default_factory=dict)
    _ahead: dict[TaskId, SimStore] = field(default_factory=dict)

    def prefetch(self, task: TaskId) -> None:
        """Open a store before the task has been named and its step records read."""
        self._ahead[task] = self._open(task)

    async def open(self, task: TaskId) -> SimStore:
        """The task's store."""
        return self._ahead.pop(task, None) or self._open(task)

    def _open(self, task: TaskId) -> SimStore:
        here, copy = self.stores.get(task), self.copies.newest(task)
        yields = here is None or self.lazy or here.progress.base >= 0 or here.progress.step < 0
        if copy is not None and yields and (here is None or copy[1].step > here.progress.step):
            self.stores[task] = SimStore(self._watch(task), kept={1: copy})
            self.stores[task].open(1)
        elif here is None:
            self.stores[task] = SimStore(self._watch(task))
        return self.stores[task]

    async def fresh(self, task: TaskId) -> SimStore:
        """An empty store."""
        self.stores[task] = SimStore(self._watch(task))
        return self.stores[task]

    async def before(self, task: TaskId, step: Step) -> SimStore:
        """The newest copy before a step, or an empty store."""
        known = {at: copy for at, copy in self.copies.versions.get(task, {}).items() if at < step}
        self.stores[task] = SimStore(self._watch(task), kept={1: known[max(known)]} if known else {0: ({}, EMPTY)})
        self.stores[task].open(1 if known else 0)
        return self.stores[task]

    async def based(self, task: TaskId, base: Offset) -> SimStore:
        """The state that the backfill made."""
        made = self.copies.newest(task) or self.copies.bases.get((task, base))
        if made is None or made[1].base != base:
            raise StateError(f"there is no base {base} of {task}")
        self.stores[task] = SimStore(self._watch(task), kept={1: made})
        self.stores[task].open(1)
        return self.stores[task]

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill."""
        return await self.look()

    def _watch(self, task: TaskId) -> Callable[[Progress], None]:
        return lambda progress: self.on_write(task, progress)

    def crash(self, keep: int) -> None:
        """Every store loses its unflushed writes but for the first `keep`."""
        self._ahead.clear()
        for store in self.stores.values():
            store.crash(keep)
