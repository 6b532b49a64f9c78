"""An object store behind a URL, and what apps have left in it. What one task keeps there: `falkirk.state.checkpoints`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from falkirk.errors import ConfigError, DiskError
from falkirk.state import files
from falkirk.state.store import Identity

if TYPE_CHECKING:
    from obstore import ObjectMeta  # which exists in the stubs alone


def connect(url: str) -> ObjectStore:
    """The object store behind a URL; credentials come from the environment. Raises ConfigError.

    >>> connect("memory:///").__class__.__name__
    'MemoryStore'
    """
    try:
        store: ObjectStore = from_url(url, mkdir=True) if url.startswith("file:") else from_url(url)
    except (BaseError, OSError, ValueError) as error:
        raise ConfigError(
            f"checkpoint store '{url}' cannot be used: {_first_line(error)}",
            hint="give a URL such as file:///folder, s3://bucket/path, gs://bucket/path or az://container/path",
        ) from error
    return store


def incarnations(store: ObjectStore, app: str) -> list[str]:
    """The app's, of which there is something in the store.

    >>> store = connect("memory:///")
    >>> for path in ("app/one/stats/0/versions/7.json", "app/two/stats/1/files/f"):
    ...     _ = obstore.put(store, path, b"")
    >>> incarnations(store, "app"), tasks_of(store, Identity("app", "stats/0", "f00", incarnation="two"), "stats")
    (['one', 'two'], [1])
    """
    return _folders(store, f"{app}/")


def tasks_of(store: ObjectStore, identity: Identity, stage: str) -> list[int]:
    """The tasks of a stage of which there is something in the store."""
    folder = "/".join(filter(None, (identity.app, identity.incarnation, stage)))
    return sorted(int(name) for name in _folders(store, f"{folder}/"))


def _folders(store: ObjectStore, folder: str) -> list[str]:
    return sorted(Path(path).name for path in obstore.list_with_delimiter(store, folder)["common_prefixes"])


class Leftovers:
    """All that one incarnation of an app has in a checkpoint store."""

    def __init__(self, store: ObjectStore, app: str, incarnation: str) -> None:
        self._store, self._folder = store, f"{app}/{incarnation}"

    @property
    def where(self) -> str:
        """As people know it."""
        return place(self._store, self._folder)

    def count(self) -> tuple[int, int]:
        """Objects, and bytes. Raises DiskError."""
        sizes = [meta["size"] for meta in self._list()]
        return len(sizes), sum(sizes)

    def delete(self) -> None:
        """All of it: versions before the files that they name. Raises DiskError."""
        paths = sorted((meta["path"] for meta in self._list()), key=lambda path: "/files/" in path)
        with in_words(self.where):
            for path in paths:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, path)
        if isinstance(self._store, LocalStore):
            files.remove_folder(Path(str(self._store.prefix)) / self._folder)

    def _list(self) -> list[ObjectMeta]:
        with in_words(self.where):
            return [meta for page in obstore.list(self._store, f"{self._folder}/") for meta in page]


def try_out(url: str) -> None:
    """Write, read and delete something. Raises ConfigError and DiskError.

    >>> try_out("memory:///")
    """
    store, path = connect(url), f"falkirk-check-{uuid4().hex}"
    try:
        obstore.put(store, path, b"x")
        same = bytes(obstore.get(store, path).bytes()) == b"x"
        obstore.delete(store, path)
    except (BaseError, OSError) as error:
        hint = "is it there, and do the credentials in the environment let you write, read and delete?"
        raise _unusable(error, url, hint) from error
    if not same:
        raise DiskError("the checkpoint store gives back something else than was written", where=url)


@contextmanager
def in_words(where: str) -> Iterator[None]:
    """What a store raises as a DiskError; but that something is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        hint = "check its address, credentials and space: nothing is lost, and the copy is tried again"
        raise _unusable(error, where, hint) from error


def _unusable(error: Exception, where: str, hint: str) -> DiskError:
    return DiskError(f"the checkpoint store cannot be used: {_first_line(error)}", where=where, hint=hint)


def place(store: ObjectStore, path: str) -> str:
    """An object's whole name, as people know it."""
    return f"{store.prefix}/{path}" if isinstance(store, LocalStore) else f"{path} in {store!r}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
