"""Subqueries of where: `exists` and `in`, and their opposites, as semi and anti joins.

x in (select y …)                        semi join on x = y
exists (select … where b.k = a.k)        semi join on a.k = b.k
not exists (select … where b.k = a.k)    anti join: a row with a null k stays, since null equals nothing
exists (select …)                        semi join on true = true
x not in (select y …)                    three anti joins, since null is in doubt everywhere:
                                         x = y; true where some y is null; true where x is null and there is any y

A subquery that depends on the row adds its equalities to each join.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.joins import Joiner
from falkirk.stream.sql.relations import Ids, Relation
from falkirk.stream.sql.scalar.conditions import Conditions, Uses, equality, found, own_tables, tables_of, where_of
from falkirk.stream.sql.text import Text

THERE = "exists"
"""The name of the subquery's rows in the join."""

Query = Callable[[exp.Expr, Ids], Stream[Any]]


def asks(condition: exp.Expr) -> exp.Exists | exp.In | None:
    """The exists or in of a condition that is one, or the opposite of one.

    >>> from sqlglot import parse_one
    >>> asks(parse_one("not exists (select 1 from b)")).sql()
    'EXISTS(SELECT 1 FROM b)'
    """
    node = condition.unnest()
    if isinstance(node, exp.Not):
        node = node.this.unnest()
    is_subquery = isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)
    return node if is_subquery else None  # type: ignore[return-value]


def settle(select: exp.Select) -> None:
    """Replaces each exists over aggregates without group by. They give one row, also of nothing, so it is true.

    exists (select max(b) from r having max(b) > 3)      (select max(b) > 3 from r) is true
    """
    for node in list(select.find_all(exp.Exists)):
        inner = node.this.unnest() if node.parent_select is select else None
        if not isinstance(inner, exp.Select) or any(inner.args.get(c) for c in ("group", "qualify", "limit", "offset")):
            continue
        having = inner.args["having"].this if inner.args.get("having") is not None else None
        if having is None and any(map(found, inner.expressions)):
            node.replace(exp.true())
        elif having is not None and found(having):
            inner.set("having", None)
            inner.set("expressions", [exp.alias_(having, "holds")])
            node.replace(exp.Is(this=exp.Subquery(this=inner), expression=exp.true()))


def semi_joined(relation: Relation, condition: exp.Expr, query: Query, uses: Uses, ids: Ids, text: Text) -> Relation:
    """The rows for which exists or in is true. Raises DefinitionError."""
    asked = asks(condition)
    assert asked is not None
    negative = asked is not condition.unnest()
    inner: exp.Query = asked.args["query"].unnest() if isinstance(asked, exp.In) else asked.this.unnest()
    on, inner = _apart(relation, inner, asked, text)
    if isinstance(asked, exp.In) and negative:
        relation = _without_doubt(
            relation=relation, asked=asked, on=on, inner=inner, query=query, uses=uses, ids=ids, text=text
        )
    uses.done(condition)
    return _joined(relation, "anti" if negative else "semi", on, query(inner, ids), asked, uses, ids, text)


def _joined(
    relation: Relation, how: Any, on: Conditions, right: Stream[Any], asked: exp.Expr, uses: Uses, ids: Ids, text: Text
) -> Relation:
    names = right.schema.names()
    equal: list[tuple[exp.Expr, exp.Expr]] = [
        (mine, exp.column(name, table=THERE)) for (mine, _), name in zip(on.equal, names, strict=False)
    ]
    on = Conditions(equal=equal, left=list(on.left), other=list(on.other))
    uses.more(*on.other)
    return Joiner(text, uses, ids).joined(relation, Relation.of(right, THERE), how, on, asked)


def _without_doubt(
    relation: Relation, asked: exp.In, on: Conditions, inner: exp.Query, query: Query, uses: Uses, ids: Ids, text: Text
) -> Relation:
    """The rows for which `x not in (select y …)` is not null: no y is null, and x is not null unless there is no y.

    The first of the columns that must be equal is x, and the others are those of the row on which the subquery depends.
    """
    x = asked.this
    y, *names = (s.alias_or_name for s in inner.selects)
    for number, doubtful in enumerate((exp.column(y, table=THERE), x)):
        if _is_never_null(inner, doubtful, y, number):
            continue
        source = exp.Subquery(this=inner.copy(), alias=exp.TableAlias(this=exp.to_identifier(THERE)))
        columns: dict[str, exp.Expr] = {
            f"equal_{i + 1}": exp.column(n, table=THERE) for i, n in enumerate(names[: len(on.equal) - 1])
        }
        others = {n: exp.column(n, table=THERE) for n in names[len(on.equal) - 1 :]}
        columns = {**(columns or {"equal_1": exp.true()}), **others}
        select = exp.Select(expressions=[exp.alias_(c, name) for name, c in columns.items()])
        select = select.from_(source, copy=False).distinct(copy=False)
        is_null = exp.Is(this=doubtful.copy(), expression=exp.Null())
        left = [condition.copy() for condition in on.left]
        if number == 0:
            select.set("where", exp.Where(this=is_null))
        else:
            left.append(is_null)
        part = ids.within(("some", "any")[number])
        # Of copies, since the columns are read again by the next join.
        equal: list[tuple[exp.Expr, exp.Expr]]
        equal = [(mine.copy(), theirs) for mine, theirs in on.equal[1:]] or [(exp.true(), exp.true())]
        uses.more(*[mine for mine, _ in equal], *left)
        both = Conditions(equal=equal, left=left, other=[condition.copy() for condition in on.other])
        relation = _joined(relation, "anti", both, query(select, part), asked, uses, part, text)
    return relation


