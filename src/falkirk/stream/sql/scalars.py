"""Subqueries that are one value, as joins: select …, where, having.

x < (select max(b.y) from b where b.k = a.k)      a join (select k, max(y) as value from b group by k) on a.k = k
x < (select max(b.y) from b)                      a join (select true, max(y) as value from b) on true = true

The join is an inner one if a null value could not make its condition true. Otherwise it is a left one, and where there is no
group, the value is what the aggregates give of nothing: 0 for a count, and null for the others.

value(a) = case when group(a) is missing then p(nothing) else p(group(a)) end
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from sqlglot import exp

from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.joins import Joiner
from falkirk.stream.sql.relations import Ids, Relation, Tables
from falkirk.stream.sql.scalar.conditions import Conditions, Uses, equality, found, own_tables, tables_of, where_of
from falkirk.stream.sql.text import Text

VALUE = "value"
KEY = "on_1"
"""The columns of a subquery's rows: its value, and the first of the columns by which it is joined."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_STRICT = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren, exp.Cast, exp.Alias)
"""Operators that are null where one of their operands is."""
_COUNTS = (exp.Count, exp.CountIf, exp.ApproxDistinct)


class Scalar(NamedTuple):
    """A subquery that is one value."""

    alias: str
    """The name of its rows in the join."""
    node: exp.Subquery
    how: Literal["inner", "left"]


def lift(select: exp.Select, tables: Tables, text: Text) -> list[Scalar]:
    """Replaces subqueries in expressions of the select by columns, which the joins will have. Raises DefinitionError."""
    conditions = where_of(select)
    group = select.args["group"].expressions if select.args.get("group") is not None else []
    scalars: list[Scalar] = []
    keys: dict[exp.Expr, exp.Expr] = {}
    for part in (*conditions, *select.expressions, *group):
        for node in list(part.find_all(exp.Subquery)):
            if node.parent_select is not select or not is_value(node):
                continue
            if (known := keys.get(node)) is not None:  # select (select …) as g … group by g: the key itself is selected
                node.replace(known.copy())
                continue
            asked, condition = node.copy(), any(part is c for c in conditions)
            strict = condition and _rejects_null(node, part)
            scalar, value = _lifted(node, f"scalar{len(scalars) + 1}", strict, tables, text)
            scalars.append(scalar)
            if group and not condition:
                keys[asked] = value
    return scalars


def is_value(node: exp.Expr) -> bool:
    """Whether a subquery stands for a value, and not for the rows of exists or in."""
    quantified = isinstance(node.parent, exp.Exists | exp.Any | exp.All | exp.Subquery)
    return isinstance(node, exp.Subquery) and not quantified and node.arg_key not in ("query", "from_", "joins")


def _rejects_null(node: exp.Expr, condition: exp.Expr) -> bool:
    """Whether the condition is not true where the value is null.

    >>> from sqlglot import parse_one
    >>> tried = [parse_one(sql) for sql in ("a < 2 * (select 1)", "coalesce((select 1), 0) = 0", "(select 1) is null")]
    >>> [_rejects_null(c.find(exp.Subquery), c) for c in tried]
    [True, False, False]
    """
    compared = condition.unnest()
    if not isinstance(compared, _COMPARISONS):
        return False
    above = node.parent
    while above is not None and above is not compared:
        if not isinstance(above, _STRICT):
            return False
        above = above.parent
    return above is not None


def _lifted(node: exp.Subquery, alias: str, strict: bool, tables: Tables, text: Text) -> tuple[Scalar, exp.Expr]:
    """A subquery, and what takes its place."""
    inner = node.unnest()
    if not isinstance(inner, exp.Query) or len(inner.selects) != 1:
        raise text.error(node, "a subquery in an expression has one column", "select one value: (select max(x) from b)")
    if not tables.single(inner):
        raise text.error(
            node, "a subquery in an expression must be one value, and this one may have several rows",
            "aggregate: (select max(x) from b where b.k = a.k)",
        )  # fmt: skip
    if isinstance(inner, exp.Select):
        _without_having(inner)
    column = exp.column(VALUE, table=alias)
    _place(column, node)
    replacement: exp.Expr = column
    how: Literal["inner", "left"] = "inner"
    nothing = _of_nothing(inner)
    if not strict or nothing is not None:
        how = "left"
    if nothing is not None:
        missing = exp.Is(this=exp.column(KEY, table=alias), expression=exp.Null())
        replacement = exp.Case(ifs=[exp.If(this=missing, true=nothing)], default=column)
    node.replace(replacement)
    return Scalar(alias, node, how), replacement


def _without_having(inner: exp.Select) -> None:
    """One value with having is that value or null: it can be told from one of which no row has come."""
    having = inner.args.get("having")
    if having is None or inner.args.get("group") is not None:
        return
    value = inner.selects[0]
    kept = exp.Case(ifs=[exp.If(this=having.this, true=value.unalias().copy())])
    inner.set("having", None)
    inner.set("expressions", [exp.alias_(kept, value.alias_or_name)])


def _of_nothing(inner: exp.Query) -> exp.Expr | None:
    """What the subquery's value is of no rows; None for null."""
    projection = inner.selects[0].unalias()
    if not isinstance(inner, exp.Select) or inner.args.get("group") is not None:
        return None
    if not found(projection) or _null_of_nothing(projection):
        return None
    whole = exp.Paren(this=projection.copy())
    for aggregate in found(whole):
        function = aggregate.this if isinstance(aggregate, exp.Filter) else aggregate
        aggregate.replace(exp.Literal.number(0) if isinstance(function, _COUNTS) else exp.Null())
    return whole


def _null_of_nothing(node: exp.Expr) -> bool:
    """Whether an expression of aggregates is certainly null if there are no rows."""
    if isinstance(node, exp.Filter):
        return _null_of_nothing(node.this)
    if isinstance(node, exp.AggFunc):
        return not isinstance(node, _COUNTS)
    return isinstance(node, _STRICT) and any(map(_null_of_nothing, node.iter_expressions()))


def _place(column: exp.Column, node: exp.Expr) -> None:
    """Errors of the column point to the subquery."""
    if (first := next((n for n in node.walk() if "start" in n.meta), None)) is not None:
        column.this.meta.update(first.meta)


def joined(
    relation: Relation, scalar: Scalar, query: Callable[[exp.Expr, Ids], Stream], uses: Uses, ids: Ids, text: Text
) -> Relation:
    """The rows, each with the subquery's value. Raises DefinitionError."""
    inner = scalar.node.unnest()
    assert isinstance(inner, exp.Query)
    outer = relation.tables - own_tables(inner)
    if tables_of(inner) & outer:
        on, inner = _grouped(inner, outer, text)
    else:
        on, inner = Conditions(equal=[(exp.true(), exp.true())]), _always(inner)
    right = Relation.of(query(inner, ids.within(scalar.alias)), scalar.alias, single=False)
    on.equal = [(mine, exp.column(f"on_{i + 1}", table=scalar.alias)) for i, (mine, _) in enumerate(on.equal)]
    return Joiner(text, uses, ids).joined(relation, right, scalar.how, on, scalar.node)


def _always(inner: exp.Query) -> exp.Select:
    """A subquery that does not depend on the row: its value, and true."""
    name = inner.selects[0].alias_or_name
    source = exp.Subquery(this=inner.copy(), alias=exp.TableAlias(this=exp.to_identifier("of")))
    columns = [exp.alias_(exp.true(), KEY), exp.alias_(exp.column(name, table="of"), VALUE)]
    return exp.Select(expressions=columns).from_(source, copy=False)


def _grouped(inner: exp.Query, outer: set[str], text: Text) -> tuple[Conditions, exp.Select]:
    """What must be equal, and the subquery grouped by its side of that."""
    if not isinstance(inner, exp.Select) or not found(inner.selects[0]) or inner.args.get("having") is not None:
        raise text.error(
            inner, "a subquery that depends on the row must be an aggregate", "(select max(x) from b where b.k = a.k)"
        )
    on, kept = Conditions(), list[exp.Expr]()
    own = tables_of(inner) - outer
    for condition in where_of(inner):
        tables = tables_of(condition)
        if list(condition.find_all(exp.Query)):
            kept.append(condition)
        elif (pair := equality(condition, outer, own)) is not None:
            on.equal.append(pair)
        elif tables and tables <= outer:
            on.left.append(condition)
        else:
            kept.append(condition)
    projection = inner.selects[0].unalias()
    for part in (*kept, projection, *(inner.args.get("joins") or ())):
        if tables_of(part) & outer:
            raise text.error(
                part, "a subquery that is one value compares with the outer query with = only",
                "join the tables, and group",
            )  # fmt: skip
    if not on.equal:
        on.equal.append((exp.true(), exp.true()))
    inner = inner.copy()
    keys = [b.copy() for _, b in on.equal]
    named = [exp.alias_(key, f"on_{i + 1}") for i, key in enumerate(keys)]
    inner.set("expressions", [*named, exp.alias_(projection.copy(), VALUE)])
    inner.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    inner.set("where", exp.Where(this=exp.and_(*[c.copy() for c in kept])) if kept else None)
    return on, inner
