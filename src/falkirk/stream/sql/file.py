"""A file of SQL as a flow: create table, create view, insert into.

create table        a source, unless rows are inserted into it: then it says how the sink writes them
create view         a query under a name
insert into         a query and its sink: the topic of that name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from sqlglot import exp

from falkirk.blame import attributed, did_you_mean
from falkirk.errors import ConfigError
from falkirk.stream.definition.outlets import WEIGHT_COLUMN
from falkirk.stream.flow.flow import Flow
from falkirk.stream.flow.streams import Stream
from falkirk.stream.formats.json import Json
from falkirk.stream.formats.types import Int64, schema_of
from falkirk.stream.sql.parsing import checked_query, statements
from falkirk.stream.sql.query import compiled
from falkirk.stream.sql.scalar.times import parsed
from falkirk.stream.sql.scalar.types import sql_type, type_of
from falkirk.stream.sql.scalar.values import called, family
from falkirk.stream.sql.text import Text, span

OPTIONS = ("topic", "format", "key", "time", "late", "idle", "start", "changes")
"""What a table says in with (…)."""
_PLAIN = {"number", "String", "Boolean", "time"}
"""Kinds of values of which one is never read as another."""


def flow_of(path: Path) -> Flow:
    """The flow of a file; the app is named after the file. Raises ConfigError if it cannot be read, and DefinitionError.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "shop.sql")
    ...     _ = file.write_text("create table bids (price bigint); insert into dear select price from bids where price > 9")
    ...     flow = flow_of(file)
    >>> flow.name, [stage.id for stage in flow.plan().stages]
    ('shop', ['bids'])
    """
    try:
        sql = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot read {path}: {why}", hint="name a file of SQL statements") from None
    text = Text(sql, str(path))
    found = statements(text)
    inserted = {target(s).name for s in found if isinstance(s, exp.Insert)}
    if not inserted:
        raise text.error(None, "no rows are inserted anywhere", "insert into TOPIC select …")
    with attributed(str(path)):
        file = FileFlow(Flow(path.stem), text, inserted)
        for statement in found:
            file.add(statement)
    return file.flow


def target(node: exp.Insert) -> exp.Table:
    """The table that rows go to."""
    table = node.this.this if isinstance(node.this, exp.Schema) else node.this
    assert isinstance(table, exp.Table)
    return table


class FileFlow:
    """A flow, and the names that its statements have given so far."""

    def __init__(self, flow: Flow, text: Text, inserted: set[str]) -> None:
        self.flow, self.text, self.inserted = flow, text, inserted
        self.tables: dict[str, Stream[Any]] = {}
        self.sinks: dict[str, tuple[Mapping[str, pl.DataType], Mapping[str, str]]] = {}

    def add(self, statement: exp.Expr) -> None:
        """One statement. Raises DefinitionError."""
        if isinstance(statement, exp.Create) and statement.kind == "TABLE" and isinstance(statement.this, exp.Schema):
            self._table(statement, statement.this)
        elif isinstance(statement, exp.Create) and statement.kind == "VIEW":
            if isinstance(statement.this, exp.Schema):
                raise self.text.error(
                    statement.this.this, "a view has no list of columns", "name them in select: … as NAME"
                )
            name = statement.this.name
            self._new(name, statement)
            self.tables[name] = self.query(statement.expression, name)
        elif isinstance(statement, exp.Insert):
            self._insert(statement)
        else:
            raise self.text.error(
                statement, "this statement has no effect in a file", "there are: create table, create view, insert into"
            )

    def _table(self, statement: exp.Create, schema: exp.Schema) -> None:
        name, options = schema.this.name, self.options(statement)
        self._new(name, statement)
        columns: dict[str, Any] = {}
        for column in schema.expressions:
            if not isinstance(column, exp.ColumnDef) or column.args.get("constraints"):
                raise self.text.error(column, "a table has columns and no constraints", "with (key='…') names its key")
            if column.name in columns:
                raise self.text.error(column, f"two columns are named {column.name!r}", "leave one out")
            columns[column.name] = type_of(column.args["kind"], self.text)
        if options.pop("format", "json") != "json":
            raise self.text.error(
                schema.this, "the format is not supported in SQL", "format='json', or a flow in Python"
            )
        if name in self.inserted:
            self.sinks[name] = (schema_of(columns) if columns else {}, options)
            return
        given: dict[str, Any] = {**options, "start": options.get("start", "earliest")}
        if options.get("changes") == "weights":
            columns.setdefault(WEIGHT_COLUMN, Int64)
        if given["start"][:1].isdigit():
            given["start"] = parsed(given["start"], pl.Datetime("ms", "UTC"), schema.this, self.text).literal
        if "key" in given:
            given["key"] = _key(given["key"])
        with self.text.at(schema.this):
            self.tables[name] = self.flow.source(name, value=Json(columns), **given)

    def _insert(self, statement: exp.Insert) -> None:
        table = target(statement)
        self.text.only(statement)
        self.text.only(table)
        if isinstance(statement.this, exp.Schema):
            raise self.text.error(table, "insert into has no list of columns", "name them in select: … as NAME")
        stream = self.query(statement.expression, table.name)
        columns, options = self.sinks.get(table.name, ({}, {}))
        if columns and list(columns) != stream.schema.names():
            raise self.text.error(
                table,
                f"the table has the columns {', '.join(columns)}, and the query {', '.join(stream.schema)}",
                "name and order them as the table does",
            )
        for name, dtype in columns.items():
            given = stream.schema[name]
            if {family(dtype), family(given)} <= _PLAIN and family(dtype) != family(given):
                raise self.text.error(
                    table,
                    f"column {name!r} of the table is {called(dtype)}, and the query's is {called(given)}",
                    f"cast it: cast({name} as {sql_type(dtype)}) as {name}",
                )
        if unread := sorted(options.keys() - {"topic", "key", "changes"}):
            raise self.text.error(table, f"{unread[0]}= is for tables that are read", "leave it out")
        unique = [c for c in stream.schema if c in (stream._op.unique or ())] if stream._op.changes else []
        weights = options.get("changes") == "weights"
        key = _key(options["key"]) if "key" in options else key_of_row(stream.schema) if weights else unique
        with self.text.at(table):
            self._sink(stream, table.name, options, key)

    def _sink(self, stream: Stream[Any], name: str, options: Mapping[str, Any], key: str | list[str]) -> None:
        """The sink of a query; a result that changes is written by what identifies its rows."""
        one = key[0] if isinstance(key, list) and len(key) == 1 else key
        stream.sink(name, value=Json(), key=one or None, topic=options.get("topic"), changes=options.get("changes"))

    def query(self, query: exp.Expr | None, name: str) -> Stream[Any]:
        """A query under a name. Raises DefinitionError."""
        if query is None:
            raise self.text.error(None, f"{name} has no query", "write select …")
        with self.text.at(query):
            return compiled(self.flow, checked_query(query, self.text), self.text, name, self.tables)

    def _new(self, name: str, node: exp.Expr) -> None:
        if name in self.tables or name in self.sinks:
            raise self.text.error(node, f"{name!r} is defined twice", "choose another name")

    def options(self, statement: exp.Create) -> dict[str, str]:
        """What with (…) says. Raises DefinitionError."""
        given = statement.args.get("properties")
        options: dict[str, str] = {}
        for option in given.expressions if given is not None else ():
            name = "format" if isinstance(option, exp.FileFormatProperty) else option.name
            value = option.this if isinstance(option, exp.FileFormatProperty) else option.args.get("value")
            if not name:
                word = option.key.removesuffix("property")
                raise self.text.error(
                    statement.this, f"{word} is not supported here", "write create table or create view"
                )
            if name in options:
                raise self.text.error(value, f"option {name!r} is given twice", "leave one out")
            if name not in OPTIONS or value is None:
                start = max(0, self.text.sql.rfind(name, 0, span(option)[0]))  # the parser knows the value's place only
                what = f"a table has no option {name!r}"
                raise self.text.error_at(start, start + len(name), what, did_you_mean(name, OPTIONS))
            options[name] = value.name
        return options


def key_of_row(schema: pl.Schema) -> list[str]:
    """The columns by which all changes of a row go to one partition: those that can be a key.

    >>> key_of_row(pl.Schema({"id": pl.Int64(), "usd": pl.Decimal(9, 2), "tags": pl.List(pl.String())}))
    ['id']
    """
    return [column for column, dtype in schema.items() if not dtype.is_nested() and not dtype.is_decimal()]


def _key(columns: str) -> str | list[str]:
    """A column, or several with commas between them.

    >>> _key("auction"), _key("region, day")
    ('auction', ['region', 'day'])
    """
    names: Sequence[str] = [name.strip() for name in columns.split(",")]
    return names[0] if len(names) == 1 else list(names)