def _is_never_null(inner: exp.Query, doubtful: exp.Expr, y: str, number: int) -> bool:
    """Whether the subquery says itself that its column is not null, or x is a constant."""
    if number == 1:
        return isinstance(doubtful, exp.Literal)
    if not isinstance(inner, exp.Select):
        return False
    selected = next(s.unalias() for s in inner.selects if s.alias_or_name == y)
    return any(
        isinstance(c, exp.Not)
        and isinstance(c.this.unnest(), exp.Is)
        and isinstance(c.this.unnest().expression, exp.Null)
        and c.this.unnest().this == selected
        for c in where_of(inner)
    )


def _apart(relation: Relation, inner: exp.Query, asked: exp.Expr, text: Text) -> tuple[Conditions, exp.Query]:
    """What must be equal, and the subquery without what it says about the outer query: it gives the equal values."""
    on = Conditions()
    outer = relation.tables - own_tables(inner)
    if isinstance(asked, exp.In):
        if len(inner.selects) != 1:
            raise text.error(asked, "in takes a subquery with one column", "select the column that is compared")
        on.equal.append((asked.this, inner.selects[0].unalias()))
    if not isinstance(inner, exp.Select) or not any(tables_of(c) & outer for c in where_of(inner)):
        if not on.equal:
            on.equal.append((exp.true(), exp.true()))
            return on, _any_row(inner)
        return on, inner
    return on, _depending(on, inner, outer, asked, text)


def _depending(on: Conditions, inner: exp.Select, outer: set[str], asked: exp.Expr, text: Text) -> exp.Select:
    """A subquery whose where reads the outer query, without those conditions."""
    if inner.args.get("group") or inner.args.get("having") or any(map(found, inner.expressions)):
        raise text.error(
            asked, "a subquery that aggregates cannot depend on the row", "group in a subquery of from, and join it"
        )
    own = tables_of(inner) - outer
    kept: list[exp.Expr] = []
    for condition in where_of(inner):
        tables = tables_of(condition)
        if tables & outer and list(condition.find_all(exp.Query)):
            raise text.error(
                condition,
                "a subquery in a subquery depends on the row of its own query only",
                "join the tables, and select distinct",
            )
        if (pair := equality(condition, outer, own)) is not None:
            on.equal.append(pair)
        elif tables and tables <= outer:
            on.left.append(condition)
        elif tables & outer:
            on.other.append(condition.copy())
        else:
            kept.append(condition)
    if not on.equal:
        on.equal.append((exp.true(), exp.true()))
    columns = [b.copy() for _, b in on.equal]
    columns += _read_by_others(on, own)
    inner = inner.copy()
    inner.set("expressions", [exp.alias_(c, f"on_{i + 1}") for i, c in enumerate(columns)])
    inner.set("distinct", None)
    inner.set("where", exp.Where(this=exp.and_(*[c.copy() for c in kept])) if kept else None)
    return inner


def _read_by_others(on: Conditions, own: set[str]) -> list[exp.Column]:
    """The subquery's columns in conditions that are not equalities. The conditions read them from its rows."""
    found: list[exp.Column] = []
    for condition in on.other:
        for column in [c for c in condition.find_all(exp.Column) if c.table in own]:
            plain = column.copy()
            if plain not in found:
                found.append(plain)
            there = exp.column(f"on_{len(on.equal) + found.index(plain) + 1}", table=THERE)
            there.this.meta.update(column.this.meta)
            column.replace(there)
    return found


def _any_row(inner: exp.Query) -> exp.Query:
    """True, if a query has any row."""
    source = exp.Subquery(this=inner.copy(), alias=exp.TableAlias(this=exp.to_identifier(THERE)))
    return exp.Select(expressions=[exp.alias_(exp.true(), "on_1")]).from_(source, copy=False).distinct(copy=False)
