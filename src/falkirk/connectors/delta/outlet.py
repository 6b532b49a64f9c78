"""Chunks of rows in a table of Delta Lake. A chunk and the chain's end are one commit of the table
(`falkirk.checkpoint.outlets`):

    1  the table as it is now, at version v. Its application transaction of the partition says where the chain ends: only if
       that is the chunk's start
    2  write the rows to files that no reader sees yet; with a key, as a merge: the rows of gone keys go, the last row of each
       other key replaces the row that is there
    3  commit version v + 1, with the chunk's end as the application transaction. Delta Lake creates a version only if nobody
       has: if somebody has, begin again
    4  in a folder of this host, make the files survive a crash of the machine

Step 3 is the comparison and the write in one: no version lies between the one that was looked at and the one that is written.
The library may not look for a later version by itself: then all would rest on which commits it takes for conflicts.

The application of a partition is `falkirk/APP/SINK/TOPIC ID/PARTITION`. The topic's id keeps apart what was written before
and after a reset. Its version is an offset of the log, and not the number of a step: a chunk has whole steps only, and a
publisher continues at an offset.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import polars as pl

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.delta.client import SAFE, TablePlace, text_of
from falkirk.connectors.delta.tables import Tables, arrow, columns_of, written_as
from falkirk.connectors.files.parquet import StepRows
from falkirk.errors import AwayError, ConfigError, StateError
from falkirk.stream.definition.outlets import GONE, DeltaPlan

ATTEMPTS = 12
"""How often a commit that met another one is tried at once."""
PAUSE = 1.0
"""The longest time between two attempts, in seconds."""
RECENT = 20
"""Versions that are made to survive a crash with the first own one. A worker that was killed may not have done so."""


class Met(Exception):
    """Somebody else has committed the version."""


class DeltaOutlet:
    """`falkirk.checkpoint.outlets.Outlet` for one sink. Each call blocks, for a bounded time."""

    def __init__(self, place: TablePlace, plan: DeltaPlan, app: str, sink: str, topic_id: str) -> None:
        self.place, self.plan = place, plan
        self.tables = Tables(place, plan)
        self._about = {"falkirk.app": app, "falkirk.sink": sink}
        self._chain = f"falkirk/{app}/{sink}/{topic_id}"
        self._table: Any = None
        self._recent = RECENT

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        """The position in the table. Raises StateError if it is before `begin`, and AwayError."""
        table = self._table = self._fit(begin)
        self._recent = RECENT
        found = self._position(table, place)
        if found is None and not begin:
            return begin
        if found is None or found < begin:
            have = "has no position of this partition" if found is None else f"has rows up to offset {found}"
            raise StateError(
                f"the table {have}, and the log begins at offset {begin}: rows in between are missing",
                where=f"{self.place.where}, {place.topic}[{place.partition}]",
                hint="restore the table as it was last; or fill the gap yourself, and commit with it the application "
                f'transaction Transaction("{self._application(place)}", {begin})',
            )
        return found

    async def append(self, chunk: Chunk[Sequence[StepRows]]) -> bool:
        """Commit a chunk and its end, if the position is its start."""
        met: Met | None = None
        for attempt in range(ATTEMPTS):
            if met is not None:
                time.sleep(random.uniform(0, min(PAUSE, 0.02 * 2**attempt)))
            try:
                return self._attempt(chunk)
            except Met as error:
                met = error
            except BaseException:
                self._table = None
                raise
        raise AwayError(
            f"the table met other commits in each of {ATTEMPTS} attempts: {met}",
            where=self.place.where,
            hint=f"see who else writes the table: DeltaTable(…).history(); {SAFE}",
        ) from met

    def _attempt(self, chunk: Chunk[Sequence[StepRows]]) -> bool:
        table = self._current()
        if (self._position(table, chunk.place) or 0) != chunk.start:
            return False
        version = table.version()
        try:
            self._write(table, chunk)
        except self.place.library.exceptions.CommitFailedError as error:
            self._table = None
            if self._current().version() == version:
                raise self.place.worded(error) from error
            raise Met(text_of(error)) from error
        self._sync(version, table.version())
        return True

    def _fit(self, begin: Offset) -> Any:
        """The table, created if nothing was written. What does not fit is a wait here: somebody may fix it meanwhile."""
        try:
            table = self.tables.compare()
        except ConfigError as error:
            raise AwayError(error.what, where=error.where, hint=error.hint) from error
        if table is not None:
            return table
        if begin:
            raise AwayError(
                "the table is gone, and the app has written rows to it",
                where=self.place.where,
                hint="restore the table; or reset the app, to write all rows again: falkirk reset",
            )
        return self.tables.create()

    def _current(self) -> Any:
        """The table as it is now."""
        if self._table is None:
            self._table = self.place.open()
            if self._table is None:
                raise self.place.worded(self.place.library.exceptions.TableNotFoundError(self.plan.url))
            return self._table
        table, self._table = self._table, None
        with self.place.in_words():
            table.update_incremental()
        self._table = table
        return table

    def _application(self, place: TopicPartition) -> str:
        return f"{self._chain}/{place.partition}"

    def _position(self, table: Any, place: TopicPartition) -> Offset | None:
        with self.place.in_words():
            found: int | None = table.transaction_version(self._application(place))
        return None if found is None else Offset(found)

    def _write(self, table: Any, chunk: Chunk[Sequence[StepRows]]) -> None:
        """One commit, at the version after the table's. Raises CommitFailedError and AwayError."""
        first, last = chunk.rows[0], chunk.rows[-1]
        properties = self.place.library.CommitProperties(
            custom_metadata={
                **self._about, "falkirk.task": last.task, "falkirk.steps": f"{first.step}-{last.step}",
            },
            max_commit_retries=0,
            app_transactions=[self.place.library.Transaction(self._application(chunk.place), chunk.end)],
        )  # fmt: skip
        rows = pl.concat([step.rows for step in chunk.rows])
        try:
            if self.plan.key:
                self._merge(table, rows, properties)
            else:
                self._add(table, rows, properties)
        except self.place.library.exceptions.CommitFailedError:
            raise
        except (self.place.library.exceptions.DeltaError, OSError, ValueError, RuntimeError) as error:
            raise self.place.worded(error) from error

    def _add(self, table: Any, rows: pl.DataFrame, properties: Any) -> None:
        there = columns_of(table)
        typed = self._typed(rows, there)
        whole = typed.select(pl.col(n) if n in typed else pl.lit(None, t).alias(n) for n, t in there.items())
        self.place.library.write_deltalake(table, arrow(whole), mode="append", commit_properties=properties)

    def _merge(self, table: Any, rows: pl.DataFrame, properties: Any) -> None:
        version, key = table.version(), self.plan.key
        rows = rows.unique(subset=key, keep="last", maintain_order=True)
        typed = self._typed(rows.drop(GONE), columns_of(table)).with_columns(rows[GONE])
        columns = {quoted(name): f"s.{quoted(name)}" for name in typed.columns if name != GONE}
        others = {name: new for name, new in columns.items() if name not in {*map(quoted, key)}}
        # Not streamed, the library leaves out files by statistics of the whole key. Those of decimals are not exact, so rows
        # would not be found.
        same = [f"t.{quoted(name)} = s.{quoted(name)}" for name in key]
        merge = table.merge(
            arrow(typed), " and ".join([*same, *bounds(typed.select(key), table.metadata().partition_columns)]),
            source_alias="s", target_alias="t", streamed_exec=True, commit_properties=properties,
        ).when_matched_delete(f"s.{quoted(GONE)}")  # fmt: skip
        if others:
            merge = merge.when_matched_update(others)
        merge.when_not_matched_insert(columns, predicate=f"not s.{quoted(GONE)}").execute()
        if table.version() == version:
            # Nothing was there to delete, and a merge without effect commits nothing: the position must move all the same.
            self._add(table, typed.drop(GONE).clear(), properties)

    def _typed(self, rows: pl.DataFrame, there: pl.Schema) -> pl.DataFrame:
        """The rows with the types of the table. After a change of the flow, the log still has rows of before."""
        if missing := [name for name in rows.columns if name not in there]:
            raise AwayError(
                f"the table has no column {missing[0]!r}, and rows that wait have one",
                where=self.place.where,
                hint="add the column: DeltaTable(…).alter.add_columns(…)",
            )
        return rows.cast({name: written_as(dtype) for name, dtype in rows.schema.items()})

    def _sync(self, before: int, after: int) -> None:
        """In a folder, make the versions up to this one survive a crash of the machine: their rows are deleted from Kafka."""
        if (folder := self.place.folder) is None:
            return
        with self.place.in_words():
            for version in range(max(0, before + 1 - self._recent), after + 1):
                with suppress(FileNotFoundError):  # others may tidy up
                    _sync_version(folder, version)
            for each in (folder / "_delta_log", folder, folder.parent):
                _fsync(each)
        self._recent = 0


