"""A worker's disk: task stores that lose what was not flushed.

A store is a list of writes. A crash keeps the flushed ones and any prefix of the rest; nothing is ever torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import TaskId
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
    _data: dict[bytes, bytes] = field(default_factory=dict)
    _progress: Progress = EMPTY
    _flushed: Snapshot = field(default_factory=lambda: ({}, EMPTY))
    _unflushed: list[tuple[Changes, Progress]] = field(default_factory=list)
    _versions: dict[int, Snapshot] = field(default_factory=lambda: {0: ({}, EMPTY)})

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
        return range(min(self._versions), max(self._versions) + 1)

    def open(self, version: int) -> None:
        """Go back to a version."""
        if version not in self._versions:
            raise StateError(f"there is no version {version}")
        self._versions = {v: s for v, s in self._versions.items() if v <= version}
        data, self._progress = self._versions[version]
        self._data = dict(data)
        self.flush()

    def commit(self) -> int:
        """The live copy becomes the next version."""
        self.flush()
        number = max(self._versions) + 1
        self._versions = {number - 1: self._versions[number - 1], number: self._flushed}
        return number

    def close(self) -> None:
        """Flush."""
        self.flush()


@dataclass(slots=True)
class Disk:
    """The port `Stores`: every store of one host. It outlives the process."""

    on_write: Callable[[TaskId, Progress], None] = lambda _, __: None
    stores: dict[TaskId, SimStore] = field(default_factory=dict)

    async def open(self, task: TaskId) -> SimStore:
        """The task's live copy, or an empty one."""
        if task not in self.stores:
            return await self.fresh(task)
        return self.stores[task]

    async def fresh(self, task: TaskId) -> SimStore:
        """An empty store."""
        self.stores[task] = SimStore(lambda progress: self.on_write(task, progress))
        return self.stores[task]

    def crash(self, keep: int) -> None:
        """Every store loses its unflushed writes but for the first `keep`."""
        for store in self.stores.values():
            store.crash(keep)
