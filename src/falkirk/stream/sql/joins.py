"""Joins of a from clause, as joins of the DSL.

a join b on a.k = b.k and p(a) and q(b) and r(a, b)

inner   filter(join(filter(a, p), filter(b, q)), r)
        where r bounds how far two event times with a watermark are apart, it is an interval join, whatever its kind
left    join(a with key k where p holds and null elsewhere, filter(b, q))      a null key equals nothing
full    join(a with key k where p holds, b with key k where q holds)
        without r; residuals.py has the others with r
semi    join(filter(a, p), filter(b, q))        anti, as left
right   left, with the sides exchanged

Without an equality, true = true joins a table with one that has a single row: all rows of both are then in one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.definition.expressions import bare_column
from falkirk.stream.flow.streams import Stream
from falkirk.stream.formats import types as fk
from falkirk.stream.operators.joins.join import How
from falkirk.stream.sql.intervals import Interval, interval
from falkirk.stream.sql.numbers import holds_both
from falkirk.stream.sql.relations import Ids, Relation, filtered, free
from falkirk.stream.sql.residuals import with_residuals
from falkirk.stream.sql.scalar.conditions import Conditions, Uses, all_inner, conjuncts, equality, merged, tables_of
from falkirk.stream.sql.scalar.expressions import Expressions, alike
from falkirk.stream.sql.scalar.values import Value, need
from falkirk.stream.sql.text import Text

NEEDED = "join with on a.x = b.y, or using (x)"


@dataclass
class _Side:
    """A relation that is joined, and what its rows must equal."""

    relation: Relation
    build: Expressions
    keys: list[str] = field(default_factory=list)
    computed: dict[str, nw.Expr] = field(default_factory=dict)
    decimals: dict[str, Any] = field(default_factory=dict)
    """The type of each key that is the text of a decimal."""

    def key(self, expr: nw.Expr, bare: str | None, taken: set[str]) -> str:
        """One more value that must be equal: a column, or a new column. Returns its name."""
        name = bare
        if name is None or name in self.keys:
            name = free(f"on_{len(self.keys) + 1}", taken)
            self.computed[name] = expr
        self.keys.append(name)
        return name


class Joiner:
    """Joins the relations of one select."""

    def __init__(self, text: Text, uses: Uses, ids: Ids) -> None:
        self.text, self.uses, self.ids = text, uses, ids
        self._named: set[str] = set()
        """The names so far. The first semi join and the first anti join have no table in theirs."""

    def relation(
        self, first: Relation, joins: Sequence[exp.Join], sources: Sequence[Relation], where: list[exp.Expr]
    ) -> tuple[Relation, list[exp.Expr]]:
        """All tables as one relation, and the conditions of where that are still to be applied. Raises DefinitionError."""
        relations, where = self._filtered([first, *sources], joins, where)
        if all_inner(joins):
            pool = [c for join in joins for c in conjuncts(join.args.get("on"))] + where
            return self._any_order(relations[0], list(zip(joins, relations[1:], strict=True)), pool)
        relation = relations[0]
        for join, right in zip(joins, relations[1:], strict=True):
            relation = self._one(relation, join, right)
        return relation, where

    def _filtered(
        self, relations: list[Relation], joins: Sequence[exp.Join], where: list[exp.Expr]
    ) -> tuple[list[Relation], list[exp.Expr]]:
        """Conditions of where about one table are applied before the join, unless the join may add nulls to its rows."""
        nullable: set[str] = set()
        for join, right in zip(joins, relations[1:], strict=True):
            if join.side in ("RIGHT", "FULL"):
                nullable |= {t for r in relations[: relations.index(right)] for t in r.tables}
            if join.side in ("LEFT", "FULL"):
                nullable |= right.tables
        left: list[exp.Expr] = []
        for condition in where:
            tables = tables_of(condition)
            found = [i for i, r in enumerate(relations) if tables and tables <= r.tables - nullable]
            if found and not list(condition.find_all(exp.Query)):
                relations[found[0]] = self._where(relations[found[0]], condition)
            else:
                left.append(condition)
        return relations, left

    def _any_order(
        self, relation: Relation, pending: list[tuple[exp.Join, Relation]], pool: list[exp.Expr]
    ) -> tuple[Relation, list[exp.Expr]]:
        """Inner joins, each table when an equality connects it with those before."""
        while pending:
            ready = [p for p in pending if any(equality(c, relation.tables, p[1].tables) for c in pool)]
            ready = ready or [p for p in pending if relation.single or p[1].single]
            if not ready:
                raise self.cross(pending[0][0])
            join, right = ready[0]
            pending.remove(ready[0])
            both = relation.tables | right.tables
            now = [c for c in pool if tables_of(c) and tables_of(c) <= both and not list(c.find_all(exp.Query))]
            pool = [c for c in pool if all(c is not n for n in now)]
            relation = self.joined(relation, right, "inner", Conditions.of(now, relation.tables, right.tables), join)
        return relation, pool

    def _one(self, left: Relation, join: exp.Join, right: Relation) -> Relation:
        on = conjuncts(join.args.get("on"))
        if join.side == "RIGHT":
            return self.joined(right, left, "left", Conditions.of(on, right.tables, left.tables), join)
        known: dict[str, How] = {"LEFT": "left", "FULL": "full", "SEMI": "semi", "ANTI": "anti"}
        how = known.get(join.kind) or known.get(join.side) or "inner"
        return self.joined(left, right, how, Conditions.of(on, left.tables, right.tables), join)

    def joined(self, left: Relation, right: Relation, how: How, on: Conditions, node: exp.Expr) -> Relation:
        """Two relations as one. `node` is the place of errors. Raises DefinitionError."""
        if not on.equal:
            if not (left.single or right.single):
                raise self.cross(node)
            on.equal.append((exp.true(), exp.true()))
        near = interval(on.other, left, right, self.text)
        if near is not None:
            on.other = [c for c in on.other if all(c is not u for u in near.used)]
        if on.other and how != "inner":
            on.other += near.used if near is not None else []
            return with_residuals(self, left, right, how, on, node)
        if how in ("inner", "semi"):
            left, on.left = self._all(left, on.left), []
        if how != "full":
            right, on.right = self._all(right, on.right), []
        sides = _Side(left, left.expressions(self.text)), _Side(right, right.expressions(self.text))
        self._keys(sides, on)
        self.uses.done(*[e for pair in on.equal for e in pair], *on.left, *on.right, *(near.used if near else ()))
        relation = self._made(sides[0], sides[1], how, on, near, node)
        return self._all(relation, on.other)

    def _keys(self, sides: tuple[_Side, _Side], on: Conditions) -> None:
        """Finds the columns that must be equal."""
        taken = {*sides[0].relation.stream.schema, *sides[1].relation.stream.schema}
        only = [_all_true(side.build, conditions) for side, conditions in zip(sides, (on.left, on.right), strict=True)]
        for number, pair in enumerate(on.equal):
            values, decimal = self._same_type(sides, pair)
            for side, value, condition in zip(sides, values, only, strict=True):
                if condition is not None and number == 0:
                    name = side.key(nw.when(condition).then(value), None, taken)
                else:
                    name = side.key(value, bare_column(value), taken)
                if decimal is not None:
                    side.decimals[name] = decimal

    def _same_type(
        self, sides: tuple[_Side, _Side], pair: tuple[exp.Expr, exp.Expr]
    ) -> tuple[tuple[nw.Expr, nw.Expr], Any]:
        """Both values with one type, and the type of decimals. These are compared as text, since a key cannot be one."""
        a, b = alike(_Both(self.text, pair[0], sides), *pair)
        if any(isinstance(v.dtype, pl.Decimal) for v in (a, b)) and not any(v.dtype.is_float() for v in (a, b)):
            decimal = holds_both(a.dtype, b.dtype, big=None)
            return (a.settled().cast(decimal).cast(nw.String), b.settled().cast(decimal).cast(nw.String)), decimal
        if a.dtype == b.dtype:
            return (a.settled(), b.settled()), None
        wanted: Any = fk.DatetimeMicros
        if a.family == "number":
            integers = a.dtype.is_integer() and b.dtype.is_integer()
            wanted = holds_both(a.dtype, b.dtype, big=nw.Int128) if integers else nw.Float64
        return (a.settled().cast(wanted), b.settled().cast(wanted)), None

    def _made(
        self, left: _Side, right: _Side, how: How, on: Conditions, near: Interval | None, node: exp.Expr
    ) -> Relation:
        mine, columns = self._prepared(left, how == "full", set(), near is not None)
        theirs, others = self._prepared(right, how in ("left", "full"), set(mine.schema), near is not None)
        if how == "inner":  # a key of the right side is that of the left side
            equal = dict(zip(right.keys, left.keys, strict=True))
            others = {column: equal.get(name, name) for column, name in others.items()}
        if how not in ("semi", "anti"):
            columns |= others
        if how == "full":
            for (a, b), key in zip(on.equal, left.keys, strict=True):
                if isinstance(a, exp.Column) and isinstance(b, exp.Column):
                    column = merged(a, b)
                    columns[column.table, column.name] = key
        tables = ".".join(sorted(t for t in right.relation.tables if "=" not in t))
        name = f"join.{tables}"
        if how in ("semi", "anti"):
            name = f"{how}.{tables}" if how in self._named else how
        name = free(name, self._named)
        with self.text.at(node):
            joined = mine.join(
                theirs,
                left_on=left.keys,
                right_on=right.keys,
                how=how,
                id=self.ids.of(name),
                within=near and near.within,
            )
        if how == "full" and left.decimals:
            joined = joined.with_columns(**{key: nw.col(key).cast(dtype) for key, dtype in left.decimals.items()})
        return Relation(joined, columns, single=left.relation.single and right.relation.single)

    def _prepared(
        self, side: _Side, apart: bool, taken: set[str], timed: bool
    ) -> tuple[Stream[Any], dict[tuple[str, str], str]]:
        """The keys of a side and the columns that are still read, with names that are not taken. `apart`: whether a key
        that is read needs a column of its own, since the join's may have the other side's value. `timed`: whether the event
        time is needed too."""
        stream = side.relation.stream
        if side.computed:
            stream = stream.with_columns(**side.computed)
        names = {key: key for key in side.keys}
        kept: dict[str, str] = {}
        columns: dict[tuple[str, str], str] = {}
        for (table, column), name in side.relation.columns.items():
            if (table, column) not in self.uses:
                continue
            if name in names and not apart:
                columns[table, column] = name
                continue
            if name not in kept:
                used = {*taken, *names, *kept.values()}
                kept[name] = name if name not in used else free(f"{name}_{table}", {*used, *stream.schema})
            columns[table, column] = kept[name]
        if timed and (time := stream._op.time) is not None and time not in {*names, *kept}:
            kept[time] = time if time not in taken else free(f"{time}_time", {*taken, *names, *kept.values()})
        for name in sorted(stream._op.unique or ()):
            if name not in {*names, *kept, *kept.values(), *taken}:
                kept[name] = name
        if [*names, *kept.values()] == stream.schema.names():
            return stream, columns
        return stream.select(*names, *[nw.col(c) if c == n else nw.col(c).alias(n) for c, n in kept.items()]), columns

    def _all(self, relation: Relation, conditions: list[exp.Expr]) -> Relation:
        for condition in conditions:
            relation = self._where(relation, condition)
        return relation

    def _where(self, relation: Relation, condition: exp.Expr) -> Relation:
        self.uses.done(condition)
        return filtered(relation, condition, self.text)

    def cross(self, node: exp.Expr) -> Exception:
        """The error of a join without an equality."""
        what = "a cross join would pair every row with every row: nothing says which rows of this table belong to the others"
        place = node.this if isinstance(node, exp.Join) else node
        return self.text.error(place, what, NEEDED)


class _Both:
    """Compiles each side of an equality over its own table."""

    def __init__(self, text: Text, left: exp.Expr, sides: tuple[_Side, _Side]) -> None:
        self.text, self._left, self._sides = text, left, sides

    def __call__(self, node: exp.Expr) -> Value:
        return self._sides[node is not self._left].build(node)

    def typed(self, node: exp.Expr, expr: nw.Expr) -> Value:
        return self._sides[node is not self._left].build.typed(node, expr)


def _all_true(build: Expressions, conditions: list[exp.Expr]) -> nw.Expr | None:
    """Whether all conditions hold; None if there are none."""
    exprs = [need(build, c, "Boolean", "on").expr.fill_null(False) for c in conditions]
    return reduce(lambda a, b: a & b, exprs) if exprs else None