def _sync_version(folder: Path, version: int) -> None:
    log = folder / "_delta_log" / f"{version:020}.json"
    for line in log.read_bytes().splitlines():
        if (added := msgspec.json.decode(line).get("add")) is not None:
            file = folder / unquote(added["path"])
            with suppress(FileNotFoundError):  # compacted meanwhile
                _fsync(file)
                _fsync(file.parent)
    _fsync(log)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def bounds(keys: pl.DataFrame, partitions: Sequence[str]) -> Iterator[str]:
    """Conditions on the table that all rows with these keys fulfil. The library reads no file that has none such, by its
    statistics or its partition. Only types whose statistics are exact: those of text and times may be cut off.

    >>> print(*bounds(pl.DataFrame({"id": [7, 5], "day": ["b", "a"], "x": ["y", "z"]}), ["day"]))
    t."id" between 5 and 7 t."day" between 'a' and 'b'
    """
    for column in keys:
        exact = column.dtype.is_integer() or column.dtype == pl.Date() or column.name in partitions
        least, most = column.min(), column.max()
        # The library cannot read the least number of 64 bits.
        if (
            exact
            and isinstance(least, int | str | date)
            and not isinstance(least, bool | datetime)
            and least != -(2**63)
        ):
            yield f"t.{quoted(column.name)} between {literal(least)} and {literal(most)}"


def literal(value: object) -> str:
    """A value as the library reads it in a condition.

    >>> literal("it's"), literal(date(2026, 1, 31)), literal(-7)
    ("'it''s'", "date '2026-01-31'", '-7')
    """
    text = "'" + str(value).replace("'", "''") + "'"
    return str(value) if isinstance(value, int) else f"date {text}" if isinstance(value, date) else text


def quoted(name: str) -> str:
    """A name as the library reads it in a condition.

    >>> print(quoted('a "b"'))
    "a ""b""\"
    """
    return '"' + name.replace('"', '""') + '"'
