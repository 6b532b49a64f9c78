"""Copies of versions in a checkpoint store: a folder, S3, GCS or Azure, named by a URL.

    URL/app/incarnation/task/files/HASH            one file of a version, named by its contents' hash
                             versions/STEP.json    a version: its files, whose state it is, and how far
                             bases/NAME.json       the same for a state that a backfill made, before the first step

    a version exists  ⇔  its json exists  ⇒  all its files exist

An app that was deleted and made again is another incarnation: their steps 7 are not the same step.

A version's name is its step, which all workers count alike. So a worker that slept and the one that took its task over
cannot give one name to two states, nor delete each other's newer versions.

An upload writes missing files first and the json last; a deletion goes the other way. If either is killed in between, it
leaves the other versions complete, and files that the next deletion finds unreferenced.

A version costs few requests: its new files, its json, and one look whether the version that it shares files with is still
the same. A worker that slept may have replaced it by its own of that step, which has other files; those of the one before
are then nobody's. The existing objects are listed once, before the first upload, and remembered.

A base is named by its backfill. It is not a version before a step has followed it: nobody opens what an abandoned backfill
leaves. If copies of a base are uploaded at once, each replaces the other as a whole, and each is as good.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from obstore.store import ObjectStore

from falkirk.errors import DamagedError, DiskError, StateError
from falkirk.state import files, remote
from falkirk.state.remote import SMALL, RemoteFile, RemoteVersion, base_path, version_path
from falkirk.state.store import EMPTY, GoOn, Identity, Progress, low_watermark
from falkirk.state.task_objects import TaskObjects

GRACE = timedelta(hours=1)
"""How long a file that no version names is kept: an upload that needs it may be under way."""

FRESH = GRACE / 2
"""How long an upload relies on a file that no version names: shorter, as clocks differ and requests take time."""

FileId = tuple[int, int, int]
"""Inode, size and time of the last change: other contents have another."""

Report = Callable[[int, int], None]
"""Called during a copy, with bytes done and bytes in all."""


def always() -> None:
    """For a copy never given up."""


class CheckpointStore:
    """The versions of one task's state in a checkpoint store. Uploads take turns.

    Raises AwayError if the store cannot be reached or written, StateError if its contents cannot be used: DamagedError if
    an older version may do.

    >>> from falkirk.state.objects import connect
    >>> checkpoints = CheckpointStore(connect("memory:///"), Identity("app", "stats/0", "f00"))
    >>> checkpoints.versions()
    []
    """

    def __init__(self, store: ObjectStore, identity: Identity) -> None:
        self._objects = TaskObjects(store, identity)
        self._identity = identity
        self._hashes: dict[FileId, str] = {}
        """Of the files of the version that was uploaded last."""
        self._turn = threading.Lock()
        self._looked = False
        self._newest: RemoteVersion | None = None
        """The last version, or base, that was uploaded or found: its files need not be uploaded again."""
        self._loose: dict[str, tuple[int, float]] = {}
        """Existing files, perhaps in no version yet: their sizes, and until when to rely on them."""
        self._bad: set[str] = set()
        """Files that are damaged or missing."""
        self._floor = EMPTY

    def versions(self) -> list[int]:
        """Steps of the existing versions, lowest first."""
        return _steps(self._objects.list("versions/"))

    def newest(self, limit: int | None = None) -> RemoteVersion | None:
        """The newest version, at step `limit` at most; None if there is none. Raises StateError if it cannot be used."""
        steps = [step for step in self.versions() if limit is None or step <= limit]
        return self.read(steps[-1]) if steps else None

    def newest_readable(self, limit: int) -> RemoteVersion | None:
        """As `newest`, but without those that are damaged: a take-over tries an older one, too. Raises DamagedError if all
        are."""
        steps = [step for step in reversed(self.versions()) if step <= limit]
        for step in steps:
            try:
                return self.read(step)
            except DamagedError:
                if step == steps[-1]:
                    raise
        return None

    def base(self, name: int) -> RemoteVersion | None:
        """The state that a backfill made; None if there is none. Raises StateError if it cannot be used."""
        return self._read(base_path(name)) if base_path(name) in self._objects.list("bases/") else None

    def read(self, step: int) -> RemoteVersion:
        """What a version says about itself. Raises StateError if it cannot be used, by this task or at all."""
        return self._read(version_path(step))

    def _read(self, name: str) -> RemoteVersion:
        return remote.decode(self._objects.get(name), self._identity, self._objects.where(name))

    @property
    def floor(self) -> Progress:
        """The task's low-watermark, by the last two versions that were uploaded here or found before."""
        return self._floor

    def upload(
        self, folder: Path, progress: Progress, report: Report | None = None, go_on: GoOn = always
    ) -> RemoteVersion:
        """Copy a version's missing files to the store. A step's version is copied once, and so is a backfill's base:
        `progress` before the first step means a base.

        1. the missing files   2. the version's json   3. is the version that it shares files with still the same?

        The files of `folder` must be complete until `go_on` raises: its last call is before the json is written.
        """
        with self._turn:
            go_on()
            return self._upload(folder, progress, report, go_on)

    def _upload(self, folder: Path, progress: Progress, report: Report | None, go_on: GoOn) -> RemoteVersion:
        if progress.step < 0 and (base := self.base(progress.base)) is not None:
            return base
        if not self._looked:
            listed = self._look(progress.base)
            if progress.step in listed[:-1]:  # this worker slept, and another has taken the task over
                with suppress(DamagedError):
                    return self.read(progress.step)
        before = self._newest
        if before is not None and before.step == progress.step >= 0:
            if not self._is_same(before):
                before = None
            elif self._is_good(before):
                return before
        files = sorted(file for file in folder.iterdir() if file.name not in ("LOCK", "LOG"))
        version = RemoteVersion(self._identity, progress, self._described(files))
        shared = before.objects() if before is not None else {}
        there = {**shared, **self._relied_on()}
        missing = {
            file.hash: file
            for file in version.files
            if file.data is None and (there.get(file.hash) != file.size or file.hash in self._bad)
        }
        total, done = sum(file.size for file in missing.values()), 0
        for file in missing.values():
            go_on()
            self._objects.put(f"files/{file.hash}", folder / file.name)
            self._bad.discard(file.hash)
            self._loose[file.hash] = (file.size, time.monotonic() + FRESH.total_seconds())
            done += file.size
            if report:
                report(done, total)
        go_on()
        self._objects.put(version.path, msgspec.json.encode(version))
        relied = before is not None and before.step != version.step and shared.keys() & version.objects().keys()
        if before is not None and relied and not self._is_same(before):
            # Another worker, which did not know of this upload, has deleted or replaced it, and may delete its files.
            self._objects.delete([version.path])
            self._newest, self._loose = None, {}
            raise DiskError(
                f"the version of step {version.step} could not be uploaded: files that it needs were deleted meanwhile",
                where=self._objects.folder,
                hint="the next version is uploaded whole",
            )
        self._floor = low_watermark(v.progress for v in (before, version) if v is not None and self._is_good(v))
        self._newest = version
        return version

    def _look(self, base: int) -> list[int]:
        """What exists before the first upload: the newest readable version, which of its files are missing, and files of a
        killed upload. Returns the steps of the versions."""
        listed = self._objects.list("")
        now, until = datetime.now(UTC), time.monotonic() + FRESH.total_seconds()
        for name, meta in listed.items():
            age = now - meta["last_modified"]
            if name.startswith("files/") and age < FRESH:
                self._loose[_hash(name)] = (meta["size"], until - age.total_seconds())
        steps = _steps(listed)
        names = [version_path(step) for step in reversed(steps)]
        for name in [*names, *({base_path(base)} & listed.keys())]:
            with suppress(DamagedError):
                self._newest = self._read(name)
                there = {_hash(file): meta["size"] for file, meta in listed.items()}
                self._bad |= {file for file, size in self._newest.objects().items() if there.get(file) != size}
                break
        self._looked = True
        return steps

    def _relied_on(self) -> dict[str, int]:
        now = time.monotonic()
        self._loose = {name: found for name, found in self._loose.items() if found[1] > now}
        return {name: size for name, (size, _) in self._loose.items()}

    def _is_good(self, version: RemoteVersion) -> bool:
        """Whether a version was not found damaged."""
        return self._bad.isdisjoint(file.hash for file in version.files)

    def _is_same(self, version: RemoteVersion) -> bool:
        """Whether a version still exists, with the same files."""
        try:
            return self._read(version.path) == version
        except StateError:
            return False

    def download(self, version: RemoteVersion, folder: Path, report: Report | None = None) -> None:
        """Copy a version's files to an empty folder. Raises DamagedError if one is missing or has changed.

        They are not synced: the code that uses them does that (`falkirk.state.rocks.install_version`).
        """
        done = 0
        for file in version.files:
            name = version.path if file.data is not None else f"files/{file.hash}"
            if Path(file.name).name != file.name:
                raise remote.damaged(f"'{file.name}' is not a file's name", self._objects.where(version.path))
            found = hashlib.blake2b(digest_size=16)
            try:
                with files.writing(folder / file.name) as out:
                    for data in self._contents(file):
                        found.update(data)
                        out.write(data)
                        done += len(data)
                        if report:
                            report(done, version.size)
                if found.hexdigest() != file.hash:
                    raise remote.damaged("its contents have changed", self._objects.where(name))
            except DamagedError:
                self._bad.add(file.hash)
                raise

    def _contents(self, file: RemoteFile) -> Iterator[bytes]:
        return iter((file.data,)) if file.data is not None else self._objects.stream(f"files/{file.hash}")

    def delete_below(self, step: int, grace: timedelta = GRACE) -> list[int]:
        """Delete the versions below `step`, except the newest of all; and bases, if a version after them is left; then the
        files that no version names.

        Returns the deleted steps. A file younger than `grace` is kept: an upload may be about to name it. Raises StateError
        if a version that stays cannot be read: then no file is deleted, as the version may need it.
        """
        self._objects.tidy(grace)
        listed = self._objects.list("")
        *older, newest = _steps(listed) or [-1]
        gone = [version for version in older if version < step]
        bases = [name for name in listed if name.startswith("bases/")]
        follow = newest >= step >= 0
        self._objects.delete([*map(version_path, gone), *(bases if follow else ())])
        before = datetime.now(UTC) - grace
        found = [name for name, meta in listed.items() if name.startswith("files/") and meta["last_modified"] <= before]
        if found:
            # Listed once more: an upload that has not seen the deletion yet may have named files of deleted versions.
            left = [*map(version_path, self.versions()), *(() if follow else bases)]
            kept = {content for name in left for content in self._read(name).objects()}
            self._objects.delete([name for name in found if _hash(name) not in kept])
        return gone

    def clear(self) -> None:
        """Delete every version, of any schema, and every file."""
        for what in ("versions/", "bases/", "files/"):
            self._objects.delete(list(self._objects.list(what)))

    def _described(self, files: Iterable[Path]) -> tuple[RemoteFile, ...]:
        """Names, hashes and sizes. A table file never changes: it is hashed once for all versions that link to it."""
        known, self._hashes = self._hashes, {}
        return tuple(self._describe(file, known) for file in files)

    def _describe(self, file: Path, known: Mapping[FileId, str]) -> RemoteFile:
        stat = file.stat()
        if stat.st_size <= SMALL:
            data = file.read_bytes()
            return RemoteFile(file.name, hashlib.blake2b(data, digest_size=16).hexdigest(), len(data), data)
        same = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        found = known.get(same)
        if found is None:
            with file.open("rb") as opened:
                found = hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        self._hashes[same] = found
        return RemoteFile(file.name, found, stat.st_size)


def _steps(listed: Iterable[str]) -> list[int]:
    """Steps of the listed versions, lowest first.

    >>> _steps(["files/ab", "versions/10.json", "versions/9.json", "bases/3.json"])
    [9, 10]
    """
    paths = [Path(name) for name in listed if name.startswith("versions/")]
    return sorted(int(path.stem) for path in paths if path.stem.isdigit() and path.suffix == ".json")


def _hash(name: str) -> str:
    """Of a file's object."""
    return name.removeprefix("files/")
