"""A version in a checkpoint store: a JSON object that names its files, and holds the small ones itself.

A RocksDB version is a few table files and some small ones (CURRENT, MANIFEST, OPTIONS). Each separate object would cost
one request to write and another to read.
"""

from __future__ import annotations

import msgspec

from falkirk.errors import DamagedError, StateError
from falkirk.state import codec
from falkirk.state.meta import UNREADABLE, check_identity
from falkirk.state.store import Identity, Progress

JSON_FORMAT = 2
"""Of a version's JSON; with the codec's format it is the version's format. 1 held no files."""

SMALL = 16 << 10
"""Files up to so many bytes are in the version's JSON."""


class RemoteFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a version."""

    name: str
    hash: str
    size: int
    data: bytes | None = None
    """Its contents; None: it is a separate object."""


class RemoteVersion(msgspec.Struct, frozen=True):
    """A version in the checkpoint store."""

    identity: Identity
    progress: Progress
    files: tuple[RemoteFile, ...]
    format: tuple[int, int] = (JSON_FORMAT, codec.FORMAT)

    @property
    def step(self) -> int:
        """The version's name; a base is before all steps."""
        return self.progress.step

    @property
    def path(self) -> str:
        """Of its json, below the task's folder."""
        return version_path(self.step) if self.step >= 0 else base_path(self.progress.base)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    def objects(self) -> dict[str, int]:
        """The files that are separate objects: sizes by hash."""
        return {file.hash: file.size for file in self.files if file.data is None}


def version_path(step: int) -> str:
    """Of a version's json, below the task's folder."""
    return f"versions/{step}.json"


def base_path(name: int) -> str:
    """Of the json of a backfill's state."""
    return f"bases/{name}.json"


class _Format(msgspec.Struct):
    format: tuple[int, int]


def decode(data: bytes, wanted: Identity, where: str) -> RemoteVersion:
    """A version's json. Raises DamagedError if it cannot be read, StateError if this release or task cannot use it."""
    try:
        found = _decode_format(data).format
        if found not in ((1, codec.FORMAT), (JSON_FORMAT, codec.FORMAT)):
            raise StateError(
                f"a version is of format {found}, and this release reads {(JSON_FORMAT, codec.FORMAT)}",
                where=where,
                hint="use the release that wrote it",
            )
        version = _decode_remoteversion(data)
    except UNREADABLE as error:
        raise damaged(str(error), where) from error
    check_identity(version.identity, wanted, where=where)
    return version


def damaged(why: str, where: str) -> DamagedError:
    """Something in a checkpoint store cannot be used."""
    return DamagedError(
        f"a checkpoint cannot be read: {why}",
        where=where,
        hint="restore that object; or, in the eager regime, delete the task's versions: it is then restored from its "
        "changelog",
    )


# Made at import: the first decoding of a type builds its metadata, and two threads that do so at once can crash.
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_remoteversion = msgspec.json.Decoder(RemoteVersion).decode
