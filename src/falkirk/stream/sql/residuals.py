"""Joins, other than inner ones, with a condition on both tables that is not an equality: r(a, b) besides a.k = b.k.

One comparison of a row with its partners, as in exists (… b.k = a.k and b.x <> a.y), is one with the least and greatest
of theirs:

semi    filter(a join (select k, min(x) as low, max(x) as high from b group by k), low <> y or high <> y)
anti    filter(a left join …, not …)          < and <= take low, > and >= high, = has no such form

Otherwise the rows that have a partner are found by an inner join:

M       unique(columns of a in filter(a join b, r))       null is a value here: two rows are the same if all their columns are
semi    a semi join M        anti    a anti join M        left    filter(a join b, r) + (a anti join M, with nulls)
full    left + (b anti join M of b, with nulls)
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.aggregates.builtin import max_, min_
from falkirk.stream.flow.streams import Stream
from falkirk.stream.operators.joins.join import How
from falkirk.stream.sql.relations import Relation, filtered, free
from falkirk.stream.sql.scalar.conditions import Conditions, merged, tables_of

if TYPE_CHECKING:
    from falkirk.stream.sql.joins import Joiner

EXTREMES = "extremes"
ROW = "row"

_TURNED: Mapping[type[exp.Expr], type[exp.Binary]] = {
    exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE,
}  # fmt: skip
"""The comparison with its sides exchanged."""


def with_residuals(
    joiner: Joiner, left: Relation, right: Relation, how: How, on: Conditions, node: exp.Expr
) -> Relation:
    """The join. Raises DefinitionError."""
    if how in ("semi", "anti") and (compared := _compared(joiner, left, right, on)) is not None:
        return _by_extremes(joiner, left, right, how, on, compared, node)
    if all(isinstance(mine, exp.Boolean) for mine, _ in on.equal) and not (left.single or right.single):
        raise joiner.cross(on.other[0])
    return _by_rows(joiner, left, right, how, on, node)


def _compared(joiner: Joiner, left: Relation, right: Relation, on: Conditions) -> exp.Binary | None:
    """The one comparison, as that of a value of the right side with one of the left."""
    condition: Any = on.other[0].unnest()
    if len(on.other) != 1 or type(condition) not in _TURNED:
        return None
    sides = [condition.left, condition.right]
    if tables_of(sides[0]) <= left.tables:
        sides.reverse()
        condition = _TURNED[type(condition)](this=sides[0], expression=sides[1])
    theirs, mine = map(tables_of, sides)
    if not theirs or not theirs <= right.tables or not mine <= left.tables:
        return None
    assert isinstance(condition, exp.Binary)
    build = right.expressions(joiner.text)
    if any(isinstance(build(b).dtype, pl.Decimal) for _, b in on.equal):
        return None  # the DSL does not group by decimals
    value = build(sides[0])
    plain = value.dtype.is_integer() or value.dtype.is_temporal() or value.dtype == pl.String()
    return condition if plain else None


def _by_extremes(
    joiner: Joiner, left: Relation, right: Relation, how: How, on: Conditions, compared: exp.Binary, node: exp.Expr
) -> Relation:
    name = f"{EXTREMES}.{'+'.join(sorted(right.tables))}"
    for condition in on.right:
        right = filtered(right, condition, joiner.text)
    build = right.expressions(joiner.text)
    value = build(compared.left).settled()
    keys = {f"on_{i + 1}": build(b).settled() for i, (_, b) in enumerate(on.equal)}
    stream = right.stream.select(*[e.alias(key) for key, e in keys.items()], value.alias("x"))
    with joiner.text.at(node):
        ends = {"low": min_("x"), "high": max_("x")}
        asked = {"low": ends["low"]} if isinstance(compared, exp.LT | exp.LTE) else ends
        asked = {"high": ends["high"]} if isinstance(compared, exp.GT | exp.GTE) else asked
        grouped = stream.group_by(list(keys), id=joiner.ids.of(name)).agg(**asked)
    holds = [type(compared)(this=exp.column(e, table=name), expression=compared.right.copy()) for e in asked]
    either = exp.or_(*holds, copy=False)
    condition = (
        either if how == "semi" else exp.Not(this=exp.Coalesce(this=exp.Paren(this=either), expressions=[exp.false()]))
    )
    joiner.uses.done(*on.other)
    joiner.uses.more(condition)
    equal: list[tuple[exp.Expr, exp.Expr]] = [
        (mine, exp.column(key, table=name)) for (mine, _), key in zip(on.equal, keys, strict=True)
    ]
    both = Conditions(equal=equal, left=on.left)
    joined = joiner.joined(left, Relation.of(grouped, name), "inner" if how == "semi" else "left", both, node)
    joiner.uses.done(condition)
    return filtered(joined, condition, joiner.text)


def _by_rows(joiner: Joiner, left: Relation, right: Relation, how: How, on: Conditions, node: exp.Expr) -> Relation:
    part = ".".join(sorted(right.tables))
    both = _merged(joiner, on) if how == "full" else []
    joiner.uses.more(*[c for pair in both for c in pair])
    sides = [_Rows(joiner, left, on, "left", part), _Rows(joiner, right, on, "right", part)]
    searched = sides[: 2 if how == "full" else 1]
    columns = [c for side in searched for c in side.identity]
    joiner.uses.more(*columns)
    if how in ("semi", "anti"):
        for condition in on.right:
            right = filtered(right, condition, joiner.text)
    inner = Conditions(list(on.equal), list(on.left), list(on.right), list(on.other))
    relations = [sides[0].relation, sides[1].relation if how == "full" else right]
    pairs = joiner.joined(relations[0], relations[1], "inner", inner, node)
    joiner.uses.done(*columns, *[c for pair in both for c in pair])
    if how in ("semi", "anti"):
        return sides[0].found(pairs, how)
    of_rows = {c for c in pairs.columns if c[0] in (s.table for s in sides)}
    whole, kept = _apart(pairs, {c: n for c, n in pairs.columns.items() if c not in of_rows}, right.tables)
    schema = whole.schema
    for side in searched:
        whole = whole.concat(side.alone(pairs, kept, schema), id=side.id("rest"))
    return _with_merged(Relation(whole, kept), both)


def _apart(
    pairs: Relation, kept: Mapping[tuple[str, str], str], theirs: Set[str]
) -> tuple[Stream[Any], dict[tuple[str, str], str]]:
    """The pairs with a key for each side. They are equal in a pair, and one is null where a side is alone."""
    mine = {name for (table, _), name in kept.items() if table not in theirs}
    taken, copies = {*pairs.stream.schema}, dict[str, str]()
    for (table, column), name in kept.items():
        if table in theirs and name in mine and name not in copies:
            copies[name] = free(f"{column}_{table}", taken)
    names = {c: copies.get(name, name) if c[0] in theirs else name for c, name in kept.items()}
    exprs = {names[c]: nw.col(name).alias(names[c]) if names[c] != name else nw.col(name) for c, name in kept.items()}
    return pairs.stream.select(*exprs.values()), names


def _merged(joiner: Joiner, on: Conditions) -> list[tuple[exp.Column, exp.Column]]:
    """The keys of both sides whose column in common, coalesce(a.k, b.k), is read."""
    pairs = [(a.copy(), b.copy()) for a, b in on.equal if isinstance(a, exp.Column) and isinstance(b, exp.Column)]
    return [(a, b) for a, b in pairs if (merged(a, b).table, a.name) in joiner.uses]


def _with_merged(relation: Relation, both: list[tuple[exp.Column, exp.Column]]) -> Relation:
    stream, columns, taken = relation.stream, dict(relation.columns), {*relation.stream.schema}
    for a, b in both:
        mine, theirs = (nw.col(columns[c.table, c.name]) for c in (a, b))
        columns[merged(a, b).table, a.name] = name = free(a.name, taken)
        stream = stream.with_columns(**{name: nw.coalesce(mine, theirs)})
    return Relation(stream, columns)


class _Rows:
    """One side, whose rows have columns that identify them: all their values, and which of them are null."""

    def __init__(self, joiner: Joiner, relation: Relation, on: Conditions, name: str, part: str) -> None:
        self.joiner, self.name, self.table, self.part = joiner, name, f"{ROW}={name}", part
        joiner.uses.more(*[pair[name == "right"] for pair in on.equal], *on.left, *on.right, *on.other)
        read = dict.fromkeys(n for column, n in relation.columns.items() if column in joiner.uses)
        self.before = relation = _kept(relation, {*read})
        schema = relation.stream.schema
        exprs: dict[str, nw.Expr] = {}
        for column in read:
            exprs[self._free(f"{ROW}_{len(exprs) + 1}", schema)] = _filled(nw.col(column), schema[column])
        flags = [nw.when(nw.col(c).is_null()).then(nw.lit("0")).otherwise(nw.lit("1")) for c in read]
        exprs[self._free(f"{ROW}_nulls", schema)] = nw.concat_str(flags) if len(flags) > 1 else flags[0]
        self.names = list(exprs)
        stream = relation.stream.with_columns(**exprs)
        marks = {(self.table, n): n for n in self.names}
        self.relation = Relation(stream, {**relation.columns, **marks}, single=relation.single)
        self.identity = [exp.column(n, table=self.table) for n in self.names]

    def id(self, what: str) -> str:
        """The id of one operator of this join."""
        return self.joiner.ids.of(f"{what}.{self.part}.{self.name}")

    def _free(self, name: str, schema: pl.Schema) -> str:
        name = f"{name}_{self.name}"
        while name in schema:
            name += "_"
        return name

    def found(self, pairs: Relation, how: How) -> Relation:
        """The rows that are in a pair, or that are not."""
        names = [pairs.columns[self.table, n] for n in self.names]
        seen = pairs.stream.select(*[nw.col(p).alias(n) for p, n in zip(names, self.names, strict=True)])
        seen = seen.unique(id=self.id("found"))
        stream = self.relation.stream.join(seen, on=self.names, how=how, id=self.id(how))
        return Relation(stream.select(*self.before.stream.schema), self.before.columns)

    def alone(self, pairs: Relation, kept: Mapping[tuple[str, str], str], schema: pl.Schema) -> Stream[Any]:
        """The rows that are in no pair, with nulls for the columns of the other side."""
        rest = self.found(pairs, "anti")
        mine = {name: rest.columns[column] for column, name in kept.items() if column in rest.columns}
        exprs = [_named(mine.get(name), name, dtype) for name, dtype in schema.items()]
        return rest.stream.select(*exprs)


def _kept(relation: Relation, read: set[str]) -> Relation:
    """The columns that are still read, and those that identify rows."""
    stream = relation.stream
    kept = [name for name in stream.schema if name in read or name in (stream._op.unique or ())]
    if kept == stream.schema.names():
        return relation
    columns = {column: name for column, name in relation.columns.items() if name in kept}
    return Relation(stream.select(*kept), columns, single=relation.single)


def _named(column: str | None, name: str, dtype: pl.DataType) -> nw.Expr:
    if column is not None:
        return nw.col(column) if column == name else nw.col(column).alias(name)
    wanted: Any = nw.from_native(pl.DataFrame(schema={"x": dtype})).schema["x"]
    return nw.lit(None, dtype=wanted).alias(name)


def _filled(column: nw.Expr, dtype: pl.DataType) -> nw.Expr:
    """A value in place of null; text for what cannot be a key."""
    if dtype == pl.Boolean():
        return column.fill_null(False)
    if dtype.is_integer() or dtype.is_float():
        return column.fill_null(0)
    if dtype == pl.String():
        return column.fill_null("")
    if dtype == pl.Binary():
        return column.fill_null(b"")
    return column.cast(nw.String).fill_null("")
