"""The tables of a sink: its own, and the one of positions in the same schema.

A table that exists is compared with the flow's columns, and never altered. A table that is missing is created, but only if
nothing has been written to it: otherwise rows are gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import polars as pl

from falkirk.connectors.postgres.client import Database, driver, identifier, quoted
from falkirk.errors import ConfigError
from falkirk.stream.definition.outlets import TablePlan, postgres_type

POSITIONS = "falkirk_positions"
_POSITIONS = """create table if not exists {} (
  app text not null,
  sink text not null,
  topic_id text not null,
  partition integer not null,
  next_offset bigint not null,
  task text not null,
  step bigint not null,
  written_at timestamp with time zone not null default now(),
  primary key (app, sink, topic_id, partition)
)"""


class Column(NamedTuple):
    """A column of a table that exists."""

    type: str
    not_null: bool
    default: bool
    generated: bool
    """Whether nobody may write it."""


class Found(NamedTuple):
    """A table that exists."""

    kind: str
    """r: a table, p: one with partitions; else a view, for instance."""
    lasting: bool
    """Whether the server writes it to its log; otherwise it is empty after a crash."""
    columns: dict[str, Column]
    keys: list[frozenset[str]]
    """The columns of its unique indexes."""


class Difference(NamedTuple):
    """Something about a table that does not fit the flow."""

    what: str
    fix: str


class Tables:
    """The tables of one sink."""

    def __init__(self, database: Database, plan: TablePlan) -> None:
        self.database, self.plan = database, plan
        self._sql = driver().sql
        self._schema = plan.schema_name

    @property
    def table(self) -> Any:
        """The sink's table, as part of a statement."""
        return identifier(self._schema, self.plan.table_name)

    @property
    def positions(self) -> Any:
        """The table of positions, as part of a statement."""
        return identifier(self._schema, POSITIONS)

    @property
    def name(self) -> str:
        """The table's full name, for people."""
        return f"{self._schema}.{self.plan.table_name}" if self._schema else self.plan.table_name

    def prepare(self, app: str, sink: str, topic_id: str) -> None:
        """Create what is missing. Raises ConfigError with each difference, and AwayError."""
        self._in_transaction(lambda: self._prepare(app, sink, topic_id))

    def check(self) -> str:
        """Whether the table fits, in words; creates nothing. Raises ConfigError with each difference, and AwayError."""
        words: str = self._in_transaction(self._check)
        return words

    # -- in a transaction ----------------------------------------------------------------------------------------------

    def _in_transaction(self, do: Callable[[], Any]) -> Any:
        error_class = driver().Error
        for left in (2, 1, 0):
            self.database.begin()
            try:
                result = do()
                self.database.commit()
                return result
            except error_class as error:
                self.database.undo()
                if error.sqlstate == "42501":
                    raise self._refused() from error
                # Two workers that create one table at the same time: one of them gets an error from the catalog.
                if not left or error.sqlstate not in ("23505", "42P07", "42710"):
                    raise self.database.worded(error, self.name) from error
            finally:
                self.database.undo()
        raise AssertionError

    def _prepare(self, app: str, sink: str, topic_id: str) -> None:
        self._locate()
        found, positions = self._found(self.plan.table_name), self._found(POSITIONS)
        self._raise(self._rights(found, positions))
        if positions is None:
            self.database.execute(self._statement(_POSITIONS, self.positions))
        if found is not None:
            self._raise(self._differences(found))
            return
        where = "where app = %s and sink = %s and topic_id = %s"
        known = self.database.rows(
            self._statement(f"select 1 from {{}} {where}", self.positions), (app, sink, topic_id)
        )
        if known:
            raise ConfigError(
                f"table {self.name} is gone, and the app has written rows to it",
                where=self.database.where,
                hint=f"restore the table; or, to go on without those rows, create it again: {self.creating()}",
            )
        self.database.execute(self._sql.SQL(self.creating().replace("%", "%%")))

    def _check(self) -> str:
        self._locate()
        found, positions = self._found(self.plan.table_name), self._found(POSITIONS)
        self._raise([*self._rights(found, positions), *(self._differences(found) if found else ())])
        rest = "its columns fit" if found else "it is created at the start"
        return f"{self.database.where}, table {self.name}: {rest}"

    def _locate(self) -> None:
        """Which schema, and whether it can be written to."""
        ((schema, read_only),) = self.database.rows(
            "select current_schema(), current_setting('transaction_read_only') = 'on'"
        )
        if read_only:
            self.database.close()  # the address may lead to another server by now
            raise self.database.worded(driver().errors.ReadOnlySqlTransaction("it accepts no writes"), self.name)
        if self._schema is None and schema is None:
            raise ConfigError(
                "no schema of the search path exists", where=self.database.where, hint='write table="SCHEMA.NAME"'
            )
        self._schema = self._schema or schema

    def _raise(self, found: list[Difference]) -> None:
        if found:
            raise ConfigError(
                f"table {self.name} does not fit the flow: {'; '.join(each.what for each in found)}",
                where=self.database.where,
                hint="; ".join(dict.fromkeys(each.fix for each in found)),
            )

    def _refused(self) -> ConfigError:
        return ConfigError(
            f"the user may not create or write table {self.name}",
            where=self.database.where,
            hint=f"grant it the rights, or have an administrator run: {self.creating()}; "
            f"{_POSITIONS.format(self._quoted(POSITIONS)).replace(chr(10), ' ')}",
        )

    def _found(self, name: str) -> Found | None:
        place = (self._schema, name)
        table = self.database.rows(
            "select c.oid, c.relkind::text, c.relpersistence = 'p' from pg_class c join pg_namespace n "
            "on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p', 'v', 'm', 'f')",
            place,
        )
        if not table:
            return None
        ((oid, kind, lasting),) = table
        columns = self.database.rows(
            "select attname::text, format_type(atttypid, atttypmod), attnotnull, atthasdef or attidentity <> '', "
            "attgenerated <> '' or attidentity = 'a' from pg_attribute where attrelid = %s and attnum > 0 "
            "and not attisdropped",
            (oid,),
        )
        keys = self.database.rows(
            "select array_agg(a.attname::text) from pg_index i cross join unnest(i.indkey) with ordinality k(number, place) "
            "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number where i.indrelid = %s "
            "and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null "
            "and k.place <= i.indnkeyatts group by i.indexrelid",
            (oid,),
        )
        found = {column: Column(*rest) for column, *rest in columns}
        return Found(kind, lasting, found, [frozenset(names) for (names,) in keys])

    def _rights(self, found: Found | None, positions: Found | None) -> list[Difference]:
        missing: list[Difference] = []
        ((user, create),) = self.database.rows(
            "select current_user::text, has_schema_privilege(n.oid, 'CREATE') from pg_namespace n where nspname = %s "
            "union all select current_user::text, null limit 1",
            (self._schema,),
        )
        if create is None:
            return [Difference(f"schema {self._schema} does not exist", f"create schema {quoted(self._schema or '')}")]
        if not create and (found is None or positions is None):
            todo = [] if found is not None else [self.creating()]
            todo += [] if positions is not None else [_POSITIONS.format(self._quoted(POSITIONS)).replace("\n", " ")]
            missing.append(
                Difference(
                    f"user {user} may not create tables in schema {self._schema}",
                    f"have an administrator run: {'; '.join(todo)}",
                )
            )
        written = ["INSERT", *(["SELECT", "UPDATE", "DELETE"] if self.plan.key else [])]
        for name, there, rights in (
            (self.plan.table_name, found, written),
            (POSITIONS, positions, ["SELECT", "INSERT", "UPDATE"]),
        ):
            if there is None:
                continue
            spelt = self._quoted(name)
            has = self.database.rows(
                "select r from unnest(%s::text[]) r where has_table_privilege(%s, r)", (rights, spelt)
            )
            if lacks := [right for right in rights if (right,) not in has]:
                what = f"user {user} lacks {', '.join(lacks)} on {self._schema}.{name}"
                missing.append(Difference(what, f"grant {', '.join(lacks).lower()} on {spelt} to {quoted(user)}"))
        return missing

    def _differences(self, found: Found) -> list[Difference]:
        return differences(self.plan, found, self.name, self._quoted(self.plan.table_name))

    def creating(self) -> str:
        """The statement that creates the sink's table."""
        lines = [f"{quoted(name)} {postgres_type(dtype)}" for name, dtype in self.plan.columns.items()]
        if self.plan.key:
            lines.append(f"primary key ({', '.join(map(quoted, self.plan.key))})")
        return f"create table if not exists {self._quoted(self.plan.table_name)} ({', '.join(lines)})"

    def _quoted(self, name: str) -> str:
        return f"{quoted(self._schema)}.{quoted(name)}" if self._schema else quoted(name)

    def _statement(self, text: str, *parts: Any) -> Any:
        return self._sql.SQL(text).format(*parts)


