"""The two-version database on RocksDB.

    folder: manifest.json   what counts (see falkirk.state.manifest)
            live-L          the live copy
            version-N       hard links to the files of the live copy as it was at commit N
            lock            held by the process that has the store open

RocksDB's own log is not synced: a crash of the machine leaves the live copy as some prefix of the writes, and the changelog
or the recorded divisions roll it forward. Progress is in the same write as the changes, so they cannot differ.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

import msgspec

from falkirk.errors import DiskError, IdentityError, StateError
from falkirk.state import files
from falkirk.state.engine import Engine, EngineSnapshot, Memory
from falkirk.state.manifest import (
    Manifest,
    VersionEntry,
    live_folder,
    read_manifest,
    remove_leftovers,
    version_folder,
    write_manifest,
)
from falkirk.state.meta import (
    IDENTITY_KEY,
    META,
    PROGRESS_KEY,
    check_advances,
    check_identity,
    decode_identity,
    decode_progress,
    encode_identity,
    encode_progress,
)
from falkirk.state.store import EMPTY, Changes, Identity, Progress


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A store at one moment.

    pairs = the fold of the writes up to and with the one that set `progress`

    Both are read from one snapshot of RocksDB, and a write holds its changes and its progress, so they cannot differ.
    """

    progress: Progress
    pairs: EngineSnapshot


class RocksStore:
    """A task's database in its own folder.

    One thread reads and writes. At the same time `flush` and `commit` may run in another; they make a prefix of the writes
    durable that holds all those before the call. Any thread may take a `snapshot`.

    Raises StateError if the folder holds another identity's state, another format or damaged files; IdentityError if
    another process has it open; DiskError if it cannot be written.

    >>> import tempfile
    >>> store = RocksStore(Path(tempfile.mkdtemp()) / "stats-0", Identity("app", "stats/0", "f00"))
    >>> store.write({b"a": b"1"}, Progress(step=0, step_offset=1, log_offset=1))
    >>> store.commit(), store.versions()
    (1, range(0, 2))
    >>> store.close()
    """

    def __init__(self, folder: Path, identity: Identity, memory: Memory | None = None) -> None:
        self._folder = folder
        self._identity = identity
        self._memory = memory or Memory()
        self._turn = threading.RLock()
        self._reading, self._readers = threading.Condition(), 0
        self._progress = EMPTY
        self._engine: Engine | None = None
        self._lock = _lock(folder)
        try:
            self._manifest = _manifest_of(folder, identity)
            remove_leftovers(folder, self._manifest)
            if self._manifest.live is None:
                self.open(self._manifest.versions[-1].number)
            else:
                self._engine = self._open_live()
        except BaseException:
            self._lock.close()
            raise

    @property
    def progress(self) -> Progress:
        """How far the live copy is."""
        return self._progress

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of full keys, in the same order; None for a missing key."""
        return self._live.get(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in the order of keys, as of the first step of the iterator."""
        return self._live.scan(start, min(end, META))

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        """The live copy at one moment, for any thread. `close` and `open` wait until the block ends: keep it short. Raises
        ValueError if the store is closed."""
        with self._reading:
            engine = self._live
            self._readers += 1
        try:
            taken = engine.snapshot()
            try:
                (progress,) = taken.get([PROGRESS_KEY])
                yield StoreSnapshot(decode_progress(progress, where=str(self._folder)), taken)
            finally:
                taken.close()
        finally:
            with self._reading:
                self._readers -= 1
                self._reading.notify_all()

    def held(self) -> EngineSnapshot:
        """The live copy at this moment, for one thread. Nothing waits for it: the files stay locked until it is collected."""
        return self._live.snapshot()

    def write(self, changes: Changes, progress: Progress) -> None:
        """Apply changes and progress at once. Raises DiskError if the disk is full: then nothing is applied."""
        check_advances(self._progress, progress)
        self._live.write(changes, {PROGRESS_KEY: encode_progress(progress)})
        self._progress = progress

    def flush(self) -> None:
        """Make what was written so far survive a crash."""
        with self._turn:
            self._live.flush()

    def versions(self) -> range:
        """The versions that can be opened."""
        versions = self._manifest.versions
        return range(versions[0].number, versions[-1].number + 1)

    def version_progress(self, version: int) -> Progress:
        """How far a version is: below the oldest's no log is needed. Raises StateError if there is none."""
        return self._manifest.version(version).progress

    def version_folder(self, version: int) -> Path:
        """The folder of a version's files; they do not change. Version 0 has none. Raises StateError likewise."""
        return self._folder / version_folder(self._manifest.version(version).number)

    def commit(self) -> int:
        """Make the live copy the next version; drop all but the last two. Returns its number.

        1. make the version beside the others   2. name it in the manifest   3. remove those no longer named
        """
        with self._turn:
            last = self._manifest.versions[-1]
            number = last.number + 1
            folder = self._folder / version_folder(number)
            files.remove_folder(folder)
            self._live.checkpoint(folder)
            files.sync_folder(self._folder)
            entry = VersionEntry(number, _progress_in(folder, self._identity, self._memory))
            self._replace_manifest((last, entry), self._manifest.live)
            remove_leftovers(self._folder, self._manifest)
            return number

    def open(self, version: int) -> None:
        """Make `version` the live copy and discard later ones. Raises StateError if it is not in `versions()`."""
        with self._turn:
            chosen = self._manifest.version(version)
            kept = tuple(entry for entry in self._manifest.versions if entry.number <= version)
            source = self._folder / version_folder(version)
            self._replace_live(kept, lambda folder: self._make_live(folder, source if chosen.number else None))

    def close(self) -> None:
        """Flush, and close the files."""
        with self._turn:
            engine = self._detach()
            try:
                if engine is not None:
                    engine.close()
            finally:
                self._lock.close()

    def _detach(self) -> Engine | None:
        """The live copy's engine, which nobody reads any more: what reads it would keep its files locked after its end."""
        with self._reading:
            engine, self._engine = self._engine, None
            self._reading.wait_for(lambda: not self._readers)
        return engine

    @property
    def _live(self) -> Engine:
        if self._engine is None:
            raise ValueError(f"the store in {self._folder} is closed")
        return self._engine

    def _open_live(self) -> Engine:
        assert self._manifest.live is not None
        folder = self._folder / live_folder(self._manifest.live)
        engine = Engine(folder, self._memory)
        try:
            found, self._progress = _told_by(engine, self._identity, folder)
            if found != self._identity:  # its schema is older
                engine.write({IDENTITY_KEY: encode_identity(self._identity)})
        except BaseException:
            engine.close()
            raise
        return engine

    def _make_live(self, folder: Path, source: Path | None) -> None:
        """A copy of a version's folder, or an empty live copy."""
        if source is not None:
            _clone(source, folder)
            return
        engine = Engine(folder, self._memory, create=True)
        try:
            engine.write({IDENTITY_KEY: encode_identity(self._identity), PROGRESS_KEY: encode_progress(EMPTY)})
            engine.flush()
        finally:
            engine.close()

    def _replace_live(self, versions: tuple[VersionEntry, ...], make: Callable[[Path], None]) -> None:
        """1. make the new live copy beside the old   2. name it in the manifest   3. switch to it, remove the old."""
        live = 0 if self._manifest.live is None else self._manifest.live + 1
        folder = self._folder / live_folder(live)
        files.remove_folder(folder)
        make(folder)
        files.sync_folder(self._folder)
        self._replace_manifest(versions, live)
        old = self._detach()
        if old is not None:
            # Nobody needs what the old live copy still has in memory.
            with suppress(DiskError):
                old.close()
        remove_leftovers(self._folder, self._manifest)
        self._engine = self._open_live()

    def _replace_manifest(self, versions: tuple[VersionEntry, ...], live: int | None) -> None:
        manifest = Manifest(self._identity, versions, live)
        write_manifest(self._folder, manifest)
        self._manifest = manifest


