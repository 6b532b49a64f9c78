"""Chunks of rows in a table. Its rows and the chain's end are written in one transaction (`falkirk.checkpoint.outlets`):

    1  begin
    2  the position of the partition: only if it is the chunk's start, set it to the chunk's end. Another writer waits here
       for the lock of that row, and then finds another position
    3  with a key: delete the rows that are gone, and insert or replace the last row of each other key; without: insert
    4  commit

`falkirk_positions` has one row for each app, sink, topic id and partition. The topic's id keeps apart what was written before
and after a reset.

The rows and the position are in one database. If it is restored to an earlier time, the chain goes on from there, as long as
the log still has what follows. If it has not, `end` raises an error: rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import polars as pl

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.postgres.client import Database, driver, identifier
from falkirk.connectors.postgres.tables import Tables
from falkirk.errors import AwayError, ConfigError, StateError
from falkirk.stream.definition.outlets import GONE, TablePlan, postgres_type
from falkirk.stream.formats.types import instance

PIECE = 5_000
"""Rows of one statement."""
ATTEMPTS = 5
"""How often a transaction that met another one is tried at once."""

_encode = msgspec.json.Encoder(decimal_format="number").encode


class PostgresOutlet:
    """`falkirk.checkpoint.outlets.Outlet` for one sink. Each call blocks, for a bounded time."""

    def __init__(self, database: Database, plan: TablePlan, app: str, sink: str, topic_id: str) -> None:
        self.database, self.plan = database, plan
        self.tables = Tables(database, plan)
        self._chain = (app, sink, topic_id)
        self._psycopg = driver()

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        """The position in the database. Raises StateError if it is before `begin`, and AwayError."""
        self._fit()
        found: Offset | None = self._transaction(lambda: self._position(place))
        if found is None and not begin:
            return begin
        if found is None or found < begin:
            have = "has no position of this partition" if found is None else f"has rows up to offset {found}"
            raise StateError(
                f"the database {have}, and the log begins at offset {begin}: rows in between are missing",
                where=f"{self.database.where}, {place.topic}[{place.partition}]",
                hint="restore a later backup of the database; or fill the gap yourself, and then set next_offset to "
                f"{begin} in {self.tables.name.rpartition('.')[0]}.falkirk_positions",
            )
        return found

    async def append(self, chunk: Chunk[Sequence[StepRows]]) -> bool:
        """Write a chunk and its end, if the position is its start."""
        return bool(self._transaction(lambda: self._append(chunk)))

    def _fit(self) -> None:
        """Create or compare the tables. What does not fit is a wait here: somebody may fix it while the app runs."""
        try:
            self.tables.prepare(*self._chain)
        except ConfigError as error:
            raise AwayError(error.what, where=error.where, hint=error.hint) from error

    def _transaction(self, do: Any) -> Any:
        for attempt in range(ATTEMPTS):
            self.database.begin()
            try:
                result = do()
                self.database.commit()
                return result
            except self._psycopg.Error as error:
                self.database.undo()
                if self.database.is_passing(error) and attempt + 1 < ATTEMPTS:
                    continue
                if (error.sqlstate or "").startswith("42"):
                    self._fit()  # it lists what has changed
                if self.database.is_lost(error):
                    self.database.close()
                raise self.database.worded(error, self.tables.name) from error
            finally:
                self.database.undo()
        raise AssertionError

    def _position(self, place: TopicPartition) -> Offset | None:
        rows = self.database.rows(
            self._statement(
                "select next_offset from {positions} where (app, sink, topic_id, partition) = (%s, %s, %s, %s)"
            ),
            (*self._chain, place.partition),
        )
        return Offset(rows[0][0]) if rows else None

    def _append(self, chunk: Chunk[Sequence[StepRows]]) -> bool:
        last, place = chunk.rows[-1], (*self._chain, chunk.place.partition)
        if chunk.start == 0:
            moved = self.database.execute(
                self._statement(
                    "insert into {positions} (app, sink, topic_id, partition, next_offset, task, step) "
                    "values (%s, %s, %s, %s, %s, %s, %s) on conflict do nothing"
                ),
                (*place, chunk.end, last.task, last.step),
            )
        else:
            moved = self.database.execute(
                self._statement(
                    "update {positions} set next_offset = %s, task = %s, step = %s, written_at = now() "
                    "where (app, sink, topic_id, partition, next_offset) = (%s, %s, %s, %s, %s)"
                ),
                (chunk.end, last.task, last.step, *place, chunk.start),
            )
        if not moved:
            return False
        self._write(pl.concat([step.rows for step in chunk.rows]))
        return True

    def _write(self, rows: pl.DataFrame) -> None:
        key = list(self.plan.key)
        if key:
            rows = rows.unique(subset=key, keep="last", maintain_order=True)
            gone, rows = rows.filter(rows[GONE]).select(key), rows.filter(~rows[GONE]).drop(GONE)
            self._each(gone, "delete from {table} t using {given} where " + " and ".join(["t.{} = g.{}"] * len(key)),
                       [name for name in key for _ in range(2)])  # fmt: skip
        columns = rows.columns
        statement = f"insert into {{table}} ({', '.join(['{}'] * len(columns))}) select * from {{given}}"
        names = [*columns]
        if key:
            others = [name for name in columns if name not in key]
            statement += f" on conflict ({', '.join(['{}'] * len(key))}) do "
            statement += f"update set {', '.join(['{} = excluded.{}'] * len(others))}" if others else "nothing"
            names += [*key, *(name for name in others for _ in range(2))]
        self._each(rows, statement, names)

    def _each(self, rows: pl.DataFrame, statement: str, names: Sequence[str]) -> None:
        """Run a statement for the rows, which it knows as g, some at a time."""
        if not rows.height:
            return
        sql = self._psycopg.sql
        types = [postgres_type(dtype) or "text" for dtype in rows.dtypes]
        given = sql.SQL("unnest({}) as g({})").format(
            sql.SQL(", ").join(
                sql.SQL("%s::text[]::jsonb[]" if kind == "jsonb" else f"%s::{kind}[]") for kind in types
            ),
            sql.SQL(", ").join(map(identifier, rows.columns)),
        )
        whole = sql.SQL(statement).format(*map(identifier, names), table=self.tables.table, given=given)
        for piece in rows.iter_slices(PIECE):
            self.database.execute(whole, [*map(values, piece)])

    def _statement(self, text: str) -> Any:
        return self._psycopg.sql.SQL(text).format(positions=self.tables.positions)


def values(column: pl.Series) -> list[Any]:
    """A column's values, as psycopg takes them.

    >>> values(pl.Series([{"a": 1}, None])), values(pl.Series([1, None]))
    (['{"a":1}', None], [1, None])
    """
    # In another zone a moment may be of year 0 or 10000, which Python does not have, or have an offset with seconds, which
    # its text in JSON does not have.
    if (dtype := _in_utc(column.dtype)) != column.dtype:
        column = column.cast(dtype)
    if column.dtype.is_nested():
        return [None if value is None else _encode(value).decode() for value in _whole(column)]
    return column.to_list()


def _in_utc(dtype: pl.DataType) -> pl.DataType:
    """The type, with moments of any zone as those of UTC.

    >>> _in_utc(pl.List(pl.Datetime("us", "Asia/Kolkata")))
    List(Datetime(time_unit='us', time_zone='UTC'))
    """
    match dtype:
        case pl.Datetime():
            return dtype if dtype.time_zone is None else pl.Datetime(dtype.time_unit, "UTC")
        case pl.List():
            return pl.List(_in_utc(instance(dtype.inner)))
        case pl.Array():
            return pl.Array(_in_utc(instance(dtype.inner)), dtype.size)
        case pl.Struct():
            return pl.Struct({each.name: _in_utc(instance(each.dtype)) for each in dtype.fields})
    return dtype


def _whole(column: pl.Series) -> Iterator[Any]:
    """The values of a nested column. A struct that is null must not become one of nulls."""
    there = column.is_not_null()
    return (value if here else None for value, here in zip(column.to_list(), there.to_list(), strict=True))
