"""Subqueries of where: `exists`, `not exists` and `in` as semi and anti joins.

x in (select y …)                        semi join on x = y
exists (select … where b.k = a.k)        semi join on a.k = b.k
not exists (select … where b.k = a.k)    anti join: a row with a null k stays, since null equals nothing
x not in (select y …)                    refused: it is null for every x as soon as one y is null
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.aggregates import found
from falkirk.stream.sql.conditions import Conditions, Uses, conjuncts, equality, tables_of
from falkirk.stream.sql.joins import Joiner
from falkirk.stream.sql.relations import Ids, Relation
from falkirk.stream.sql.text import Text

THERE = "exists"
"""The name of the subquery's rows in the join."""


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


def semi_joined(
    relation: Relation,
    condition: exp.Expr,
    query: Callable[[exp.Expr, Ids], Stream[Any]],
    uses: Uses,
    ids: Ids,
    text: Text,
) -> Relation:
    """The rows for which exists or in is true. Raises DefinitionError."""
    asked = asks(condition)
    assert asked is not None
    uses.done(condition)
    negative = asked is not condition.unnest()
    if isinstance(asked, exp.In) and negative:
        raise text.error(
            asked,
            "not in with a subquery is true of no row once the subquery gives a null",
            "write not exists (select … where b.x = a.x)",
        )
    inner: exp.Query = asked.args["query"].unnest() if isinstance(asked, exp.In) else asked.this.unnest()
    on, inner = _apart(relation, inner, asked, text)
    right = query(inner, ids)
    names = right.schema.names()
    on.equal = [(mine, exp.column(name, table=THERE)) for (mine, _), name in zip(on.equal, names, strict=True)]
    joiner = Joiner(text, uses, ids)
    return joiner.joined(relation, Relation.of(right, THERE), "anti" if negative else "semi", on, asked)


def _apart(relation: Relation, inner: exp.Query, asked: exp.Expr, text: Text) -> tuple[Conditions, exp.Query]:
    """What must be equal, and the subquery without what it says about the outer query: it gives the equal values."""
    on = Conditions()
    outer = _outer(relation, inner)
    if isinstance(asked, exp.In):
        if len(inner.selects) != 1:
            raise text.error(asked, "in takes a subquery with one column", "select the column that is compared")
        on.equal.append((asked.this, inner.selects[0].unalias()))
    if not isinstance(inner, exp.Select) or not any(tables_of(c) & outer for c in _where(inner)):
        if not on.equal:
            raise text.error(asked, "this exists does not depend on the row", "compare with it: where b.x = a.x")
        return on, inner
    if inner.args.get("group") or inner.args.get("having") or any(map(found, inner.expressions)):
        raise text.error(
            asked, "a subquery that aggregates cannot depend on the row", "group in a subquery of from, and join it"
        )
    own = tables_of(inner) - outer
    kept: list[exp.Expr] = []
    for condition in _where(inner):
        tables = tables_of(condition)
        if (pair := equality(condition, outer, own)) is not None:
            on.equal.append(pair)
        elif tables and tables <= outer:
            on.left.append(condition)
        elif tables & outer:
            raise text.error(
                condition,
                "a subquery compares with the outer query with = only",
                "join the tables, and select distinct",
            )
        else:
            kept.append(condition)
    inner = inner.copy()
    inner.set("expressions", [exp.alias_(b.copy(), f"on_{i + 1}") for i, (_, b) in enumerate(on.equal)])
    inner.set("distinct", None)
    inner.set("where", exp.Where(this=exp.and_(*[c.copy() for c in kept])) if kept else None)
    return on, inner


def _where(inner: exp.Select) -> list[exp.Expr]:
    return conjuncts(inner.args["where"].this) if inner.args.get("where") is not None else []


def _outer(relation: Relation, inner: exp.Expr) -> set[str]:
    """The tables of the outer query that the subquery has not hidden."""
    own = {source.alias_or_name for source in inner.find_all(exp.Table, exp.Subquery)}
    return relation.tables - own
