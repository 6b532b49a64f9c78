"""count, sum, min, max, avg … of a group.

SQL's sum of nothing is null, and the DSL's is 0: so a sum brings a count of its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.aggregates.builtin import SUMMED, len_, max_, mean, min_, sum_
from falkirk.stream.aggregates.distinct import n_unique
from falkirk.stream.aggregates.lists import collect
from falkirk.stream.aggregates.ordered import first, last
from falkirk.stream.aggregates.sketches import ApproxNUnique, approx_quantile
from falkirk.stream.aggregates.spread import std, var
from falkirk.stream.definition.expressions import columns_read
from falkirk.stream.flow.streams import Stream
from falkirk.stream.sql.scalar.expressions import Expressions
from falkirk.stream.sql.scalar.values import need

_OF_COLUMN: Mapping[type[exp.Expr], Callable[[nw.Expr], AggregateLike]] = {
    exp.Sum: sum_,
    exp.Min: min_,
    exp.Max: max_,
    exp.Avg: mean,
    exp.LogicalOr: max_,
    exp.LogicalAnd: min_,
    exp.AnyValue: max_,
}

_OF_CONDITIONS: Mapping[type[exp.Expr], str] = {
    exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and",
    exp.CountIf: "count_if",
}

_SPREADS: Mapping[type[exp.Expr], Callable[[nw.Expr], AggregateLike]] = {
    exp.Stddev: std,
    exp.StddevSamp: std,
    exp.StddevPop: lambda x: std(x, ddof=0),
    exp.Variance: var,
    exp.VariancePop: lambda x: var(x, ddof=0),
}

_WRITTEN: Mapping[type[exp.Expr], str] = {exp.GroupConcat: "string_agg"}
"""Names that the parser changes."""

_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.FirstValue: "arg_min(x, at) over (…) is x of the row with the least at",
    exp.LastValue: "arg_max(x, at) over (…) is x of the row with the greatest at",
}
"""What to write for those that streams do not have."""

LEAST_WHOLE = 8
"""How many digits in front of the point a decimal must be able to have, to be added up."""

KNOWN = (
    "count, count_if, sum, min, max, avg, bool_and, bool_or, any_value, arg_min, arg_max, stddev, stddev_pop, variance, "
    "var_pop, array_agg, approx_count_distinct, approx_quantile"
)


class Aggregates:
    """The aggregates of one select."""

    def __init__(self, build: Expressions, taken: set[str]) -> None:
        self.build, self.taken = build, taken
        self.asked: dict[str, AggregateLike] = {}
        """What the DSL is asked for, by column."""
        self.given: dict[exp.Expr, str] = {}
        """The column of each aggregate of the query."""
        self._nulls: dict[str, str] = {}
        self._different: dict[str, str] = {}
        """The column that counts the nulls among the values, by the column that counts different values, null too."""
        self._counts: dict[tuple[exp.Expr, exp.Expr | None], str] = {}

    def add(self, node: exp.Expr, name: str = "") -> None:
        """An aggregate of the query, and its name if it has one. Raises DefinitionError."""
        if node in self.given:
            return
        where = node.expression.this if isinstance(node, exp.Filter) else None
        function: Any = node.this if isinstance(node, exp.Filter | exp.IgnoreNulls) else node
        name = self._free(name or _name(function))
        self.build.text.only(function, "big_int", "quantile", "separator")
        self._check_arguments(function)
        self._conditions_only(function)
        if isinstance(function, exp.Count | exp.CountIf):
            self.asked[name] = self._count(name, function, where)
        elif type(function) in _OF_COLUMN:
            of = function.this.expressions[0] if isinstance(function.this, exp.Distinct) else function.this
            if isinstance(function.this, exp.Distinct) and isinstance(function, exp.Sum | exp.Avg):
                raise self._error(function, f"{function.sql_name().lower()}(distinct …) is not supported")
            self.asked[name] = _OF_COLUMN[type(function)](self._of_values(function, of, where))
            if isinstance(function, exp.Sum):
                self._nulls[name] = self._count_of(of, where, f"{name}_count")
        elif isinstance(function, exp.ApproxDistinct):
            self.asked[name] = ApproxNUnique(self._argument(function.this, where), nulls=False)
        elif isinstance(function, exp.ApproxQuantile):
            self.asked[name] = approx_quantile(self._argument(function.this, where), self._quantile(function))
        elif type(function) in _SPREADS:
            self.asked[name] = _SPREADS[type(function)](self._argument(self._plain(function), where))
        elif isinstance(function, exp.ArgMin | exp.ArgMax):
            self.asked[name] = self._at_end(function, where)
        elif isinstance(function, exp.ArrayAgg):
            if where is not None:
                raise self._error(function, "array_agg has no filter", "filter the rows in a subquery of from")
            self.asked[name] = collect(self._argument(self._plain(function), None))
        else:
            raise self._error(
                function,
                f"{_WRITTEN.get(type(function)) or function.sql_name().lower()} is not an aggregate that streams have",
                _INSTEAD.get(type(function), f"there are: {KNOWN}"),
            )
        self.given[node] = name

    def _check_arguments(self, function: Any) -> None:
        """Raises DefinitionError for max(), arg_min(x), or count(x, y): the parser takes them."""
        if not isinstance(function, exp.AggFunc):
            return
        of, word = function.this, function.sql_name().lower()
        by_two = isinstance(function, exp.ArgMin | exp.ArgMax)
        if isinstance(of, exp.Distinct):
            of = of.expressions[0] if of.expressions else None
        if (of is None and not isinstance(function, exp.Count)) or (by_two and function.expression is None):
            raise self._error(function, f"{word} lacks an argument", f"write {word}({'x, by' if by_two else 'x'})")
        if function.expressions:
            raise self._error(function.expressions[0], f"{word} takes one argument", "leave the others out")

    def _conditions_only(self, function: Any) -> None:
        """Raises DefinitionError if an aggregate of conditions is given something else."""
        if type(function) in _OF_CONDITIONS:
            of = function.this.expressions[0] if isinstance(function.this, exp.Distinct) else function.this
            need(self.build, of, "Boolean", _OF_CONDITIONS[type(function)])

    def with_nulls(self, grouped: Stream[Any]) -> Stream[Any]:
        """The result of the DSL's aggregates, with null for a sum of nothing."""
        exprs: dict[str, nw.Expr] = {n: nw.when(nw.col(c) > 0).then(nw.col(n)) for n, c in self._nulls.items()}
        exprs |= {n: nw.col(n) - (nw.col(c) > 0).cast(nw.Int64) for n, c in self._different.items()}
        return grouped.with_columns(**exprs) if exprs else grouped

    def _plain(self, function: Any) -> exp.Expr:
        """The argument of an aggregate that takes neither distinct nor an order. Raises DefinitionError."""
        if isinstance(function.this, exp.Distinct | exp.Order):
            word = "distinct" if isinstance(function.this, exp.Distinct) else "order by"
            hint = "array_agg sorts by value, nulls first" if isinstance(function, exp.ArrayAgg) else "leave it out"
            raise self._error(function, f"{function.sql_name().lower()}({word} …) is not supported", hint)
        of: exp.Expr = function.this
        return of

    def _at_end(self, function: exp.ArgMin | exp.ArgMax, where: exp.Expr | None) -> AggregateLike:
        """The value of the row with the least or greatest of another; null values do not count."""
        value = self._argument(function.this, where)
        by = nw.when(~value.is_null()).then(self._argument(function.expression, where))
        return (first if isinstance(function, exp.ArgMin) else last)(value, by=by)

    def _count(self, name: str, function: exp.Count | exp.CountIf, where: exp.Expr | None) -> AggregateLike:
        if isinstance(function.this, exp.Distinct):
            if isinstance(function, exp.CountIf):
                raise self._error(function, "count_if(distinct …) is not supported", "bool_or says whether one is true")
            return self._count_different(name, function, where)
        if isinstance(function, exp.CountIf):
            return sum_(self._argument(function.this, where))
        if isinstance(function.this, exp.Star) or function.this is None or isinstance(function.this, exp.Literal):
            return len_() if where is None else sum_(self._of_rows(self._condition(where)))
        return sum_(self._there(function.this, where))

    def _count_different(self, name: str, function: exp.Count, where: exp.Expr | None) -> AggregateLike:
        if len(function.this.expressions) != 1:
            raise self._error(
                function,
                "count(distinct …) takes one column",
                "count the rows of a subquery: select k, count(*) from (select distinct k, x, y from t) group by k",
            )
        value = self._argument(function.this.expressions[0], where)
        self._different[name] = nulls = self._free(f"{name}_nulls")
        self.asked[nulls] = sum_(value.is_null())
        return n_unique(value)

    def _quantile(self, function: exp.ApproxQuantile) -> float:
        given = function.args.get("quantile")
        if not isinstance(given, exp.Literal) or given.is_string:
            raise self._error(function, "the quantile is not a number", "approx_quantile(x, 0.99)")
        return float(given.name)

    def _count_of(self, of: exp.Expr, where: exp.Expr | None, name: str) -> str:
        """The column that counts the values that are not null."""
        if (of, where) not in self._counts:
            self._counts[of, where] = name = self._free(name)
            self.asked[name] = sum_(self._there(of, where))
        return self._counts[of, where]

    def _there(self, of: exp.Expr, where: exp.Expr | None) -> nw.Expr:
        there = ~self.build(of).expr.is_null()
        return self._of_rows(there if where is None else there & self._condition(where))

    def _argument(self, of: exp.Expr, where: exp.Expr | None) -> nw.Expr:
        known = self.build(of)
        value = known.settled() if known.family else nw.lit(None, dtype=nw.Int64)
        return self._of_rows(value if where is None else nw.when(self._condition(where)).then(value))

    def _of_values(self, function: exp.Expr, of: exp.Expr, where: exp.Expr | None) -> nw.Expr:
        """The argument of sum, avg, min and the like. Raises DefinitionError."""
        value, dtype = self._argument(of, where), self.build(of).dtype
        if (
            not isinstance(function, exp.Sum | exp.Avg)
            or not isinstance(dtype, pl.Decimal)
            or dtype.precision <= SUMMED
        ):
            return value
        if dtype.scale > SUMMED - LEAST_WHOLE:
            what = f"{of.sql('duckdb')} has {dtype.scale} digits behind the point, which is too many to add up"
            raise self._error(function, what, f"cast it: cast(… as decimal({SUMMED}, 6))")
        # A product says that it may have 38 digits. A value of more than can be added up fails its row.
        return value.cast(nw.Decimal(SUMMED, dtype.scale))

    def _of_rows(self, expr: nw.Expr) -> nw.Expr:
        """An expression that has a value for each row. A constant alone has one for all of them."""
        if columns_read([expr], self.build.schema):
            return expr
        first = nw.col(next(iter(self.build.schema)))
        return nw.when(first.is_null() | ~first.is_null()).then(expr)

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


def _name(function: exp.Expr) -> str:
    """A name for an aggregate that the query does not name.

    >>> from sqlglot import parse_one
    >>> _name(parse_one("sum(t.price)"))
    'sum_price'
    """
    kind = function.sql_name().lower() if isinstance(function, exp.Func) else "value"
    columns = [re.sub(r"\W+", "_", c.name) for c in function.find_all(exp.Column)]
    return "_".join([kind, *columns])
