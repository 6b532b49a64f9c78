"""The answers of one HTTP source, on this host's disk: a copy of the topic of answers, by key, for as long as keys count.

    answers      key → when, digest, rows         the first of each counts (`Answer.with_record`)
    positions    partition → the offset behind the last record that is in the table

Both change in one transaction, so that the table always is a function of the topic up to the positions, and of the time for
which keys count. It is a copy: if it is lost or damaged, or made of another topic or time, it is read again. One thread
writes, another one reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from falkirk.errors import DiskError
from falkirk.runtime.gateway.answers import Answer

FORMAT = "1"
SWEPT = 20_000
"""Expired answers that are deleted at a time."""

_SCHEMA = """
create table if not exists meta (name text primary key, value text) without rowid;
create table if not exists positions (partition integer primary key, next integer);
create table if not exists answers (key text primary key, at integer, digest text, rows blob) without rowid;
create index if not exists by_time on answers (at);
"""

_FREE = "?2 - at > ?5 and not (?3 is null and digest is not null and rows is null)"
# `Answer.with_record`, where most keys are new ones. An update reads the values from before it, in each of its terms.
_ADD = f"""
insert into answers values (?1, ?2, ?3, ?4) on conflict (key) do update set
    at = iif({_FREE}, ?2, at),
    digest = iif({_FREE}, ?3, coalesce(digest, ?3)),
    rows = iif({_FREE}, ?4, coalesce(rows, ?4))
"""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Heard(NamedTuple):
    """A record of the topic of answers."""

    key: str
    digest: str | None
    rows: bytes | None
    at: int
    """Milliseconds since 1970, by the broker's clock."""


class Table:
    """The answers of one source."""

    def __init__(self, path: Path, topic_id: str, keep: int) -> None:
        """`topic_id`: of the topic of answers. `keep`: milliseconds. Raises DiskError."""
        self._path, self._keep = path, keep
        made_of = {"topic": topic_id, "keep": str(keep), "format": FORMAT}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _copy(path, made_of)
            with self._writer:
                self._writer.executemany("insert or replace into meta values (?, ?)", made_of.items())
            self._reader = _opened(path)
        except (OSError, sqlite3.Error) as error:
            raise _disk(error, path) from error

    def positions(self) -> dict[int, int]:
        """Where to go on reading, by partition. A partition without a position has not been read. Raises DiskError."""
        with self._in_words():
            return dict(self._writer.execute("select partition, next from positions"))

    def get(self, key: str) -> Answer | None:
        """What is known of a key's answer, however old. Raises DiskError."""
        with self._in_words():
            row = self._reader.execute("select at, digest, rows from answers where key = ?", (key,)).fetchone()
        return None if row is None else Answer(*row)

    def add(self, heard: Iterable[Heard], positions: Mapping[int, int]) -> None:
        """Take records in, in the order of their partitions, up to these positions. Raises DiskError."""
        with self._in_words(), self._writer:
            given = ((one.key, one.at, one.digest, one.rows, self._keep) for one in heard)
            self._writer.executemany(_ADD, given)
            self._writer.executemany("insert or replace into positions values (?, ?)", positions.items())

    def sweep(self, before: int) -> bool:
        """Delete some of the answers that were first heard of before this time (milliseconds). Whether more may be left.
        Raises DiskError."""
        old = "select key from answers where at < ? order by at limit ?"
        with self._in_words(), self._writer:
            done = self._writer.execute(f"delete from answers where key in ({old})", (before, SWEPT))
        return done.rowcount == SWEPT

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
        self._writer.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _disk(error, self._path) from error


def _copy(path: Path, made_of: Mapping[str, str]) -> sqlite3.Connection:
    """The file that is there, if it is whole and made of this; or else an empty one."""
    try:
        found = _opened(path)
        known = dict(found.execute("select name, value from meta"))
        if not known or known == made_of:
            return found
        found.close()
    except sqlite3.DatabaseError:
        pass
    _remove(path)
    return _opened(path)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(path, timeout=10, check_same_thread=False)
    # A crash of the host may lose the last transactions, and they are read from the topic again.
    made.execute("pragma journal_mode = wal")
    made.execute("pragma synchronous = normal")
    made.executescript(_SCHEMA)
    return made


def _disk(error: OSError | sqlite3.Error, path: Path) -> DiskError:
    hint = "free some space, or choose another --state-dir"
    if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGED:
        # Its first pages may be whole, so that the next start would find nothing wrong with it.
        _remove(path)
        hint = "start it again: they are read from their topic again"
    return DiskError(f"the answers cannot be kept: {error}", where=str(path), hint=hint)
