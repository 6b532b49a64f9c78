"""The best rows of each group, as the DSL's `top_k`: row_number() over (partition by k order by x desc) <= 3, or rank().

It is in qualify, or in where around a subquery that numbers its rows; the second is first written as the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
from sqlglot import exp

from falkirk.stream.definition.expressions import bare_column
from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.relations import Ids, Relation, free
from falkirk.stream.sql.scalar.conditions import Uses, conjuncts, where_of
from falkirk.stream.sql.text import Text

HOW = "row_number() over (partition by k order by x desc) <= 3"


class Top(NamedTuple):
    """A condition that keeps the first rows of each group."""

    number: exp.Expr
    """row_number() over (…), or rank(), or the column that has it."""
    k: int


def top_of(condition: exp.Expr) -> Top | None:
    """The condition as one that keeps the first rows; None if it says something else.

    >>> from sqlglot import parse_one
    >>> top_of(parse_one("n < 4")).k, top_of(parse_one("n = 1")).k, top_of(parse_one("n > 4"))
    (3, 1, None)
    """
    if not isinstance(condition, exp.LTE | exp.LT | exp.EQ):
        return None
    limit = condition.right
    if not isinstance(limit, exp.Literal) or not limit.is_int:
        return None
    k = int(limit.name) - isinstance(condition, exp.LT)
    return Top(condition.left, k) if k > 0 and (k == 1 or not isinstance(condition, exp.EQ)) else None


def move_top(select: exp.Select) -> None:
    """Moves a condition on the row number of a subquery into the subquery, where it is qualify."""
    clause = select.args.get("from_")
    if clause is None or select.args.get("joins") or select.args.get("where") is None:
        return
    source = clause.this
    if (
        not isinstance(source, exp.Subquery)
        or not isinstance(source.this, exp.Select)
        or any(source.this.args.get(clause) for clause in ("qualify", "distinct", "limit", "offset"))
    ):
        return
    numbers = {p.alias: p for p in source.this.expressions if _is_number(p.unalias())}
    conditions = where_of(select)
    for condition in conditions:
        top = top_of(condition)
        if top is None or not isinstance(top.number, exp.Column) or top.number.name not in numbers:
            continue
        projection, rest = numbers[top.number.name], [c for c in conditions if c is not condition]
        limit = condition.copy()
        limit.set("this", projection.unalias().copy())
        source.this.set("qualify", exp.Qualify(this=limit))
        select.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
        read = any(c.name == projection.alias for c in select.find_all(exp.Column) if c.table == source.alias)
        if not read and len(source.this.expressions) > 1:
            projection.pop()
        return


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window) and isinstance(node.this, exp.RowNumber | exp.Rank)


def first_rows(node: exp.Expr, stream: Stream[Any], ids: Ids, text: Text) -> Stream[Any]:
    """The first rows of a query with order by and limit. Raises DefinitionError."""
    order, limit, offset = (node.args.get(name) for name in ("order", "limit", "offset"))
    if order is None:
        raise text.error(
            limit or offset, "a stream has no end, and no first rows", "say which are first: order by x desc limit 10"
        )
    if offset is not None:
        raise text.error(offset, "offset is not supported", "leave it out, and take more rows")
    if limit is None:
        raise text.error(
            order, "a stream has no end by which it could be sorted",
            "leave order by out; the first rows, kept up to date: order by x desc limit 10",
        )  # fmt: skip
    if (options := limit.args.get("limit_options")) and (options.args.get("percent") or options.args.get("with_ties")):
        raise text.error(
            limit, "limit takes a number of rows", "limit 10; with equal rows: qualify rank() over (order by x) <= 10"
        )
    count = limit.expression
    if not isinstance(count, exp.Literal) or not count.is_int:
        raise text.error(limit, "limit takes a number", "limit 10")
    selected = {s.unalias(): s.alias_or_name for s in getattr(node, "selects", ())}
    orders: dict[str, bool] = {}
    for term, descending in text.terms(order):
        of = term.unnest()
        name = selected.get(of) or (of.name if isinstance(of, exp.Column) and not of.table else "")
        if name not in stream.schema:
            raise text.error(term, "order by takes columns of the result", "select it too, under a name")
        orders.setdefault(name, not descending)
    whole = free("everything", {*stream.schema})
    with text.at(order):
        grouped = stream.with_columns(**{whole: nw.lit(value=True)}).group_by(whole, id=ids.of("top_k"))
        top = grouped.top_k(int(count.name), list(orders), reverse=list(orders.values()))
        return top.select(*stream.schema)


def is_top(condition: exp.Expr, windows: Sequence[exp.Window]) -> bool:
    """Whether qualify keeps the first rows, and the select has no other window function."""
    tops = [t for c in conjuncts(condition) if (t := top_of(c)) is not None and _is_number(t.number)]
    return len(tops) == 1 and all(window == tops[0].number for window in windows)


def limited(
    node: exp.Select, relation: Relation, given: dict[exp.Expr, str], uses: Uses, ids: Ids, text: Text
) -> tuple[Relation, dict[exp.Expr, str], list[exp.Expr]]:
    """The best rows, the column of their number, and the other conditions of qualify. Raises DefinitionError."""
    conditions = conjuncts(node.args["qualify"].this)
    tops = [(c, t) for c in conditions if (t := top_of(c)) is not None and _is_number(t.number)]
    (condition, (window, k)) = tops[0]
    text.only(window, "partition_by", "order", "over")
    order, ties = window.args.get("order"), isinstance(window.this, exp.Rank)
    if order is None:
        raise text.error(window, f"{'rank' if ties else 'row_number'}() has no order", HOW)
    ordered = list(text.terms(order))
    rank = next((p.alias for p in node.expressions if p.unalias() == window), None)
    build, taken = relation.expressions(text, given), {*relation.stream.schema, *([rank] if rank else [])}
    computed: dict[str, nw.Expr] = {}

    def column(of: exp.Expr) -> str:
        expr = build(of).settled()
        if (name := bare_column(expr)) is None:
            name = free("by", taken)
            computed[name] = expr
        return name

    groups = list(dict.fromkeys(column(e) for e in window.args.get("partition_by") or [exp.true()]))
    orders: dict[str, bool] = {}
    for term, descending in ordered:
        if (name := column(term)) not in groups:
            orders.setdefault(name, not descending)
    if not orders:
        raise text.error(order, "all rows of a group are equal in this order", "order by another column")
    stream = relation.stream.with_columns(**computed) if computed else relation.stream
    uses.done(condition)
    read = {name for key, name in relation.columns.items() if key in uses} | {*groups, *orders}
    kept = [c for c in stream.schema if relation.grouped or c in read or c in (stream._op.unique or ())]
    number = free(rank, {*stream.schema}) if rank else None
    with text.at(window):
        stream = stream if kept == stream.schema.names() else stream.select(*kept)
        grouped = stream.group_by(groups, id=ids.of("top_k"))
        stream = grouped.top_k(k, list(orders), reverse=list(orders.values()), rank=number, ties=ties)
    columns = {key: name for key, name in relation.columns.items() if name in kept}
    ranks = {window: number} if number is not None else {}
    return (
        Relation(stream, columns, relation.grouped),
        {**given, **ranks},
        [c for c in conditions if c is not condition],
    )