def install_version(
    folder: Path, identity: Identity, version: int, fetch: Callable[[Path], None], memory: Memory | None = None
) -> None:
    """Replace all that a store has by one version from elsewhere: when next opened, it continues from there.

    `fetch` fills an empty folder with the version's files. The old contents count until these are complete.
    Raises what `fetch` raises, and StateError if the version is here already, is another identity's, or cannot be read.
    """
    lock = _lock(folder)
    try:
        manifest = read_manifest(folder)
        if manifest is not None:
            check_identity(manifest.identity, identity, where=str(folder))
            if any(entry.number == version for entry in manifest.versions):
                raise StateError(f"version {version} is here already", where=str(folder), hint="open it")
        target = folder / version_folder(version)
        # A unique name: a fetch that was given up may still be writing to its own folder.
        incoming = folder / f"incoming-{uuid4().hex}"
        files.make_folder(incoming)
        try:
            fetch(incoming)
            progress = _progress_in(incoming, identity, memory or Memory())
            # The manifest is durable when it is written. A power cut would lose files that are still in memory then, and
            # what was there before no longer counts.
            files.sync_files(incoming)
        except Exception:
            shutil.rmtree(incoming, ignore_errors=True)  # the next attempt may be much later
            raise
        files.remove_folder(target)
        files.rename(incoming, target)
        files.sync_folder(folder)
        write_manifest(folder, Manifest(identity, (VersionEntry(version, progress),)))
    finally:
        lock.close()


def next_version(folder: Path) -> int:
    """The number for the next version installed in a folder. Raises StateError if the store there cannot be read."""
    manifest = read_manifest(folder)
    return 1 if manifest is None else manifest.versions[-1].number + 1


def make_empty(folder: Path, identity: Identity) -> None:
    """Make a store empty. Until that is complete, its contents count. Raises IdentityError if it is open."""
    lock = _lock(folder)
    try:
        write_manifest(folder, Manifest(identity))
    finally:
        lock.close()


def _lock(folder: Path) -> IO[bytes]:
    """The store's lock, held until the file is closed or the process ends."""
    files.make_folder(folder)
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise IdentityError(
            "the state is in use by another process",
            where=str(folder),
            hint="two workers were given one state folder: end the other one, or give this one a folder of its own",
        ) from None
    return lock


def _manifest_of(folder: Path, identity: Identity) -> Manifest:
    """The manifest of the store in `folder`; makes one if there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        manifest = Manifest(identity)
        write_manifest(folder, manifest)
    check_identity(manifest.identity, identity, where=str(folder))
    return msgspec.structs.replace(manifest, identity=identity)


def _told_by(engine: Engine, identity: Identity, folder: Path) -> tuple[Identity, Progress]:
    """Whose state it holds, which is checked, and how far it is."""
    whose, progress = engine.get([IDENTITY_KEY, PROGRESS_KEY])
    found = decode_identity(whose, where=str(folder))
    check_identity(found, identity, where=str(folder))
    return found, decode_progress(progress, where=str(folder))


def _progress_in(folder: Path, identity: Identity, memory: Memory) -> Progress:
    engine = Engine(folder, memory, read_only=True)
    try:
        return _told_by(engine, identity, folder)[1]
    finally:
        engine.close()


def _clone(source: Path, target: Path) -> None:
    """A second database over the same table files, which never change; the small other files are copied."""
    files.make_folder(target)
    for file in sorted(source.iterdir()):
        if file.suffix == ".sst":
            files.link_file(file, target / file.name)
        else:
            files.copy_file(file, target / file.name)
    files.sync_folder(target)
