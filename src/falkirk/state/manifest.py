"""The manifest: the one file that says what counts in a store's folder.

    folder = manifest.json · lock · live-L · version-N for each version listed except 0, which is empty

A change to the store is made beside what counts. It counts as soon as the manifest is replaced. Everything else in the
folder under such a name is left from a crash: it is removed when the store is opened.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from falkirk.errors import StateError
from falkirk.state import codec, files
from falkirk.state.meta import UNREADABLE, damaged
from falkirk.state.store import EMPTY, Identity, Progress

FILE = "manifest.json"

FOLDER_FORMAT = 1
"""With the codec's format it is the store's format."""


class VersionEntry(msgspec.Struct, frozen=True):
    """A version, and how far it is: it needs logs from there on."""

    number: int
    progress: Progress


class Manifest(msgspec.Struct, frozen=True):
    """What counts in a store's folder."""

    identity: Identity
    versions: tuple[VersionEntry, ...] = (VersionEntry(0, EMPTY),)
    live: int | None = None
    """Number of the live copy's folder; None: still to be made, from the last version."""
    format: tuple[int, int] = (FOLDER_FORMAT, codec.FORMAT)

    def version(self, number: int) -> VersionEntry:
        """The entry of one version. Raises StateError if there is none."""
        for entry in self.versions:
            if entry.number == number:
                return entry
        raise StateError(
            f"there is no version {number} of the state of {self.identity.task}: "
            f"there are {', '.join(str(entry.number) for entry in self.versions)}"
        )

    def folders(self) -> set[str]:
        """Names of the folders that count."""
        named = {version_folder(entry.number) for entry in self.versions if entry.number}
        return named if self.live is None else named | {live_folder(self.live)}


def live_folder(number: int) -> str:
    """Name of a live copy's folder."""
    return f"live-{number}"


def version_folder(number: int) -> str:
    """Name of a version's folder."""
    return f"version-{number}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a store's folder; None if no store exists. Raises StateError if it is unreadable, or gone."""
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        if any(folder.glob("live-*")):
            raise damaged(f"its {FILE} is missing", str(folder)) from None
        return None
    except OSError as error:
        raise damaged(str(error), str(folder)) from error
    try:
        found = _decode_format(data).format
        if found != (FOLDER_FORMAT, codec.FORMAT):
            raise StateError(
                f"the state is of format {found}, and this release reads {(FOLDER_FORMAT, codec.FORMAT)}",
                where=str(folder),
                hint="use the release that wrote it, or move the folder away to have the task restored",
            )
        return _decode_manifest(data)
    except UNREADABLE as error:
        raise damaged(f"its {FILE} is damaged ({error})", str(folder)) from error


class _Format(msgspec.Struct):
    format: tuple[int, int]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest: from now on `manifest` counts, also after a crash."""
    files.replace_file(folder / FILE, msgspec.json.format(msgspec.json.encode(manifest)))


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Remove what a crash left: folders of the store that the manifest does not name."""
    for pattern in ("live-*", "version-*", "incoming-*"):
        for found in folder.glob(pattern):
            if found.name not in manifest.folders():
                files.remove_folder(found)


# Made at import: the first decoding of a type builds its metadata, and two threads that do so at once can crash.
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode
