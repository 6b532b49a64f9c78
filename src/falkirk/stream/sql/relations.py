"""A relation: a stream, and the names that a query has for its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
from sqlglot import exp

from falkirk.blame import did_you_mean, user_line
from falkirk.stream.definition.expressions import columns_read
from falkirk.stream.definition.names import default_id
from falkirk.stream.definition.windows import END, START, Window
from falkirk.stream.flow.streams import Stream
from falkirk.stream.flow.windowing import windowed
from falkirk.stream.sql.scalar.conditions import found
from falkirk.stream.sql.scalar.expressions import Expressions
from falkirk.stream.sql.scalar.values import need
from falkirk.stream.sql.text import Text
from falkirk.stream.sql.windows import Sessions


@dataclass(frozen=True)
class Relation:
    """The rows of a from clause."""

    stream: Stream[Any]
    columns: Mapping[tuple[str, str], str]
    """(table, column) of the query → column of the stream."""
    grouped: bool = False
    """Whether its rows are groups: then only keys and aggregates have a column."""
    single: bool = False
    """Whether it has one row at most."""
    window: Window | Sessions | None = None
    """Windows that its rows are still to get: group by with windows is one operator, which knows when one is complete."""

    @classmethod
    def of(cls, stream: Stream[Any], table: str, *, single: bool = False, named: Sequence[str] = ()) -> Relation:
        """A stream under a name. `named` are other names for its first columns."""
        names = [*named, *stream.schema.names()[len(named) :]]
        return cls(stream, {(table, n): c for n, c in zip(names, stream.schema, strict=True)}, single=single)

    def windowed(self, text: Text) -> Relation:
        """The same rows, each with its windows. Raises DefinitionError if they have sessions."""
        if self.window is None:
            return self
        if isinstance(self.window, Sessions):
            raise self.window.unmade(text)
        graph = self.stream._graph
        made, *_ = windowed(graph, self.stream._op, [self.window], user_line())
        return replace(self, stream=Stream(graph, made), window=None)

    def of_window(self, node: exp.Expr) -> bool:
        """Whether an expression reads the start or end of a window that rows are still to get."""
        if self.window is None:
            return False
        columns = [self.columns.get((c.table, c.name)) for c in node.find_all(exp.Column)]
        return START in columns or END in columns

    @property
    def tables(self) -> set[str]:
        """The tables of the query that it is made of."""
        return {table for table, _ in self.columns}

    def expressions(self, text: Text, given: Mapping[exp.Expr, str] | None = None) -> Expressions:
        """Compiles expressions over its columns."""
        return Expressions(text, self.stream.schema, lambda column: self.resolve(column, text), given)

    def resolve(self, column: exp.Column, text: Text) -> str:
        """The stream's column. Raises DefinitionError."""
        if (found := self.columns.get((column.table, column.name))) is not None:
            return found
        if self.grouped:
            raise text.error(
                column,
                f"column {column.name!r} is neither in group by nor in an aggregate",
                f"group by it too, or aggregate it: max({column.name})",
            )
        tables = sorted({table for table, _ in self.columns})
        if column.table and column.table not in tables:
            raise text.error(column, f"there is no table {column.table!r} here", did_you_mean(column.table, tables))
        owners = [table for table, name in self.columns if name == column.name]
        if len(owners) > 1:
            raise text.error(
                column, f"column {column.name!r} is in more than one table", f"write {owners[0]}.{column.name}"
            )
        names = {name for table, name in self.columns if column.table in ("", table)}
        raise text.error(column, f"there is no column {column.name!r}", did_you_mean(column.name, names))


def filtered(
    relation: Relation, condition: exp.Expr, text: Text, given: Mapping[exp.Expr, str] | None = None
) -> Relation:
    """The rows for which a condition is true. Raises DefinitionError."""
    predicate = need(relation.expressions(text, given), condition, "Boolean", "where")
    expr, schema = predicate.expr, relation.stream.schema
    if not columns_read([expr], schema):  # a constant; the DSL's predicates read a column
        first = nw.col(next(iter(schema)))
        expr = expr & (first.is_null() | ~first.is_null())
    with text.at(condition):
        return replace(relation, stream=relation.stream.filter(expr))


def free(name: str, taken: set[str]) -> str:
    """The name, or the name with a number if it is taken; the name is taken from here on.

    >>> free("on", {"on", "on_2"})
    'on_3'
    """
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


@dataclass(frozen=True)
class Ids:
    """Names of operators with state: after the query's id, and where in the query they are."""

    query: str
    path: tuple[str, ...] = ()

    def of(self, what: str) -> str:
        """The id of one operator.

        >>> Ids("totals").within("b").of("group")
        'totals.b.group'
        """
        return default_id(self.query, *self.path, what)

    def within(self, part: str) -> Ids:
        """Ids of a part of the query: a common table expression, a subquery, a branch of a union."""
        return Ids(self.query, (*self.path, part))


@dataclass
class Tables:
    """What a from clause may name. Common table expressions are compiled when they are first read."""

    streams: Mapping[str, Stream[Any]]
    views: Mapping[str, View] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.views or name in self.streams

    def find(self, name: str, build: Any, ids: Ids) -> Stream[Any]:
        """The stream of this name."""
        if (view := self.views.get(name)) is None:
            return self.streams[name]
        if view.stream is None:
            view.stream = build(view.query, view.tables, ids.within(name))
        return view.stream

    def single(self, node: exp.Expr) -> bool:
        """Whether a query has one row at most: aggregates without group by, or limit 1, or what reads such a one alone."""
        node = node.unnest()
        if isinstance(node, exp.Subquery):
            return self.single(node.this)
        if isinstance(node, exp.Table):
            view = self.views.get(node.name)
            return view is not None and view.tables.single(view.query)
        if not isinstance(node, exp.Select):
            return False
        limit = node.args.get("limit")
        if limit is not None and limit.expression.name == "1":
            return True
        if node.args.get("group") is not None:
            return False
        if any(map(found, node.expressions)):
            return True
        clause = node.args.get("from_")
        return clause is not None and not node.args.get("joins") and self.within(node).single(clause.this)

    def within(self, node: exp.Expr) -> Tables:
        """The tables that a query may name: these, and its own common table expressions, which may hide some of them.

        An expression may name those in front of it, and a table that it hides itself.
        """
        tables = self
        common = node.args.get("with_")
        for cte in common.expressions if common is not None else ():
            tables = Tables(self.streams, {**tables.views, cte.alias: View(cte.this, tables)})
        return tables


@dataclass
class View:
    """A common table expression."""

    query: exp.Query
    tables: Tables
    """What it may name itself."""
    stream: Stream[Any] | None = None
    """Its rows, once a query has read it."""
