"""Tables and views that somebody has created at a prompt, and the flow of each query over them.

create table, create view     an entry of the catalog
select                        a file: the entries that it reads, and an insert of its changes into a topic
insert into t select          a file: the entries that it reads, and t
create table t as select      an entry with the columns of the query, and then insert into t
insert into t values          rows for the topic of t

A file is what workers load: so each query runs as any other app.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import TokenType, exp

from falkirk.blame import attributed, did_you_mean
from falkirk.errors import ConfigError
from falkirk.stream.flow.flow import Flow
from falkirk.stream.flow.streams import Stream
from falkirk.stream.formats.json import Json
from falkirk.stream.sql.file import FileFlow, key_of_row, target
from falkirk.stream.sql.parsing import checked_query, statements
from falkirk.stream.sql.scalar.constants import rows_of
from falkirk.stream.sql.scalar.types import quoted, sql_type
from falkirk.stream.sql.showing import PLACE, cut, open_end, shown_order, tokens
from falkirk.stream.sql.text import Text
from falkirk.stream.sql.windows import table_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A table or view."""

    name: str
    kind: str
    sql: str
    """The statement that creates it."""
    schema: pl.Schema
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The topic of a table."""
        return self.options.get("topic", self.name)


@dataclass(frozen=True, slots=True)
class Job:
    """A query that runs as an app."""

    name: str
    sql: str
    """Its file."""
    schema: pl.Schema
    """The columns of its result."""
    order: tuple[tuple[str, bool], ...] = ()
    """By which columns a person wants to see it sorted, and whether from the greatest."""
    into: str = ""
    """The table that it writes; "" for a select."""
    topic: str = ""
    """The topic of that table."""


class Catalog:
    """The tables and views, in the order in which they were created.

    >>> catalog = Catalog()
    >>> catalog.create("create table bids (auction bigint, price bigint) with (topic='all-bids')").topic
    'all-bids'
    >>> print(catalog.select("select auction from bids where price > 9 order by auction", "q").sql)
    create table bids (auction bigint, price bigint) with (topic='all-bids');
    create table "q" ("auction" bigint) with (changes='weights');
    insert into "q" select auction from bids where price > 9;
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def create(self, sql: str) -> Entry:
        """A table with columns, or a view. Raises DefinitionError."""
        text, node = _one(sql)
        assert isinstance(node, exp.Create)
        name = node.this.this.name if isinstance(node.this, exp.Schema) else node.this.name
        if name in self.entries and not node.args.get("replace"):
            raise text.error(
                node.this, f"{name!r} exists", f"choose another name, or: drop {self.entries[name].kind} {name}"
            )
        file = self._file(node, name, set())
        with attributed(PLACE):
            file.text = text
            file.add(node)
        schema = file.tables[name].schema
        options = file.options(node)
        kind = "view" if node.kind == "VIEW" else "table"
        self.entries[name] = Entry(name, kind, open_end(sql).strip(), schema, options)
        return self.entries[name]

    def create_as(self, sql: str, job: str) -> tuple[Entry, Job]:
        """A table of the rows of a query, and what fills it. Raises DefinitionError."""
        text, node = _one(sql)
        assert isinstance(node, exp.Create)
        name = node.this.name
        begin = next(t.end + 1 for t, depth in tokens(sql) if t.token_type == TokenType.ALIAS and depth == 0)
        query = " " * begin + open_end(sql)[begin:]
        stream = self._stream(Text(query, PLACE), name)
        options = FileFlow(Flow(PLACE), text, set()).options(node)
        if stream._op.changes:
            unique = [c for c in stream.schema if c in (stream._op.unique or ())]
            options.setdefault("changes", "upsert")
            if unique:
                options.setdefault("key", ", ".join(unique))
            if "key" not in options:
                raise text.error(node.this, "rows of this query change, and nothing identifies them",
                                 "name the columns that do: create table t with (key='…') as select …")  # fmt: skip
        entry = self.create(_table(name, stream.schema, options, text))
        return entry, self.insert(f"insert into {quoted(name)} {query.strip()}", job)

    def add_toml(self, tables: Mapping[str, Any], where: str) -> None:
        """Tables as a TOML file has them: [NAME], with columns = {NAME = "TYPE"} and options. Raises ConfigError and
        DefinitionError.

        >>> catalog = Catalog()
        >>> catalog.add_toml({"bids": {"topic": "all-bids", "columns": {"price": "bigint"}}}, "tables.toml")
        >>> catalog.described("bids")
        [('price', 'bigint')]
        """
        for name, given in tables.items():
            columns = given.get("columns") if isinstance(given, Mapping) else None
            if not isinstance(columns, Mapping) or not columns:
                raise ConfigError(
                    f"table {name!r} has no columns", where=where, hint=f'[{name}], and columns = {{price = "bigint"}}'
                )
            listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
            options = [f"{o}={exp.Literal.string(str(v)).sql()}" for o, v in given.items() if o != "columns"]
            self.create(
                f"create table {quoted(name)} ({listed})" + (f" with ({', '.join(options)})" if options else "")
            )

    def drop(self, sql: str) -> Entry:
        """Forgets a table or view; a table's topic stays. Raises DefinitionError."""
        text, node = _one(sql)
        table = node.find(exp.Table)
        if not isinstance(node, exp.Drop) or table is None:
            raise text.error(node, "this is not a statement here", "drop table t, or drop view v")
        return self.entries.pop(self.found(table, text).name)

    def select(self, sql: str, job: str) -> Job:
        """A query whose result is shown. Raises DefinitionError."""
        body, order = cut(sql)
        stream = self._stream(Text(body, PLACE), job)
        wanted = shown_order(order, stream.schema, sql)
        text = Text(body, PLACE)
        _key_of_result(stream, text)
        table = _table(job, stream.schema, {"changes": "weights"}, text)
        insert = f"insert into {quoted(job)} {body.strip()}"
        node = checked_query(_one(body)[1], text)
        lines = [*(e.sql for e in self._needed(node, "")), table, insert]
        return Job(job, ";\n".join([*lines, ""]).rstrip("\n"), stream.schema, wanted)

    def insert(self, sql: str, job: str) -> Job:
        """A query whose rows go to a table. Raises DefinitionError."""
        text, node = _one(sql)
        assert isinstance(node, exp.Insert)
        entry = self.found(target(node), text)
        file = self._file(node, entry.name, {entry.name})
        with attributed(PLACE):
            file.text = Text(entry.sql, PLACE)
            for statement in statements(file.text):
                file.add(statement)
            file.text = text
            file.add(node)
        changing = any(o.changes for o in file.flow.graph.operators if o.role == "sink")
        if changing and entry.options.get("changes") not in ("upsert", "weights"):
            raise text.error(
                target(node), f"rows of this query change, and {entry.name!r} takes rows that stay",
                f"create table {entry.name} (…) with (key='…', changes='upsert')",
            )  # fmt: skip
        lines = [*(e.sql for e in self._needed(node, entry.name)), entry.sql, open_end(sql).strip()]
        return Job(job, ";\n".join([*lines, ""]).rstrip("\n"), entry.schema, into=entry.name, topic=entry.topic)

    def values(self, sql: str) -> tuple[Entry, pl.DataFrame]:
        """Rows for a table. Raises DefinitionError."""
        text, node = _one(sql)
        assert isinstance(node, exp.Insert)
        text.only(node)
        entry = self.found(target(node), text)
        if entry.kind == "view":
            raise text.error(target(node), f"{entry.name!r} is a view", "insert into a table")
        return entry, rows_of(node, entry.schema, text)

    def reader(self, name: str) -> Flow:
        """A flow that reads a table: it knows how the table's records are written."""
        file = FileFlow(Flow(PLACE), Text(self.entries[name].sql, PLACE), set())
        with attributed(PLACE):
            for statement in statements(file.text):
                file.add(statement)
            key = key_of_row(file.tables[name].schema) or None
            file.tables[name].sink("out", value=Json(), key=key, topic=f"{name}.out", changes="weights")
        return file.flow

    def explained(self, sql: str) -> Flow:
        """The flow of a query, for explain. Raises DefinitionError."""
        file, stream = self._compiled(Text(sql, PLACE), "query")
        with attributed(PLACE):
            stream.sink("result", value=Json(), key=_key_of_result(stream, Text(sql, PLACE)), changes="weights")
        return file.flow

    def found(self, table: exp.Table, text: Text) -> Entry:
        """The entry of a name. Raises DefinitionError."""
        if table.name not in self.entries:
            raise text.error(table, f"there is no table {table.name!r}", did_you_mean(table.name, self.entries))
        return self.entries[table.name]

    def described(self, name: str) -> list[tuple[str, str]]:
        """Columns and their types. Raises DefinitionError."""
        text = Text(name, PLACE)
        entry = self.found(exp.to_table(quoted(name)), text)
        return [(column, sql_type(dtype) or str(dtype)) for column, dtype in entry.schema.items()]

    def _stream(self, text: Text, name: str) -> Stream[Any]:
        return self._compiled(text, name)[1]

    def _compiled(self, text: Text, name: str) -> tuple[FileFlow, Stream[Any]]:
        """A query over the catalog, and its flow. Raises DefinitionError."""
        found = statements(text)
        if not found:
            raise text.error(None, "there is no query", "select … from …")
        query = checked_query(found[0], text)
        file = self._file(query, "", set())
        with attributed(PLACE):
            file.text = text
            return file, file.query(query, name)

    def _file(self, node: exp.Expr, without: str, inserted: set[str]) -> FileFlow:
        """A flow with the tables and views that a statement reads."""
        file = FileFlow(Flow(PLACE), Text("", PLACE), inserted)
        with attributed(PLACE):
            for entry in self._needed(node, without):
                file.text = Text(entry.sql, PLACE)
                for statement in statements(file.text):
                    file.add(statement)
        return file

    def _needed(self, node: exp.Expr, without: str) -> list[Entry]:
        """What a statement reads, and what the views of that read."""
        needed: set[str] = set()
        waiting = [node]
        while waiting:
            tree = waiting.pop()
            hidden = {cte.alias for cte in tree.find_all(exp.CTE)} | {without}
            named = _tables_in(tree)
            for name in (named & self.entries.keys()) - hidden - needed:
                needed.add(name)
                if self.entries[name].kind == "view":
                    waiting += [s.expression for s in statements(Text(self.entries[name].sql, PLACE))]
        return [entry for name, entry in self.entries.items() if name in needed]


