"""The objects of one task in a checkpoint store, by their names below the task's folder; errors are in words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import LocalStore, ObjectStore

from falkirk.errors import AwayError
from falkirk.state import files, remote
from falkirk.state.objects import in_words, place
from falkirk.state.store import Identity

if TYPE_CHECKING:
    from obstore import ObjectMeta  # exists only in the stubs

_CHUNK = 1 << 20
"""Bytes of a download between two reports."""


class TaskObjects:
    """One task's.

    Raises AwayError if the store cannot be reached or written, DamagedError if an object that is read is missing.

    >>> from falkirk.state.objects import connect
    >>> objects = TaskObjects(connect("memory:///"), Identity("app", "stats/0", "f00"))
    >>> objects.put("files/ab", b"1")
    >>> objects.get("files/ab"), list(objects.list("files/"))
    (b'1', ['files/ab'])
    """

    def __init__(self, store: ObjectStore, identity: Identity) -> None:
        self._store = store
        self.folder = "/".join(filter(None, (identity.app, identity.incarnation, identity.task)))

    def where(self, name: str) -> str:
        """An object's full name, for people."""
        return place(self._store, self._path(name))

    def list(self, what: str) -> dict[str, ObjectMeta]:
        """The objects below a folder of the task's."""
        with self._errors(self.folder):
            pages = obstore.list(self._store, self._path(what))
            return {meta["path"].removeprefix(f"{self.folder}/"): meta for page in pages for meta in page}

    def get(self, name: str) -> bytes:
        """An object's contents."""
        with self._errors(self._path(name)):
            return bytes(obstore.get(self._store, self._path(name)).bytes())

    def stream(self, name: str) -> Iterator[bytes]:
        """The same, in pieces."""
        with self._errors(self._path(name)):
            for chunk in obstore.get(self._store, self._path(name)).stream(min_chunk_size=_CHUNK):
                yield bytes(chunk)

    def put(self, name: str, data: bytes | Path) -> None:
        """Write an object. In a folder, it is synced when this returns."""
        with self._errors(self._path(name)):
            # Few parts of a large file at once: over a slow line they share the time-out.
            obstore.put(self._store, self._path(name), data, max_concurrency=2)
        if isinstance(self._store, LocalStore):
            files.sync_tree(Path(str(self._store.prefix)), self._path(name))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing one is fine."""
        paths = [self._path(name) for name in names]
        with self._errors(self.folder):
            if isinstance(self._store, LocalStore):
                self._delete_each(paths)
            elif paths:
                try:
                    obstore.delete(self._store, paths)
                except FileNotFoundError:
                    self._delete_each(paths)

    def tidy(self, grace: timedelta) -> None:
        """In a folder, delete what killed uploads have left, if it is older than `grace`. The library writes an object to
        NAME#NUMBER, which it does not list, and then renames it."""
        if isinstance(self._store, LocalStore):
            before = time.time() - grace.total_seconds()
            with self._errors(self.folder):
                for part in (Path(str(self._store.prefix)) / self.folder).glob("*/*#*"):
                    with suppress(FileNotFoundError):
                        if part.stat().st_mtime <= before:
                            part.unlink()

    def _delete_each(self, paths: Iterable[str]) -> None:
        """Some stores report a missing object: another worker may have deleted it first."""
        for path in paths:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, path)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        where = place(self._store, path)
        if isinstance(self._store, LocalStore) and not Path(str(self._store.prefix)).is_dir():
            raise AwayError(  # otherwise it is listed as empty, and written to on the disk below
                "the checkpoint store cannot be used: its folder is not there",
                where=where,
                hint="mount it again; nothing is lost meanwhile",
            )
        try:
            with in_words(where):
                yield
        except FileNotFoundError as error:
            raise remote.damaged("it is not there", where) from error
