"""File operations on a store's folder. Each raises DiskError if the disk is full, or refuses."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import BinaryIO, ParamSpec

from falkirk.errors import DiskError

P = ParamSpec("P")


def _raises_disk_error(operation: Callable[P, None]) -> Callable[P, None]:
    """Turns an operation's OSError into a DiskError that says what to do."""

    @wraps(operation)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            operation(*args, **kwargs)
        except OSError as error:
            raise disk_error(error.strerror or str(error), Path(str(error.filename or args[0]))) from error

    return run


def disk_error(why: str, path: Path) -> DiskError:
    """A DiskError for `path`, with a hint that fits the reason."""
    full = any(os.strerror(code) in why for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    hint = "make room there and start again: nothing is lost" if full else "check the folder's disk and permissions"
    return DiskError(f"state cannot be written: {why}", where=str(path), hint=hint)


@_raises_disk_error
def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@_raises_disk_error
def sync_files(folder: Path) -> None:
    """Make all files in a folder, written by others, and their names survive a crash of the machine."""
    for file in sorted(folder.iterdir()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    sync_folder(folder)


@_raises_disk_error
def sync_tree(root: Path, path: str) -> None:
    """Make a file that others wrote, and the names from `root` to it, survive a crash."""
    file = root / path
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    for parent in file.parents:
        sync_folder(parent)
        if parent == root:
            break


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that is written piece by piece. It is not synced."""
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise disk_error(error.strerror or str(error), path) from error


@_raises_disk_error
def write_file(path: Path, data: bytes) -> None:
    """Write a file, on the disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@_raises_disk_error
def replace_file(path: Path, data: bytes) -> None:
    """Give a file new contents: after a crash it has the old ones or the new ones."""
    new = path.with_name(path.name + ".new")
    write_file(new, data)
    rename(new, path)
    sync_folder(path.parent)


@_raises_disk_error
def rename(old: Path, new: Path) -> None:
    """Atomic within one folder."""
    old.replace(new)


@_raises_disk_error
def make_folder(path: Path) -> None:
    """Make a folder, and the ones above it; an existing one is kept."""
    path.mkdir(parents=True, exist_ok=True)


@_raises_disk_error
def link_file(source: Path, target: Path) -> None:
    """A second name for a file that never changes."""
    os.link(source, target)


@_raises_disk_error
def copy_file(source: Path, target: Path) -> None:
    """A copy of a file that will change."""
    write_file(target, source.read_bytes())


def discard_folder(path: Path) -> None:
    """Remove a folder as a whole: a crash leaves all of it under its name, or nothing."""
    gone = path.with_name(path.name + ".gone")
    remove_folder(gone)
    rename(path, gone)
    remove_folder(gone)


@_raises_disk_error
def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it; a missing one is fine. Another process may be removing it, too."""
    while path.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