def differences(plan: TablePlan, found: Found, name: str, table: str) -> list[Difference]:
    """What about a table does not fit the flow. `name` and `table` are its name for people, and as in a statement."""
    if found.kind not in ("r", "p"):
        return [Difference(f"{name} is not a table", "name another table, or drop it")]
    return [*_differences(plan, found, table)]


def _differences(plan: TablePlan, found: Found, table: str) -> Iterator[Difference]:
    alter = f"alter table {table}"
    if not found.lasting:
        yield Difference("it is unlogged, so that a crash of the server empties it", f"{alter} set logged")
    for column, dtype in plan.columns.items():
        wanted = postgres_type(dtype)
        there = found.columns.get(column)
        if there is None:
            yield Difference(f"it has no column {column!r}", f"{alter} add column {quoted(column)} {wanted}")
        elif there.generated:
            yield Difference(f"column {column!r} is generated", f"leave {column!r} out of the stream: .select(…)")
        elif not holds(there.type, dtype):
            yield Difference(
                f"column {column!r} is {there.type}, and the flow's needs {wanted}",
                f"{alter} alter column {quoted(column)} type {wanted}",
            )
    for column, there in found.columns.items():
        if column not in plan.columns and there.not_null and not there.default and not there.generated:
            yield Difference(
                f"column {column!r} must not be null, and the flow does not have it",
                f"{alter} alter column {quoted(column)} drop not null",
            )
    if plan.key and frozenset(plan.key) not in found.keys:
        columns = ", ".join(map(quoted, plan.key))
        yield Difference(f"no unique index has exactly {columns}", f"{alter} add unique ({columns})")


