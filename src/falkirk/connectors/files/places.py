"""Folders and buckets that files appear in as a whole, each name only once.

    folder   a file beside the folder is written and synced, then linked to its name: a link fails if the name exists
    bucket   one conditional request (If-None-Match): the store refuses it if the name exists

A folder `.NAME.unfinished` beside it has the unfinished files: Polars reads even hidden files of a folder. It must be on the
same file system, which must have hard links. A process that is killed leaves at most a file there, which is deleted when it
is an hour old.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore

from falkirk.errors import AwayError, ConfigError
from falkirk.state.objects import check_url, connect

CHECK = ".falkirk-check-"
"""What the names of files begin with that are written to try a place out."""
OLD = 3600.0
"""Seconds after which an unfinished file is nobody's any more."""


class Place(Protocol):
    """Where files are. Each call raises AwayError if the place does not answer or refuses."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file visible, as a whole. False: one of this name exists, and stays as it is."""
        ...

    def names(self, prefix: str, after: str) -> list[str]:
        """The names of files with this prefix that are not below `after`."""
        ...

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file: at most `size`."""
        ...

    def try_out(self) -> None:
        """Whether it can be written to."""
        ...


def place_at(url: str) -> Place:
    """The folder or bucket at a URL. A text without a scheme is a folder. Raises ConfigError.

    >>> place_at("memory:///").__class__.__name__, place_at("archive").__class__.__name__
    ('Bucket', 'Folder')
    """
    check_url(url, "the place for files")
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Folder(Path(unquote(parts.path) if parts.scheme else url))
    try:
        return Bucket(connect(url), url)
    except ConfigError as error:
        raise ConfigError(
            error.what.replace("checkpoint store", "the place for files", 1), where=url, hint=error.hint
        ) from error


class Folder:
    """A folder of this host, or one that it has mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._unfinished = self.path.with_name(f".{self.path.name}.unfinished")
        self._tidied = False

    def create(self, name: str, data: bytes) -> bool:
        with _in_words(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            self._unfinished.mkdir(exist_ok=True)
            self._tidy()
            hidden = self._unfinished / uuid4().hex
            try:
                with hidden.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(hidden, self.path / name)
                except FileExistsError:
                    return False
                finally:
                    self._sync()
            finally:
                hidden.unlink(missing_ok=True)
            return True

    def names(self, prefix: str, after: str) -> list[str]:
        with _in_words(str(self.path)):
            if not self.path.is_dir():
                return []
            names = [file.name for file in self.path.iterdir()]
            return [name for name in names if name.startswith(prefix) and name >= after]

    def tail(self, name: str, size: int) -> bytes:
        with _in_words(str(self.path)), (self.path / name).open("rb") as file:
            file.seek(-min(size, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read()

    def try_out(self) -> None:
        name = f"{CHECK}{uuid4().hex}"
        self.create(name, b"x")
        with _in_words(str(self.path)):
            (self.path / name).unlink()

    def _sync(self) -> None:
        """Make its names survive a crash of the machine: what is in the file is deleted from Kafka then."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _tidy(self) -> None:
        if self._tidied:
            return
        self._tidied = True
        for file in self._unfinished.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > OLD:
                    file.unlink()


class Bucket:
    """A folder in an object store."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self.store, self.url = store, url

    def create(self, name: str, data: bytes) -> bool:
        with _in_words(self.url):
            try:
                obstore.put(self.store, name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def names(self, prefix: str, after: str) -> list[str]:
        # Stores list what follows a name, without the name itself.
        before = after[:-1] + chr(ord(after[-1]) - 1)
        with _in_words(self.url):
            found: list[str] = []
            for page in obstore.list(self.store, offset=before):
                found += [meta["path"] for meta in page if meta["path"].startswith(prefix) and meta["path"] >= after]
                # Stores list in the order of names. Where one does not, a missed file is noticed when it is written again.
                if page and page[-1]["path"] > f"{prefix}~":
                    break
        return found

    def tail(self, name: str, size: int) -> bytes:
        with _in_words(self.url):
            whole = obstore.head(self.store, name)["size"]
            start = max(0, whole - size)
            return bytes(obstore.get_range(self.store, name, start=start, end=whole))

    def try_out(self) -> None:
        name = f"{CHECK}{uuid4().hex}"
        if not self.create(name, b"x") or self.create(name, b"y"):
            raise AwayError(
                "the bucket replaces a file that exists, though it is asked not to",
                where=self.url,
                hint="use a store with conditional writes (If-None-Match), as S3, GCS, Azure, MinIO and R2 have",
            )
        with _in_words(self.url):
            obstore.delete(self.store, name)


@contextmanager
def _in_words(where: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError) as error:
        why = str(error).partition("\n")[0]
        raise AwayError(
            f"files cannot be written or listed: {why}",
            where=where,
            hint="check its address, credentials and space; nothing is lost: the rows wait in Kafka",
        ) from error
