"""A query becomes operators: from, where, group by, having, select, distinct, in the order in which SQL means them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.aggregates.builtin import len_
from falkirk.stream.definition.event_time import check_time
from falkirk.stream.definition.expressions import bare_column, columns_read
from falkirk.stream.definition.windows import END, START
from falkirk.stream.flow.flow import Flow
from falkirk.stream.flow.streams import Stream
from falkirk.stream.flow.totals import whole
from falkirk.stream.sql.aggregates import Aggregates
from falkirk.stream.sql.joins import Joiner
from falkirk.stream.sql.nesting import nested
from falkirk.stream.sql.over import windowed, windows_in
from falkirk.stream.sql.parsing import as_written, qualified, the_query
from falkirk.stream.sql.relations import Ids, Relation, Tables, filtered, free
from falkirk.stream.sql.scalar.conditions import Uses, conjuncts, factor, found, merge_using, tables_of, where_of
from falkirk.stream.sql.scalars import Scalar, joined, lift
from falkirk.stream.sql.sets import combined, once, with_decimals
from falkirk.stream.sql.subqueries import asks, semi_joined, settle
from falkirk.stream.sql.text import Text
from falkirk.stream.sql.tops import first_rows, is_top, limited, move_top
from falkirk.stream.sql.windows import Asked, Sessions, asked, grouping, window_of
from falkirk.wording import counted


def sql(flow: Flow, query: str, name: str | None, streams: Mapping[str, Any]) -> Stream[Any]:
    """The stream of a query. Raises DefinitionError."""
    if not isinstance(query, str):
        raise DefinitionError(
            f"{query!r} is not SQL", where=f"sql ({user_line()})", hint='flow.sql("select … from bids")'
        )
    text = Text(query, user_line())
    for given, stream in streams.items():
        if not isinstance(stream, Stream) or stream._graph is not flow.graph:
            raise DefinitionError(
                f"{given}={stream!r} is not a stream of this flow",
                where=f"sql ({text.line})",
                hint=f'pass a stream: flow.sql("… from {given}", {given}=flow.source(…))',
            )
    return compiled(flow, the_query(text), text, name, {**_of_flow(flow), **streams})


def compiled(
    flow: Flow, tree: exp.Query, text: Text, name: str | None, tables: Mapping[str, Stream[Any]]
) -> Stream[Any]:
    """The stream of a parsed query, over tables by name. Raises DefinitionError."""
    words = tree.sql("duckdb", comments=False)
    ids = Ids(name if name is not None else f"sql.{hashlib.sha256(words.encode()).hexdigest()[:8]}")
    tree = qualified(tree, {name: stream.schema for name, stream in tables.items()}, text)
    before = len(flow.graph.operators)
    factor(tree)
    stream = Compiler(text).query(tree, Tables(tables), ids)
    flow.graph.queries.update(dict.fromkeys(flow.graph.operators[before:], f"{ids.query}: {as_written(words)}"))
    return stream


def _of_flow(flow: Flow) -> dict[str, Stream[Any]]:
    """What a flow has under an id: sources, and operators with state."""
    named: dict[str, op.Operator] = {}
    for operator in flow.graph.operators:
        if isinstance(operator, op.Repartition):
            if (source := operator.added_for) is not None:
                named[source.id] = operator
        elif isinstance(operator, op.Changed | op.Latest):  # a source of rows that change is read behind these
            named[_source_of(operator).id] = operator
        elif isinstance(operator, op.Source) or (operator.stateful and operator.role == "operator"):
            named[operator.id] = operator
    return {name: Stream(flow.graph, operator) for name, operator in named.items()}


def _source_of(operator: op.Operator) -> op.Operator:
    return operator if isinstance(operator, op.Source) else _source_of(operator.inputs[0])


class Compiler:
    """Makes operators of a qualified tree."""

    def __init__(self, text: Text) -> None:
        self.text = text

    def query(self, node: exp.Expr, tables: Tables, ids: Ids) -> Stream[Any]:
        """Any query. Raises DefinitionError."""
        tables = tables.within(node)
        if node.args.get("order") is not None or node.args.get("limit") or node.args.get("offset"):
            whole = node.copy()
            for clause in ("order", "limit", "offset"):
                whole.set(clause, None)
            rows = self._unordered(whole, tables, ids)
            return first_rows(node, rows, ids.within("limit") if _keeps_first(node) else ids, self.text)
        return self._unordered(node, tables, ids)

    def _unordered(self, node: exp.Expr, tables: Tables, ids: Ids) -> Stream[Any]:
        """A query without its order and limit."""
        if isinstance(node, exp.Subquery):
            self.text.only(node, "with_")
            return self.query(node.this, tables, ids)
        if isinstance(node, exp.SetOperation):
            number = _branches(node.left) + 1
            left = self.query(node.left, tables, ids.within("1") if number == 2 else ids)
            right = self.query(node.right, tables, ids.within(str(number)))
            with self.text.at(node):
                return combined(node, left, right, ids, "" if number == 2 else str(number), self.text)
        if not isinstance(node, exp.Select):
            raise self.text.error(node, "this is not a query", "write select …")
        self.text.only(
            node,
            "with_",
            "from_",
            "joins",
            "where",
            "group",
            "having",
            "distinct",
            "qualify",
            "order",
            "limit",
            "offset",
        )
        return self._select(node, tables, ids)

    def _select(self, node: exp.Select, tables: Tables, ids: Ids) -> Stream[Any]:
        merge_using(node)
        settle(node)
        move_top(node)
        self._check_having(node)
        node = nested(node)
        scalars = lift(node, tables, self.text)
        uses = Uses(node, *[s.node for s in scalars])
        relation, where = self._from(node, tables, ids, uses, {s.alias for s in scalars})
        relation = self._where(relation, where, scalars, tables, ids, uses)
        given: dict[exp.Expr, str] = {}
        if node.args.get("group") is not None or any(map(found, [*node.expressions, *_having(node)])):
            relation, given = self._grouped(node, relation, ids)
            for condition in _having(node):
                relation = filtered(relation, condition, self.text, given)
        relation = relation.windowed(self.text)
        relation, given = self._ranked(node, relation, given, uses, ids)
        stream = self._projected(node, relation, given)
        if (distinct := node.args.get("distinct")) is not None:
            if distinct.args.get("on") is not None:
                raise self.text.error(distinct, "distinct on is not supported", "use group by, or select distinct")
            with self.text.at(node):
                stream = once(stream, ids.of("distinct"))
        return stream

    def _check_having(self, node: exp.Select) -> None:
        conditions = _having(node)
        if conditions and node.args.get("group") is None and not any(map(found, [*node.expressions, *conditions])):
            what = "having is about groups, and this query has neither group by nor an aggregate"
            raise self.text.error(conditions[0], what, "write where")

    def _ranked(
        self, node: exp.Select, relation: Relation, given: dict[exp.Expr, str], uses: Uses, ids: Ids
    ) -> tuple[Relation, dict[exp.Expr, str]]:
        """Window functions, and qualify: the first rows of each group if it asks for these alone, and else a filter."""
        qualify, windows = node.args.get("qualify"), _windows(node)
        if _keeps_first(node):
            relation, given, conditions = limited(node, relation, given, uses, ids, self.text)
        else:
            names = {p.unalias(): p.alias for p in node.expressions if isinstance(p, exp.Alias)}
            if windows:
                relation, given = windowed(windows, names, relation, given, uses, ids, self.text)
            conditions = conjuncts(qualify.this) if qualify is not None else []
        for condition in conditions:
            relation = filtered(relation, condition, self.text, given)
        return relation, given

    def _from(
        self, node: exp.Select, tables: Tables, ids: Ids, uses: Uses, scalars: set[str]
    ) -> tuple[Relation, list[exp.Expr]]:
        """The tables of from, joined, and the conditions of where that are still to be applied."""
        if (clause := node.args.get("from_")) is None:
            raise self.text.error(node, "there is no from", "a query reads at least one stream: select … from bids")
        first = self._source(clause.this, tables, ids)
        where = where_of(node)
        joins: list[exp.Join] = node.args.get("joins") or []
        if isinstance(first.window, Sessions) and where:
            raise self.text.error(
                where[0], "where is not supported beside session: without some of its rows, a session is another one",
                "filter before, in a view: with kept as (select * from bids where …) select … from session(table kept, …)",
            )  # fmt: skip
        if not joins:
            return (first.windowed(self.text) if any(map(first.of_window, where)) else first), where
        first, sources = (
            first.windowed(self.text),
            [self._joined(join, tables, ids).windowed(self.text) for join in joins],
        )
        every = Relation(first.stream, {c: n for r in (first, *sources) for c, n in r.columns.items()})
        for column in node.find_all(exp.Column):
            if column.parent_select is node and "=" not in column.table and column.table not in scalars:
                every.resolve(column, self.text)
        return Joiner(self.text, uses, ids).relation(first, joins, sources, where)

    def _windows(self, windows: Asked, tables: Tables, ids: Ids) -> Relation:
        """A table whose rows are to get windows."""
        before = self._source(windows.table, tables, ids)
        window = window_of(windows, lambda column: before.resolve(column, self.text), self.text)
        columns = {(windows.alias, name): name for name in (*before.stream.schema, START, END)}
        with self.text.at(windows.column):
            of = window.session if isinstance(window, Sessions) else window
            check_time(of.column, before.stream.schema, "")
        return Relation(before.stream, columns, window=window)

    def _joined(self, join: exp.Join, tables: Tables, ids: Ids) -> Relation:
        self.text.only(join, "side", "kind", "on")
        return self._source(join.this, tables, ids)

    def _where(
        self, relation: Relation, where: list[exp.Expr], scalars: list[Scalar], tables: Tables, ids: Ids, uses: Uses
    ) -> Relation:
        """Filters first, then subqueries: exists and in as semi and anti joins, and values as joins."""
        late = {s.alias for s in scalars}
        subqueries = [c for c in where if asks(c) is not None]
        plain = [c for c in where if asks(c) is None]
        for condition in plain:
            if not tables_of(condition) & late:
                uses.done(condition)
                relation = filtered(relation, condition, self.text)
        if scalars or subqueries:
            relation = relation.windowed(self.text)

        def query(inner: exp.Expr, part: Ids) -> Stream[Any]:
            return self.query(inner, tables, part)

        for wait in (False, True):
            for number, condition in enumerate(subqueries):
                if bool(tables_of(condition) & late) == wait:
                    part = ids.within(f"where{number + 1}")
                    relation = semi_joined(relation, condition, query, uses, part, self.text)
            for scalar in scalars if not wait else ():
                relation = joined(relation, scalar, query, uses, ids, self.text)
        for condition in plain:
            if tables_of(condition) & late:
                uses.done(condition)
                relation = filtered(relation, condition, self.text)
        return relation

    def _source(self, node: exp.Expr, tables: Tables, ids: Ids) -> Relation:
        """A table, or a subquery, under its name."""
        self.text.only(node, "joins")
        if (windows := asked(node)) is not None:
            return self._windows(windows, tables, ids)
        if isinstance(node, exp.Subquery):
            stream = self.query(node.this, tables, ids.within(node.alias))
            return Relation.of(stream, node.alias, single=tables.single(node))
        if isinstance(node, exp.Table) and node.name in tables:
            stream = tables.find(node.name, self.query, ids)
            return Relation.of(
                stream, node.alias_or_name, single=tables.single(node), named=self._names(node, stream.schema)
            )
        raise self.text.error(node, "this is not a table", "name a stream, or write a subquery: from (select …) as t")

    def _names(self, table: exp.Table, schema: pl.Schema) -> list[str]:
        """The names that a query gives to the columns of a table: from bids as b(x, y). Raises DefinitionError."""
        names = table.alias_column_names
        if len(names) > len(schema):
            raise self.text.error(
                table,
                f"{table.name} has {counted(len(schema), 'column')}, and this names {len(names)}",
                "leave the others out",
            )
        every = [*names, *schema.names()[len(names) :]]
        if twice := next((name for name in names if every.count(name) > 1), None):
            raise self.text.error(table, f"two columns are named {twice!r}", "give one another name, or name them all")
        return names

    def _grouped(self, node: exp.Select, relation: Relation, ids: Ids) -> tuple[Relation, dict[exp.Expr, str]]:
        """The groups, and the column of each key and aggregate."""
        group = node.args.get("group")
        keys = [e.unnest() for e in group.expressions] if group is not None else []
        if group is not None:
            if group.args.get("all"):
                raise self.text.error(
                    node.expressions[0],
                    "group by all is not supported",
                    "name columns, or their numbers: group by 1, 2",
                )
            self.text.only(group)
        relation = self._windows_of_group(node, relation, keys)
        build = relation.expressions(self.text)
        named = {p.this: p.alias for p in node.expressions if isinstance(p, exp.Alias)}
        given, computed, decimals = self._keys(keys, named, relation)
        stream = relation.stream
        with self.text.at(node):
            stream = stream.with_columns(**computed) if computed else stream
            columns: list[str] = list(dict.fromkeys(given.values()))
            aggregates = Aggregates(build, set(columns))
            for projection in node.expressions:
                for aggregate in found(projection):
                    aggregates.add(aggregate, named.get(aggregate, ""))
            for condition in _having(node):
                for aggregate in found(condition):
                    aggregates.add(aggregate)
            if not aggregates.asked and relation.window is None:  # group by without aggregates: each group once
                rows = stream.select(*columns).unique(id=ids.of("group"))
                return Relation(with_decimals(rows, decimals), {}, grouped=True), given
            if not keys:
                total = whole(stream._graph, stream._op, aggregates.asked, ids.of("group"), 1, self.text.line)
                grouped = aggregates.with_nulls(Stream(stream._graph, total))
                return Relation(grouped, {}, grouped=True), given | aggregates.given
            stream, by = grouping(stream, columns, relation.window)
            functions = aggregates.asked or {free("rows", {*columns}): len_()}
            grouped = aggregates.with_nulls(stream.group_by(*by, id=ids.of("group")).agg(**functions))
        return Relation(with_decimals(grouped, decimals), {}, grouped=True), given | aggregates.given

    def _keys(
        self, keys: list[exp.Expr], named: Mapping[exp.Expr, str], relation: Relation
    ) -> tuple[dict[exp.Expr, str], dict[str, nw.Expr], dict[str, pl.DataType]]:
        """The column of each key; the columns that are to be computed; and the types of those that are texts of decimals."""
        build, schema = relation.expressions(self.text), relation.stream.schema
        given: dict[exp.Expr, str] = {}
        computed: dict[str, nw.Expr] = {}
        decimals: dict[str, pl.DataType] = {}
        for key in keys:
            column = relation.resolve(key, self.text) if isinstance(key, exp.Column) else None
            if column is not None and not isinstance(
                schema.get(column), pl.Decimal
            ):  # None: a bound of windows to come
                given[key] = column
                continue
            value = build(key)
            name = named.get(key) or f"key_{len(given) + 1}"
            while name in schema or name in computed:
                name += "_key"
            given[key], computed[name] = name, value.settled()
            if isinstance(value.dtype, pl.Decimal):  # a key in state cannot be one
                computed[name], decimals[name] = computed[name].cast(nw.String), value.dtype
        return given, computed, decimals

    def _windows_of_group(self, node: exp.Select, relation: Relation, keys: list[exp.Expr]) -> Relation:
        """Lets the group have the windows, unless the query computes with them, or groups by something else."""
        computed = [k for k in keys if not isinstance(k, exp.Column)]
        aggregates = [a for e in (*node.expressions, *_having(node)) for a in found(e)]
        sessions = relation.window if isinstance(relation.window, Sessions) else None
        if (
            any(map(relation.of_window, keys))
            and (aggregates or sessions)
            and not any(map(relation.of_window, computed + aggregates))
        ):
            if sessions:
                columns = [(k, relation.resolve(k, self.text) if isinstance(k, exp.Column) else "") for k in keys]
                sessions.check_group(columns, node.args["group"], self.text)
            return relation
        return relation.windowed(self.text)

    def _projected(self, node: exp.Select, relation: Relation, given: Mapping[exp.Expr, str]) -> Stream[Any]:
        build = relation.expressions(self.text, given)
        exprs: dict[str, nw.Expr] = {}
        for projection in node.expressions:
            name, of = projection.alias_or_name, projection.unalias()
            value = build(of)
            if not value.family:
                raise self.text.error(of, "null has no type here", "cast(null as bigint)")
            if name in exprs:
                raise self.text.error(projection, f"two columns are named {name!r}", "give one another name: … as NAME")
            exprs[name] = value.expr if bare_column(value.expr) == name else value.settled().alias(name)
        if [bare_column(e) for e in exprs.values()] == relation.stream.schema.names():
            return relation.stream
        with self.text.at(node):
            if not columns_read(list(exprs.values()), relation.stream.schema):  # constants: a select would give one row
                return relation.stream.with_columns(*exprs.values()).select(*exprs)
            return relation.stream.select(*exprs.values())


def _having(node: exp.Select) -> list[exp.Expr]:
    return [node.args["having"].this] if node.args.get("having") is not None else []


def _windows(node: exp.Expr) -> list[exp.Window]:
    """The window functions of select and qualify."""
    qualify = node.args.get("qualify")
    parts = [*node.args["expressions"], *([qualify] if qualify is not None else [])]
    return [window for part in parts for window in windows_in(part)]


def _keeps_first(node: exp.Expr) -> bool:
    """Whether qualify asks for the first rows of each group alone."""
    qualify = node.args.get("qualify")
    return qualify is not None and is_top(qualify.this, _windows(node))


def _branches(node: exp.Expr) -> int:
    """Of how many queries a chain of set operations is made."""
    return _branches(node.left) + 1 if isinstance(node, exp.SetOperation) else 1
