"""A worker's disk: task stores that lose what was not flushed.

A store is a list of writes. A crash keeps the flushed ones and any prefix of the rest; no write is ever torn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import Offset, Step, TaskId
from falkirk.checkpoint.ports import Backfilled
from falkirk.errors import DiskError, StateError
from falkirk.state.store import EMPTY, Changes, GoOn, Progress, low_watermark
from falkirk.testing.simulator.points import Point, reach

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
    check_room: Callable[[], None] = lambda: None
    """Called before anything is made durable. Raises DiskError if the disk is full: then nothing is done."""
    held: bool = False
    """Whether it is open."""
    kept: dict[int, Snapshot] = field(default_factory=lambda: {0: ({}, EMPTY)})
    """The versions that can be opened."""
    _data: dict[bytes, bytes] = field(default_factory=dict)
    _order: list[bytes] | None = None
    """The keys in order, once read, until they change."""
    _progress: Progress = EMPTY
    _flushed: Snapshot = field(default_factory=lambda: ({}, EMPTY))
    _unflushed: list[tuple[Changes, Progress]] = field(default_factory=list)

    @property
    def progress(self) -> Progress:
        """The progress of the live copy."""
        return self._progress

    @property
    def durable(self) -> Progress:
        """The progress that survives every crash."""
        return self._flushed[1]

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values, in the order asked."""
        return [self._data.get(k) for k in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in order."""
        if self._order is None:
            self._order = sorted(self._data)
        chosen = self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]
        return iter([(k, self._data[k]) for k in chosen])

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply at once."""
        self.check_room()
        self.on_write(progress)
        self._unflushed.append((dict(changes), progress))
        self._apply(changes, progress)

    def _apply(self, changes: Changes, progress: Progress) -> None:
        for k, v in changes.items():
            if v is None:
                self._data.pop(k, None)
            else:
                self._data[k] = v
        self._progress, self._order = progress, None

    def flush(self) -> None:
        """Survive crashes from here on."""
        self.check_room()
        self._flushed, self._unflushed = (dict(self._data), self._progress), []

    def crash(self, keep: int) -> None:
        """Lose the unflushed writes except the first `keep`."""
        kept = self._unflushed[:keep]
        (data, self._progress), self._unflushed = self._flushed, []
        self._data, self._order = dict(data), None
        for changes, progress in kept:
            self._apply(changes, progress)
        self.close()

    def versions(self) -> range:
        """What `open` takes."""
        return range(min(self.kept), max(self.kept) + 1)

    def open(self, version: int) -> None:
        """Go back to a version."""
        if version not in self.kept:
            raise StateError(f"there is no version {version}")
        self.check_room()
        self.kept = {v: s for v, s in self.kept.items() if v <= version}
        data, self._progress = self.kept[version]
        self._data, self._order = dict(data), None
        self.flush()

    def commit(self) -> int:
        """The live copy becomes the next version."""
        self.flush()
        number = max(self.kept) + 1
        self.kept = {number - 1: self.kept[number - 1], number: self._flushed}
        return number

    def snapshot(self, number: int) -> Snapshot:
        """The contents of a version."""
        return self.kept[number]

    def close(self) -> None:
        """Flush if there is room, and close."""
        with suppress(DiskError):
            self.flush()
        self.held = False


@dataclass(slots=True)
class Copies:
    """The checkpoint store: copies of versions, by their steps, which every host can reach."""

    versions: dict[TaskId, dict[int, Snapshot]] = field(default_factory=dict)
    bases: dict[tuple[TaskId, Offset], Snapshot] = field(default_factory=dict)
    """The results of backfills."""

    damaged: set[tuple[TaskId, int]] = field(default_factory=set)
    """Versions that cannot be read."""
    turn: int = 0
    back_at: int = 0
    """The turn from which the store answers again."""

    @property
    def away(self) -> bool:
        """No host can reach it now."""
        return self.turn < self.back_at

    async def until_back(self, go_on: GoOn) -> None:
        """Wait while it is away, as long as waiting is useful."""
        while self.away:
            go_on()
            await reach(Point("waits for the checkpoint store", waits=True))

    def upload(self, task: TaskId, version: Snapshot) -> Progress:
        """Copy a version, and forget all except the last two. Returns the task's low-watermark."""
        known = self.versions.setdefault(task, {})
        known[version[1].step] = version
        self.damaged.discard((task, version[1].step))
        self.versions[task] = {step: known[step] for step in sorted(known)[-2:]}
        return low_watermark(progress for _, progress in known.values())

    def damage(self) -> None:
        """The newest version of each task becomes unreadable, unless it is the only readable one."""
        for task, known in self.versions.items():
            if len(known) > 1 and not any((task, step) in self.damaged for step in known):
                self.damaged.add((task, max(known)))

    def newest(self, task: TaskId, below: int | None = None) -> Snapshot | None:
        """The most advanced readable version."""
        known = {
            step: version
            for step, version in self.versions.get(task, {}).items()
            if (task, step) not in self.damaged and (below is None or step < below)
        }
        return known[max(known)] if known else None


async def _none() -> None:
    return None


@dataclass(slots=True)
class Disk:
    """The port `Stores`: every store of one host. It outlives the process. A store is open once, or StateError is raised.

    The live copy of this host, else the newest copied version, else an empty store. A lazy task's step records are trimmed
    below its versions, so a live copy that is older than another worker's version is replaced by it; so is one that has a
    base, or nothing at all. While the copies are away, the local store comes first, and a changelog needs no more.
    """

    copies: Copies
    rebuilds: Callable[[TaskId], bool]
    """Whether a task's logs alone lead to its last step."""
    on_write: Callable[[TaskId, Progress], None] = lambda _, __: None
    look: Callable[[], Awaitable[Backfilled | None]] = _none
    """Finds the app's backfill."""
    stores: dict[TaskId, SimStore] = field(default_factory=dict)
    tables: dict[str, SimStore] = field(default_factory=dict)
    """The worker's copies of broadcast tables, by topic: no part of any task's state."""
    full_until: int = 0
    """The turn from which it has room again."""
    _ahead: dict[TaskId, SimStore] = field(default_factory=dict)

    def prefetch(self, task: TaskId) -> None:
        """Open a store before the task has been named and its step records read."""
        if task not in self._ahead and self._enough(task):
            self._ahead[task] = self._open(task)

    def discard(self, task: TaskId) -> None:
        """Close what was opened ahead."""
        if (ahead := self._ahead.pop(task, None)) is not None:
            ahead.close()

    async def open(self, task: TaskId, go_on: GoOn) -> SimStore:
        """The task's store."""
        if (ahead := self._ahead.pop(task, None)) is not None:
            return ahead
        if not self._enough(task):
            await self.copies.until_back(go_on)
        return self._open(task)

    def _enough(self, task: TaskId) -> bool:
        """Whether a store can be opened now."""
        here = self.stores.get(task)
        return not self.copies.away or self.rebuilds(task) or (here is not None and here.progress.step >= 0)

    def _hold(self, task: TaskId) -> SimStore:
        store = self.stores[task]
        if store.held:
            raise StateError(f"the store of {task} is open already")
        store.held = True
        return store

    def _open(self, task: TaskId) -> SimStore:
        if task in self.stores:
            self._hold(task).held = False
        here, copy = self.stores.get(task), None if self.copies.away else self.copies.newest(task)
        yields = here is None or not self.rebuilds(task) or here.progress.base >= 0 or here.progress.step < 0
        if copy is not None and yields and (here is None or copy[1].step > here.progress.step):
            self._put(task, {1: copy})
        elif here is None:
            self.stores[task] = self._new(task, {0: ({}, EMPTY)})
        return self._hold(task)

    async def newer(self, task: TaskId, than: Step, go_on: GoOn) -> SimStore:
        """The newest copy after a step, or the local store."""
        await self.copies.until_back(go_on)
        return self._open(task)

    async def fresh(self, task: TaskId) -> SimStore:
        """An empty store."""
        self.stores[task] = self._new(task, {0: ({}, EMPTY)})
        return self._hold(task)

    async def before(self, task: TaskId, step: Step, go_on: GoOn) -> SimStore:
        """The newest copy before a step, or an empty store."""
        await self.copies.until_back(go_on)
        copy = self.copies.newest(task, below=step)
        self._put(task, {0: ({}, EMPTY)} if copy is None else {1: copy})
        return self._hold(task)

    async def based(self, task: TaskId, base: Offset, go_on: GoOn) -> SimStore:
        """The state that the backfill made."""
        await self.copies.until_back(go_on)
        made = self.copies.newest(task) or self.copies.bases.get((task, base))
        if made is None or made[1].base != base:
            raise StateError(f"there is no base {base} of {task}")
        self._put(task, {1: made})
        return self._hold(task)

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill."""
        return await self.look()

    def table(self, topic: str) -> SimStore:
        """The copy of a broadcast table."""
        if topic not in self.tables:
            self.tables[topic] = SimStore(check_room=self._check_room)
        return self.tables[topic]

    def _new(self, task: TaskId, kept: dict[int, Snapshot]) -> SimStore:
        return SimStore(lambda progress: self.on_write(task, progress), self._check_room, kept=kept)

    def _put(self, task: TaskId, kept: dict[int, Snapshot]) -> None:
        """Replace the local store, if there is room for the other one."""
        store = self._new(task, kept)
        store.open(max(kept))
        self.stores[task] = store

    @property
    def full(self) -> bool:
        """It takes nothing now."""
        return self.copies.turn < self.full_until

    def _check_room(self) -> None:
        if self.full:
            raise DiskError("state cannot be written: no space left on device")

    def crash(self, keep: int) -> None:
        """Every store loses its unflushed writes except the first `keep`."""
        self._ahead.clear()
        for store in [*self.stores.values(), *self.tables.values()]:
            store.crash(keep)

    def lose(self) -> None:
        """Nothing is left on it."""
        self.stores.clear()
        self.tables.clear()
