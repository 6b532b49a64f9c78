"""An object store behind a URL, and what apps left in it. For what one task keeps there: `falkirk.state.checkpoints`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from falkirk.errors import AwayError, ConfigError, DiskError
from falkirk.state import files
from falkirk.state.store import Identity

if TYPE_CHECKING:  # these exist only in the stubs
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

CLIENT_KEYS = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    )
)
"""Settings of obstore's HTTP client that the environment may give."""


CLIENT: ClientConfig = {"connect_timeout": "3s", "read_timeout": "20s", "timeout": "10m"}
"""How long one try of a request may take: to connect, and without a byte of the answer. The last limits a file's whole
download; obstore's own 30 s would cut off large ones."""

RETRIES: RetryConfig = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
"""A server that hangs fails a request once (20 s); one that refuses, four times (below 5 s). obstore's own settings try
for three minutes. Here the caller decides whether to wait, and says so."""

PREFIXES = {"s3": "AWS_", "gcs": "GOOGLE_", "azure": "AZURE_"}
"""The prefix of a store kind's settings in the environment."""


def connect(url: str) -> ObjectStore:
    """The object store behind a URL; credentials come from the environment. Raises ConfigError.

    >>> connect("memory:///").__class__.__name__
    'MemoryStore'
    """
    check_url(url, "the checkpoint store")
    try:
        store: ObjectStore
        match obstore.parse_scheme(url):
            case "local":
                store = from_url(url, mkdir=True)
            case "memory":
                store = from_url(url)
            case kind:
                store = from_url(url, client_options=client_options(kind, os.environ), retry_config=RETRIES)
    except (BaseError, OSError, ValueError) as error:
        raise ConfigError(
            f"checkpoint store '{url}' cannot be used: {_first_line(error)}",
            hint="give a URL such as file:///folder, s3://bucket/path, gs://bucket/path or az://container/path",
        ) from error
    return store


def check_url(url: str, what: str) -> None:
    """Raises ConfigError for a URL that ends, to libraries, at a # or ?: they would use the folder before that sign.

    >>> check_url("s3://bucket/c%23", "the place")
    >>> check_url("s3://bucket/c#/a", "the place")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: the place has a # or ? in its URL, which would end there
      where: s3://bucket/c
      to do: write %23 for # and %3F for ?; credentials come from the environment
    """
    if "://" in url and ("#" in url or "?" in url):
        raise ConfigError(
            f"{what} has a # or ? in its URL, which would end there",
            where=re.split("[#?]", url)[0],  # what follows may be a secret
            hint="write %23 for # and %3F for ?; credentials come from the environment",
        )


def client_options(kind: str, environment: Mapping[str, str]) -> ClientConfig:
    """Our time-outs, overridden by the environment: if we give options, obstore looks for none there.

    >>> client_options("s3", {"AWS_ALLOW_HTTP": "true", "AWS_READ_TIMEOUT": "2s", "AWS_REGION": "eu-1"})
    {'connect_timeout': '3s', 'read_timeout': '2s', 'timeout': '10m', 'allow_http': 'true'}
    """
    prefix = PREFIXES.get(kind, "HTTP_")
    given = {key.removeprefix(prefix).lower(): value for key, value in environment.items() if key.startswith(prefix)}
    options: dict[str, object] = {**CLIENT, **{key: value for key, value in given.items() if key in CLIENT_KEYS}}
    return options  # type: ignore[return-value]  # obstore reads each of them from text, too


def incarnations(store: ObjectStore, app: str) -> list[str]:
    """The app's incarnations with objects in the store.

    >>> store = connect("memory:///")
    >>> for path in ("app/one/stats/0/versions/7.json", "app/two/stats/1/files/f"):
    ...     _ = obstore.put(store, path, b"")
    >>> incarnations(store, "app"), tasks_of(store, Identity("app", "stats/0", "f00", incarnation="two"), "stats")
    (['one', 'two'], [1])
    """
    return _folders(store, f"{app}/")


def tasks_of(store: ObjectStore, identity: Identity, stage: str) -> list[int]:
    """The tasks of a stage with objects in the store."""
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
        """For people."""
        return place(self._store, self._folder)

    def count(self) -> tuple[int, int]:
        """Objects, and bytes. Raises DiskError."""
        sizes = [meta["size"] for meta in self._list()]
        return len(sizes), sum(sizes)

    def delete(self) -> None:
        """Delete all: versions before the files they name. Raises DiskError."""
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
    """A store's errors as AwayError, except if an object is missing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        hint = "check its address, credentials and space: nothing is lost, and the copy is tried again"
        raise _unusable(error, where, hint) from error


def _unusable(error: Exception, where: str, hint: str) -> AwayError:
    return AwayError(f"the checkpoint store cannot be used: {_first_line(error)}", where=where, hint=hint)


def place(store: ObjectStore, path: str) -> str:
    """An object's full name, for people."""
    return f"{store.prefix}/{path}" if isinstance(store, LocalStore) else f"{path} in {store!r}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
