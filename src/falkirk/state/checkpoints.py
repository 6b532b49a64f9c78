"""Copies of versions in a checkpoint store: a folder, S3, GCS or Azure, named by a URL.

    URL/app/incarnation/task/files/HASH            one file of a version, named by what is in it
                             versions/STEP.json    a version: its files, whose state it is, and how far
                             bases/NAME.json       the same of a state that a backfill made, before the first step

    a version is there  ⇔  its json is there  ⇒  all its files are there

An app that was deleted and made anew is another incarnation: step 7 of the one is not step 7 of the other.

A version is named by the step it is at, which all workers count alike: one that slept and another that took its task over
cannot mean two states by one name, nor delete each other's newer versions.

An upload writes files first, those not there already, and the json last; a deletion goes the other way. Killed
anywhere in between, either leaves the other versions whole, and files that the next deletion finds unreferenced.

A base is named by its backfill, and is no version before a step has followed on it: what a backfill leaves behind that was
given up is opened by nobody. Copies of one that are uploaded at once replace each other whole, and each is as good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import obstore
from obstore.store import LocalStore, ObjectStore

from falkirk.errors import DiskError, StateError
from falkirk.state import codec, files
from falkirk.state.manifest import LAYOUT
from falkirk.state.meta import UNREADABLE, check_identity
from falkirk.state.objects import in_words, place
from falkirk.state.store import Identity, Progress

if TYPE_CHECKING:
    from obstore import ObjectMeta  # which exists in the stubs alone

GRACE = timedelta(hours=1)
"""How long a file that no version names is left alone: an upload that needs it may be under way."""

Report = Callable[[int, int], None]
"""Called with bytes done and bytes in all, as a copy goes on."""

_CHUNK = 8 << 20


class RemoteFile(msgspec.Struct, frozen=True):
    """One file of a version."""

    name: str
    hash: str
    size: int


class RemoteVersion(msgspec.Struct, frozen=True):
    """A version in the checkpoint store."""

    identity: Identity
    progress: Progress
    files: tuple[RemoteFile, ...]
    format: tuple[int, int] = (LAYOUT, codec.FORMAT)

    @property
    def step(self) -> int:
        """What it is named by, but for a base, which is before all steps."""
        return self.progress.step

    @property
    def path(self) -> str:
        """Of its json, within those of the task."""
        return f"versions/{self.step}.json" if self.step >= 0 else _base_path(self.progress.base)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


class _Format(msgspec.Struct):
    format: tuple[int, int]


class CheckpointStore:
    """The versions of one task's state in a checkpoint store.

    Raises DiskError when the store cannot be reached or written, StateError when what is there cannot be read.

    >>> from falkirk.state.objects import connect
    >>> checkpoints = CheckpointStore(connect("memory:///"), Identity("app", "stats/0", "f00"))
    >>> checkpoints.versions()
    []
    """

    def __init__(self, store: ObjectStore, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self._prefix = "/".join(filter(None, (identity.app, identity.incarnation, identity.task)))
        self._hashes: dict[tuple[int, int, int], str] = {}

    def versions(self) -> list[int]:
        """Steps of the versions that are there, lowest first."""
        paths = [Path(meta["path"]) for meta in self._list("versions")]
        return sorted(int(path.stem) for path in paths if path.stem.isdigit() and path.suffix == ".json")

    def newest(self, limit: int | None = None) -> RemoteVersion | None:
        """The newest version, at step `limit` at most; None if there is none. Raises StateError if it cannot be used."""
        steps = [step for step in self.versions() if limit is None or step <= limit]
        return self.read(steps[-1]) if steps else None

    def base(self, name: int) -> RemoteVersion | None:
        """The state that a backfill made; None if there is none. Raises StateError if it cannot be used."""
        return self._read(_base_path(name)) if _base_path(name) in self._bases() else None

    def read(self, step: int) -> RemoteVersion:
        """What a version says about itself. Raises StateError if it cannot be used, by this task or at all."""
        return self._read(f"versions/{step}.json")

    def _read(self, name: str) -> RemoteVersion:
        path = f"{self._prefix}/{name}"
        data = self._get(path)
        try:
            found = _decode_format(data).format
            if found != (LAYOUT, codec.FORMAT):
                raise StateError(
                    f"a version is of format {found}, and this release reads {(LAYOUT, codec.FORMAT)}",
                    where=self._where(path),
                    hint="use the release that wrote it",
                )
            version = _decode_remoteversion(data)
        except UNREADABLE as error:
            raise self._damaged(path, str(error)) from error
        check_identity(version.identity, self._identity, where=self._where(path))
        return version

    def upload(self, folder: Path, progress: Progress, report: Report | None = None) -> RemoteVersion:
        """Copy a version's files to the store, those that are not there already. A step's version is copied once, and so is
        a backfill's base: that is what `progress` before the first step is of.

        1. the files that are missing   2. the version's json   3. is every file still there?
        """
        if progress.step < 0 and (base := self.base(progress.base)) is not None:
            return base
        if progress.step in self.versions():
            return self.read(progress.step)
        found = [self._describe(file) for file in sorted(folder.iterdir()) if file.name not in ("LOCK", "LOG")]
        version = RemoteVersion(self._identity, progress, tuple(found))
        there = self._there()
        missing = {file.hash: file for file in version.files if there.get(file.hash) != file.size}
        total, done = sum(file.size for file in missing.values()), 0
        for file in missing.values():
            self._put(self._file_path(file.hash), folder / file.name)
            done += file.size
            if report:
                report(done, total)
        path = f"{self._prefix}/{version.path}"
        self._put(path, msgspec.json.encode(version))
        # Another worker, that had not heard of this upload, may have deleted a file that was there at first.
        there = self._there()
        if any(there.get(file.hash) != file.size for file in version.files):
            self._delete([path])
            raise DiskError(
                f"the version of step {version.step} could not be uploaded: files that it needs were deleted meanwhile",
                where=self._prefix,
                hint="the next version is uploaded whole",
            )
        return version

    def download(self, version: RemoteVersion, folder: Path, report: Report | None = None) -> None:
        """Copy a version's files to an empty folder. Raises StateError if one is missing or has changed."""
        done = 0
        for file in version.files:
            target = folder / file.name
            if Path(file.name).name != file.name:
                raise self._damaged(version.path, f"'{file.name}' is not a file's name")
            found = hashlib.blake2b(digest_size=16)
            with self._errors(self._file_path(file.hash)), target.open("wb") as out:
                for chunk in obstore.get(self._store, self._file_path(file.hash)).stream(min_chunk_size=_CHUNK):
                    data = bytes(chunk)
                    found.update(data)
                    out.write(data)
                    done += len(data)
                    if report:
                        report(done, version.size)
            if found.hexdigest() != file.hash:
                raise self._damaged(self._file_path(file.hash), "its contents have changed")

    def delete_below(self, step: int, grace: timedelta = GRACE) -> list[int]:
        """Delete the versions below `step` but for the newest of all, and bases where one is left, which follows on them;
        then the files that no version names.

        Returns the steps deleted. A file younger than `grace` is left: an upload may be about to name it.
        """
        *older, newest = self.versions() or [-1]
        gone = [version for version in older if version < step]
        self._delete([f"{self._prefix}/versions/{version}.json" for version in gone])
        if newest >= step >= 0:
            self._delete([f"{self._prefix}/{base}" for base in self._bases()])
        before = datetime.now(UTC) - grace
        candidates = [meta["path"] for meta in self._list("files") if meta["last_modified"] <= before]
        left = [*map(self.read, self.versions()), *map(self._read, self._bases())]
        kept = {self._file_path(file.hash) for version in left for file in version.files}
        self._delete([path for path in candidates if path not in kept])
        return gone

    def clear(self) -> None:
        """Delete every version, of whatever schema, and every file."""
        for what in ("versions", "bases", "files"):
            self._delete([meta["path"] for meta in self._list(what)])

    def _describe(self, file: Path) -> RemoteFile:
        """Name, hash and size; a table file never changes, and is hashed once however many versions link to it."""
        stat = file.stat()
        known = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if known not in self._hashes:
            with file.open("rb") as data:
                self._hashes[known] = hashlib.file_digest(data, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        return RemoteFile(file.name, self._hashes[known], stat.st_size)

    def _bases(self) -> list[str]:
        return [f"bases/{Path(meta['path']).name}" for meta in self._list("bases") if meta["path"].endswith(".json")]

    def _file_path(self, content: str) -> str:
        return f"{self._prefix}/files/{content}"

    def _there(self) -> dict[str, int]:
        """Sizes of the files in the store, by hash."""
        return {Path(meta["path"]).name: meta["size"] for meta in self._list("files")}

    def _list(self, what: str) -> list[ObjectMeta]:
        with self._errors(self._prefix):
            return [meta for page in obstore.list(self._store, f"{self._prefix}/{what}/") for meta in page]

    def _get(self, path: str) -> bytes:
        with self._errors(path):
            return bytes(obstore.get(self._store, path).bytes())

    def _put(self, path: str, data: bytes | Path) -> None:
        with self._errors(path):
            obstore.put(self._store, path, data)
        if isinstance(self._store, LocalStore):
            files.sync_tree(Path(str(self._store.prefix)), path)

    def _delete(self, paths: list[str]) -> None:
        for path in paths:
            # Another worker may have deleted it first.
            with self._errors(path), suppress(FileNotFoundError):
                obstore.delete(self._store, path)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            with in_words(self._where(path)):
                yield
        except FileNotFoundError as error:
            raise self._damaged(path, "it is not there") from error

    def _where(self, path: str) -> str:
        return place(self._store, path)

    def _damaged(self, path: str, why: str) -> StateError:
        return StateError(
            f"a checkpoint cannot be read: {why}",
            where=self._where(path),
            hint="restore that object; or, in the eager regime, delete the task's versions: it is then restored from its "
            "changelog",
        )


def _base_path(name: int) -> str:
    return f"bases/{name}.json"


# Made at import: a type's first decoding builds what is known of it, and two threads that do so at once can crash.
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_remoteversion = msgspec.json.Decoder(RemoteVersion).decode