_INTEGERS = {"smallint": 0, "integer": 1, "bigint": 2}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_OTHERS = {"real": {"real", "double precision"}, "text": {"text", "character varying"}, "jsonb": {"jsonb", "json"}}
"""By the flow's type, what else holds its values."""


def holds(there: str, dtype: pl.DataType) -> bool:
    """Whether a column of this type holds each value of a flow's column exactly.

    >>> holds("bigint", pl.Int32()), holds("integer", pl.Int64()), holds("character varying(10)", pl.String())
    (True, False, False)
    >>> holds("numeric(20,4)", pl.Decimal(12, 2)), holds("numeric(12,4)", pl.Decimal(12, 2)), holds("numeric", pl.Int64())
    (True, False, True)
    """
    wanted = postgres_type(dtype)
    assert wanted is not None
    if wanted in _INTEGERS:
        return there == "numeric" or _INTEGERS.get(there, -1) >= _INTEGERS[wanted]
    if (needs := _NUMERIC.fullmatch(wanted)) is not None:
        has = _NUMERIC.fullmatch(there)
        if has is None:
            return there == "numeric"
        before, after = int(has[1]) - int(has[2]), int(has[2])
        return before >= int(needs[1]) - int(needs[2]) and after >= int(needs[2])
    return there in _OTHERS.get(wanted, {wanted})
