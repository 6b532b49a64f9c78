"""The two-version database in memory: for tests, and for the simulator.

disk = versions · live copy as of the last flush · writes since, in order, not yet on disk
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from falkirk.errors import StateError
from falkirk.state.meta import check_advances, check_identity
from falkirk.state.store import EMPTY, Changes, Identity, Progress


@dataclass(frozen=True, slots=True)
class _Snapshot:
    pairs: dict[bytes, bytes]
    progress: Progress


@dataclass(slots=True)
class MemoryDisk:
    """What a store leaves behind when its process dies."""

    identity: Identity | None = None
    flushed: _Snapshot = _Snapshot({}, EMPTY)
    unflushed: list[tuple[Changes, Progress]] = field(default_factory=list)
    versions: dict[int, _Snapshot] = field(default_factory=lambda: {0: _Snapshot({}, EMPTY)})

    def crash(self, keep: int = 0) -> None:
        """The process dies: of the unflushed writes the first `keep` survive."""
        self.flushed = _fold(self.flushed, self.unflushed[:keep])
        self.unflushed = []


class MemoryStore:
    """A store over a `MemoryDisk`. Raises StateError if the disk holds another identity's state.

    >>> disk, whose = MemoryDisk(), Identity("app", "stats/0", "f00")
    >>> store = MemoryStore(whose, disk)
    >>> store.write({b"a": b"1"}, Progress(0, 1, 1))
    >>> disk.crash()
    >>> MemoryStore(whose, disk).get([b"a"])
    [None]
    """

    def __init__(self, identity: Identity, disk: MemoryDisk | None = None) -> None:
        self._disk = disk = MemoryDisk() if disk is None else disk
        if disk.identity is not None:
            check_identity(disk.identity, identity, where="memory")
        disk.identity = identity
        self._load(_fold(disk.flushed, disk.unflushed))

    def _load(self, snapshot: _Snapshot) -> None:
        self._pairs = dict(snapshot.pairs)
        self._progress = snapshot.progress
        self._order: list[bytes] | None = None

    @property
    def progress(self) -> Progress:
        """How far the live copy is."""
        return self._progress

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of full keys, in the same order; None for a missing key."""
        return [self._pairs.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in the order of keys, as of the first step of the iterator."""
        if self._order is None:
            self._order = sorted(self._pairs)
        chosen = self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]
        yield from [(key, self._pairs[key]) for key in chosen]

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply changes and progress at once."""
        check_advances(self._progress, progress)
        self._disk.unflushed.append((dict(changes), progress))
        _apply(self._pairs, changes)
        self._progress = progress
        self._order = None

    def flush(self) -> None:
        """Make what was written so far survive a crash."""
        self._disk.flushed = _Snapshot(dict(self._pairs), self._progress)
        self._disk.unflushed = []

    def versions(self) -> range:
        """The versions that can be opened."""
        return range(min(self._disk.versions), max(self._disk.versions) + 1)

    def open(self, version: int) -> None:
        """Make `version` the live copy and discard later ones. Raises StateError if it is not in `versions()`."""
        if version not in self._disk.versions:
            raise StateError(f"there is no version {version} of the state: there are {list(self._disk.versions)}")
        self._disk.versions = {n: kept for n, kept in self._disk.versions.items() if n <= version}
        self._load(self._disk.versions[version])
        self.flush()

    def commit(self) -> int:
        """Make the live copy the next version; drop all but the last two. Returns its number."""
        self.flush()
        last = max(self._disk.versions)
        self._disk.versions = {last: self._disk.versions[last], last + 1: self._disk.flushed}
        return last + 1

    def close(self) -> None:
        """Flush."""
        self.flush()


def _apply(pairs: dict[bytes, bytes], changes: Changes) -> None:
    for key, value in changes.items():
        if value is None:
            pairs.pop(key, None)
        else:
            pairs[key] = value


def _fold(start: _Snapshot, writes: Sequence[tuple[Changes, Progress]]) -> _Snapshot:
    pairs = dict(start.pairs)
    for changes, _ in writes:
        _apply(pairs, changes)
    return _Snapshot(pairs, writes[-1][1] if writes else start.progress)
