"""From Narwhals to Polars: what a circuit runs in place of the expressions that the user wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import narwhals as nw
import polars as pl
from narwhals._polars.expr import PolarsExpr
from narwhals._polars.namespace import PolarsNamespace
from narwhals._utils import Version
from polars.exceptions import PolarsError


def native(exprs: Sequence[nw.Expr], schema: pl.Schema) -> list[pl.Expr]:
    """The expressions as Polars expressions. A circuit translates them once, because it takes as long as a small step.

    >>> pl.DataFrame({"a": [1]}).select(native([nw.col("a") + 1], pl.Schema({"a": pl.Int64}))).rows()
    [(2,)]
    """
    namespace: Any = _Namespace(schema)
    translated: list[Any] = [expr._to_compliant_expr(namespace) for expr in exprs]
    return [expr.native for expr in translated]


class _Namespace(PolarsNamespace):
    """Makes expressions over rows of `schema` whose results do not depend on how many rows a step has.

    Polars divides several rows by one number as x · (1/y), and a single row as x/y: 3/10 is 0.30000000000000004 among
    other rows and 0.3 alone. A row that is taken back in another step would not be found in the state.

    Polars compares 1 == x once for all rows if it has found the same x in each, as in x = when(y > 0).then(1).otherwise(2).
    If nothing else is selected, the other rows are lost. For x == 1 there is a result in each row.
    """

    def __init__(self, schema: pl.Schema) -> None:
        super().__init__(version=Version.MAIN)
        empty = schema.to_frame()

        class RowWise(PolarsExpr):
            def __truediv__(self, other: Any) -> Self:
                return self._with_native(_divided(empty, self.native, getattr(other, "native", other)))

            __eq__, __ne__ = _comparison("__eq__", "__eq__"), _comparison("__ne__", "__ne__")
            __lt__, __gt__ = _comparison("__lt__", "__gt__"), _comparison("__gt__", "__lt__")
            __le__, __ge__ = _comparison("__le__", "__ge__"), _comparison("__ge__", "__le__")

        self._row_wise = RowWise

    @property
    def _expr(self) -> type[PolarsExpr]:
        return self._row_wise


def _comparison(how: str, turned: str) -> Any:
    """A comparison that has a constant on its right side, if on one alone."""

    def compare(left: Any, right: Any) -> Any:
        if isinstance(right, PolarsExpr) and _reads(right.native) and not _reads(left.native):
            return getattr(PolarsExpr, turned)(right, left)
        return getattr(PolarsExpr, how)(left, right)

    return compare


def _reads(expr: pl.Expr) -> bool:
    """Whether there are columns in it."""
    return bool(expr.meta.root_names()) or expr.meta.has_multiple_outputs()


def _divided(empty: pl.DataFrame, left: pl.Expr, right: Any) -> pl.Expr:
    """left / right, with a column of the same number in each row where right is one number."""
    plain: pl.Expr = left / right
    if isinstance(right, pl.Expr) and _reads(right):
        return plain
    column: pl.Expr = left / left.shift(pl.len()).fill_null(right)
    try:
        return column if empty.select(column).schema == empty.select(plain).schema else plain
    except PolarsError:
        return plain  # a duration is divided in integers