def kind_of(sql: str) -> str:
    """What a statement is: "select", "values", "insert", "create", "create as", "drop", or "". Raises DefinitionError.

    >>> [kind_of(sql) for sql in ("select 1 as a", "insert into t values (1)", "create view v as select 1 as a", "use x")]
    ['select', 'values', 'create', '']
    """
    node = _one(sql)[1]
    if isinstance(node, exp.Query):
        return "select"
    if isinstance(node, exp.Insert):
        return "values" if isinstance(node.expression, exp.Values) else "insert"
    if isinstance(node, exp.Create) and node.kind in ("TABLE", "VIEW"):
        return "create" if node.kind == "VIEW" or isinstance(node.this, exp.Schema) else "create as"
    return "drop" if isinstance(node, exp.Drop) else ""


def _key_of_result(stream: Stream[Any], text: Text) -> list[str] | None:
    """The key of the records of a result; None if it needs none. Raises DefinitionError if it has none."""
    key = key_of_row(stream.schema)
    if not key and stream._op.changes and stream._op.unique != frozenset():
        raise text.error(
            None, "rows of this result change, and have only decimals, lists or structs",
            "select one of the columns that it is grouped by, too",
        )  # fmt: skip
    return key or None


def _one(sql: str) -> tuple[Text, exp.Expr]:
    text = Text(sql, PLACE)
    found = statements(text)
    if len(found) != 1:
        raise text.error(None, "this is not one statement", "end each with ;")
    return text, found[0]


def _table(name: str, schema: pl.Schema, options: Mapping[str, str], text: Text) -> str:
    """The statement that creates a table with the columns of a result. Raises DefinitionError."""
    types = {column: sql_type(dtype) for column, dtype in schema.items()}
    if nameless := next((column for column, known in types.items() if not known), None):
        raise text.error(
            None, f"column {nameless!r} is {schema[nameless]}, which no record can hold", "cast it, or leave it out"
        )
    columns = ", ".join(f"{quoted(column)} {known}" for column, known in types.items())
    spelt = [f"{name}={exp.Literal.string(value).sql()}" for name, value in options.items()]
    given = f" with ({', '.join(spelt)})" if spelt else ""
    return f"create table {quoted(name)} ({columns}){given}"


def _tables_in(tree: exp.Expr) -> set[str]:
    """The tables that a statement names, those of tumble(t, …) too."""
    arguments = {of.name for call in tree.find_all(exp.Anonymous) if (of := table_of(call)) is not None}
    return {table.name for table in tree.find_all(exp.Table)} | arguments
