"""The answers of one HTTP source, on this host's disk: a copy of the topic of answers, by key, for as long as keys count.

    answers      key → when, digest, rows         the first of each counts (`Answer.with_record`)
    positions    partition → the offset behind the last record that is in the table

Both change in one transaction, so that the table always is a function of the topic up to the positions. It is a copy: if it
is lost, or the topic is another one, it is read again. One thread writes, another one reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
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

# `Answer.with_record`, where most keys are new ones. An update reads the values from before it, in each of its terms.
_ADD = """
insert into answers values (?1, ?2, ?3, ?4) on conflict (key) do update set
    at = iif(?2 - at > ?5, ?2, at),
    digest = iif(?2 - at > ?5, ?3, coalesce(digest, ?3)),
    rows = iif(?2 - at > ?5, ?4, coalesce(rows, ?4))
"""


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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _opened(path)
            known = dict(self._writer.execute("select name, value from meta"))
            if known and known != {"topic": topic_id, "format": FORMAT}:
                self._writer.close()
                raise sqlite3.DatabaseError
        except sqlite3.DatabaseError:
            # Damaged, or of another topic: it is a copy.
            self._remove()
            self._writer = _opened(path)
        except OSError as error:
            raise _disk(error, path) from error
        with self._writer:
            self._writer.execute("insert or replace into meta values ('topic', ?), ('format', ?)", (topic_id, FORMAT))
        self._reader = _opened(path)

    def _remove(self) -> None:
        for end in ("", "-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)

    def positions(self) -> dict[int, int]:
        """Where to go on reading, by partition. A partition without a position has not been read."""
        return dict(self._writer.execute("select partition, next from positions"))

    def get(self, key: str) -> Answer | None:
        """What is known of a key's answer, however old. Raises DiskError."""
        try:
            row = self._reader.execute("select at, digest, rows from answers where key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise _disk(error, self._path) from error
        return None if row is None else Answer(*row)

    def add(self, heard: Iterable[Heard], positions: Mapping[int, int]) -> None:
        """Take records in, in the order of their partitions, up to these positions. Raises DiskError."""
        try:
            with self._writer:
                given = ((one.key, one.at, one.digest, one.rows, self._keep) for one in heard)
                self._writer.executemany(_ADD, given)
                self._writer.executemany("insert or replace into positions values (?, ?)", positions.items())
        except sqlite3.Error as error:
            raise _disk(error, self._path) from error

    def sweep(self, before: int) -> bool:
        """Delete some of the answers that were first heard of before this time (milliseconds). Whether more may be left.
        Raises DiskError."""
        old = "select key from answers where at < ? order by at limit ?"
        try:
            with self._writer:
                done = self._writer.execute(f"delete from answers where key in ({old})", (before, SWEPT))
        except sqlite3.Error as error:
            raise _disk(error, self._path) from error
        return done.rowcount == SWEPT

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
        self._writer.close()


def _opened(path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(path, timeout=10, check_same_thread=False)
    # A crash of the host may lose the last transactions, and they are read from the topic again.
    made.execute("pragma journal_mode = wal")
    made.execute("pragma synchronous = normal")
    made.executescript(_SCHEMA)
    return made


def _disk(error: OSError | sqlite3.Error, path: Path) -> DiskError:
    return DiskError(
        f"the answers cannot be kept: {error}", where=str(path), hint="free some space, or choose another --state-dir"
    )
