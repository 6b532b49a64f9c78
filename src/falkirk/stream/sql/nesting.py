"""A group whose having or select has subqueries, as a query around the groups.

select g, sum(x) from t group by g having sum(x) > (select …)
select key_1, agg_1 from (select g as key_1, sum(x) as agg_1 from t group by g) as grouped where agg_1 > (select …)
"""

from __future__ import annotations

from sqlglot import exp

from falkirk.stream.sql.scalar.conditions import found, own_tables

GROUPED = "grouped"


def nested(node: exp.Select) -> exp.Select:
    """The same query, in which subqueries stand outside of groups.

    >>> from sqlglot import parse_one
    >>> print(nested(parse_one("select t.g as g from t group by t.g having sum(t.x) > (select 1)")).sql(pretty=True))
    SELECT
      grouped.key_1 AS g
    FROM (
      SELECT
        t.g AS key_1,
        SUM(t.x) AS agg_1
      FROM t
      GROUP BY
        t.g
    ) AS grouped
    WHERE
      grouped.agg_1 > (
        SELECT
          1
      )
    """
    having = [node.args["having"].this] if node.args.get("having") is not None else []
    parts = [*node.expressions, *having]
    aggregates = list(dict.fromkeys(a for part in parts for a in found(part)))
    keys = node.args["group"].expressions if node.args.get("group") is not None else []
    if not (keys or aggregates) or not any(_asks(part, keys) for part in parts):
        return node
    names = _numbered(keys, aggregates)
    inner = node.copy()
    # Not alias_, which would make the name a part of a subquery, and no longer equal to the key.
    inner.set("expressions", [exp.Alias(this=e.copy(), alias=exp.to_identifier(n)) for e, n in names.items()])
    for clause in ("having", "distinct", "qualify", "with_"):
        inner.set(clause, None)
    source = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(GROUPED)))
    outer = exp.Select(expressions=[_replaced(e, names) for e in node.expressions]).from_(source, copy=False)
    if having:
        outer.set("where", exp.Where(this=_replaced(having[0], names)))
    for clause in ("distinct", "qualify"):
        if (found_clause := node.args.get(clause)) is not None:
            outer.set(clause, _replaced(found_clause, names))
    return outer


def _numbered(keys: list[exp.Expr], aggregates: list[exp.Expr]) -> dict[exp.Expr, str]:
    plain = [key if isinstance(key, exp.Query) else key.unnest() for key in dict.fromkeys(keys)]
    names: dict[exp.Expr, str] = {key: f"key_{i + 1}" for i, key in enumerate(plain)}
    return names | {aggregate: f"agg_{i + 1}" for i, aggregate in enumerate(aggregates)}


def _asks(part: exp.Expr, keys: list[exp.Expr]) -> bool:
    """Whether there is a subquery outside of keys and aggregates."""
    if part in keys:
        return False
    if isinstance(part, exp.Query):
        return True
    if part in found(part):
        return False
    return any(_asks(child, keys) for child in part.iter_expressions())


def _replaced(part: exp.Expr, names: dict[exp.Expr, str]) -> exp.Expr:
    """The part with the columns of the groups. In its subqueries, columns of the outer query are keys."""
    whole = exp.Paren(this=part.copy())
    for node in list(whole.walk()):
        name = names.get(node)
        if name is None:
            continue
        query = node.find_ancestor(exp.Query)
        hidden = isinstance(query, exp.Query) and (not isinstance(node, exp.Column) or _hides(node))
        if not hidden and node.root() is whole:
            column = exp.column(name, table=GROUPED)
            if (first := next((n for n in node.walk() if "start" in n.meta), None)) is not None:
                column.this.meta.update(first.meta)
            node.replace(column)
    result: exp.Expr = whole.this
    return result.pop()


def _hides(column: exp.Column) -> bool:
    """Whether a subquery around the column has a table of this name."""
    query = column.find_ancestor(exp.Query)
    while query is not None:
        if column.table in own_tables(query):
            return True
        query = query.find_ancestor(exp.Query)
    return False
