"""count, sum, min, max, avg … of a group.

SQL's sum of nothing is null, and the DSL's is 0: so a sum brings a count of its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
from sqlglot import exp

from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.aggregates.builtin import len_, max_, mean, min_, sum_
from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.expressions import Expressions
from falkirk.stream.sql.values import need

_OF_COLUMN: Mapping[type[exp.Expr], Callable[[nw.Expr], AggregateLike]] = {
    exp.Sum: sum_,
    exp.Min: min_,
    exp.Max: max_,
    exp.Avg: mean,
    exp.LogicalOr: max_,
    exp.LogicalAnd: min_,
    exp.AnyValue: max_,
}


class Aggregates:
    """The aggregates of one select."""

    def __init__(self, build: Expressions, taken: set[str]) -> None:
        self.build, self.taken = build, taken
        self.asked: dict[str, AggregateLike] = {}
        """What the DSL is asked for, by column."""
        self.given: dict[exp.Expr, str] = {}
        """The column of each aggregate of the query."""
        self._nulls: dict[str, str] = {}
        self._counts: dict[tuple[exp.Expr, exp.Expr | None], str] = {}

    def add(self, node: exp.Expr, name: str = "") -> None:
        """An aggregate of the query, and its name if it has one. Raises DefinitionError."""
        if node in self.given:
            return
        where = node.expression.this if isinstance(node, exp.Filter) else None
        function: Any = node.this if isinstance(node, exp.Filter | exp.IgnoreNulls) else node
        name = self._free(name or _name(function))
        self.build.text.only(function, "big_int")
        if isinstance(function, exp.Count | exp.CountIf):
            self.asked[name] = self._count(function, where)
        elif type(function) in _OF_COLUMN:
            of = function.this.expressions[0] if isinstance(function.this, exp.Distinct) else function.this
            if isinstance(function.this, exp.Distinct) and isinstance(function, exp.Sum | exp.Avg):
                raise self._error(function, f"{function.sql_name().lower()}(distinct …) is not supported")
            self.asked[name] = _OF_COLUMN[type(function)](self._argument(of, where))
            if isinstance(function, exp.Sum):
                self._nulls[name] = self._count_of(of, where, f"{name}_count")
        else:
            raise self._error(
                function,
                f"{function.sql_name().lower()} is not an aggregate that streams have",
                "there are: count, count_if, sum, min, max, avg, bool_and, bool_or, any_value",
            )
        self.given[node] = name

    def with_nulls(self, grouped: Stream[Any]) -> Stream[Any]:
        """The result of the DSL's aggregates, with null for a sum of nothing."""
        if not self._nulls:
            return grouped
        return grouped.with_columns(**{n: nw.when(nw.col(c) > 0).then(nw.col(n)) for n, c in self._nulls.items()})

    def _count(self, function: exp.Count | exp.CountIf, where: exp.Expr | None) -> AggregateLike:
        if isinstance(function.this, exp.Distinct):
            raise self._error(
                function,
                "count(distinct …) is not supported",
                "count the rows of a subquery: select k, count(*) from (select distinct k, x from t) group by k",
            )
        if isinstance(function, exp.CountIf):
            return sum_(self._argument(function.this, where))
        if isinstance(function.this, exp.Star) or function.this is None or isinstance(function.this, exp.Literal):
            return len_() if where is None else sum_(self._condition(where))
        return sum_(self._there(function.this, where))

    def _count_of(self, of: exp.Expr, where: exp.Expr | None, name: str) -> str:
        """The column that counts the values that are not null."""
        if (of, where) not in self._counts:
            self._counts[of, where] = name = self._free(name)
            self.asked[name] = sum_(self._there(of, where))
        return self._counts[of, where]

    def _there(self, of: exp.Expr, where: exp.Expr | None) -> nw.Expr:
        there = ~self.build(of).expr.is_null()
        return there if where is None else there & self._condition(where)

    def _argument(self, of: exp.Expr, where: exp.Expr | None) -> nw.Expr:
        value = self.build(of).settled()
        return value if where is None else nw.when(self._condition(where)).then(value)

    def _condition(self, where: exp.Expr) -> nw.Expr:
        return need(self.build, where, "Boolean", "filter").expr.fill_null(False)

    def _free(self, name: str) -> str:
        """The name, or the name with a number if it is taken."""
        free, number = name, 1
        while free in self.taken:
            number += 1
            free = f"{name}_{number}"
        self.taken.add(free)
        return free

    def _error(self, node: exp.Expr, what: str, hint: str = "") -> Exception:
        return self.build.text.error(node, what, hint)


def found(node: exp.Expr) -> list[exp.Expr]:
    """The aggregates in an expression, outermost; those of subqueries and window functions are not of this select."""
    if isinstance(node, exp.Window | exp.Query):
        return []
    if isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Filter | exp.IgnoreNulls) and isinstance(node.this, exp.AggFunc)
    ):
        return [node]
    return [aggregate for child in node.iter_expressions() for aggregate in found(child)]


def _name(function: exp.Expr) -> str:
    """A name for an aggregate that the query does not name.

    >>> from sqlglot import parse_one
    >>> _name(parse_one("sum(t.price)"))
    'sum_price'
    """
    kind = function.sql_name().lower() if isinstance(function, exp.Func) else "value"
    columns = [re.sub(r"\W+", "_", c.name) for c in function.find_all(exp.Column)]
    return "_".join([kind, *columns])
