"""len, sum, min, max and mean, as Polars defines them:

    len        counts rows, null or not                     Int64
    sum        of nothing, or of nulls, is 0                Int64 for integers and booleans, Decimal(38, scale) for
                                                            decimals, else the column's type
    mean       of nothing, or of nulls, is null             Float64
    min, max   of nothing, or of nulls, is null; NaN only where there is nothing else        the column's type

Integers are summed in 128 bits. A sum that leaves Int64 stops the app with the group and the number; it never wraps.
A sum of floats is rounded after every step, so that its last bits depend on the division; replays repeat divisions. What a
large value rounds away stays away when that value is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.cells import as_decimal
from falkirk.stream.aggregates.arguments import checked_argument
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, GroupError, new, old
from falkirk.stream.aggregates.values import BoundExtreme, DecimalExtreme
from falkirk.stream.definition.expressions import IntoExpr
from falkirk.stream.formats.types import type_name

_INT64 = range(-(2**63), 2**63)
SUMMED = 20
"""Digits of the decimals that can be summed: 128 bits hold 10¹⁸ of the largest."""


@dataclass(frozen=True, slots=True)
class Len(AggregateLike):
    """The number of rows in the group."""

    def bind(self, context: Context) -> Bound:
        return BoundLen(context, arguments={}, words="len")


class BoundLen(Bound):
    returns = pl.Int64()
    parts = {"rows": pl.Int64()}  # noqa: RUF012

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        return {"rows": (pl.len() if weight is None else weight.sum()).cast(pl.Int64)}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {"rows": add(self.name, "rows")}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return frame[old(self.name, "rows")]


@dataclass(frozen=True, slots=True)
class OfColumn(AggregateLike):
    """An aggregate of one column or expression."""

    kind: str
    of: IntoExpr

    def bind(self, context: Context) -> Bound:
        where = f"{self.kind} in {context.where}"
        column, expr, dtype = checked_argument(self.kind, self.of, context)
        bound = _bound(self.kind, context, dtype, {"x": expr})
        if bound is None:
            words = f"{self.kind} of {column!r}, which is {type_name(dtype)}, is not defined"
            raise DefinitionError(words, where=where, hint=_instead(self.kind, column, dtype))
        return bound


def _instead(kind: str, column: str, dtype: pl.DataType) -> str:
    """What to do where a column has no such aggregate."""
    if kind in ("min", "max"):
        return "min and max take numbers, times, text and booleans"
    if dtype == pl.String():
        return f'make it a number first: fk.{kind}(fk.col("{column}").cast(fk.Float64)); or count rows: fk.len()'
    if isinstance(dtype, pl.Decimal):
        return (
            f"up to {SUMMED} digits can be added up: cast it to fk.Decimal({SUMMED}, {dtype.scale}), or to fk.Float64"
        )
    return f"{kind} takes numbers and booleans; fk.len() counts rows"


def _bound(kind: str, context: Context, dtype: pl.DataType, arguments: Mapping[str, nw.Expr]) -> Bound | None:
    words = f"{kind} of {dtype}"
    if kind in ("min", "max"):
        ordered = dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String(), pl.Boolean())
        if not ordered:
            return None
        if isinstance(dtype, pl.Decimal):
            return DecimalExtreme(context, dtype, greatest=kind == "max", arguments=arguments, words=words)
        return BoundExtreme(context, dtype, greatest=kind == "max", arguments=arguments, words=words)
    mean_wanted = kind == "mean"
    if dtype.is_integer() or dtype == pl.Boolean():
        return BoundIntegers(context, mean_wanted=mean_wanted, arguments=arguments, words=words)
    if isinstance(dtype, pl.Decimal) and dtype.precision <= SUMMED:
        return BoundDecimals(context, dtype, mean_wanted=mean_wanted, arguments=arguments, words=words)
    if dtype.is_float():
        return BoundFloats(context, dtype, mean_wanted=mean_wanted, arguments=arguments, words=words)
    return None


class BoundIntegers(Bound):
    """Sum or mean of integers, exact: 128 bits hold 2⁶⁴ of the largest."""

    def __init__(self, context: Context, *, mean_wanted: bool, arguments: Mapping[str, nw.Expr], words: str) -> None:
        super().__init__(context, arguments=arguments, words=words)
        self.mean_wanted = mean_wanted

    @property
    def returns(self) -> pl.DataType:
        return pl.Float64() if self.mean_wanted else pl.Int64()

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return {"sum": pl.Int128()} | ({"count": pl.Int64()} if self.mean_wanted else {})

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        x = self.argument().cast(pl.Int128)
        total = x.sum() if weight is None else (x * weight.cast(pl.Int128)).sum()
        return {"sum": total} | ({"count": counted_values(self.argument(), weight)} if self.mean_wanted else {})

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {part: add(self.name, part) for part in self.parts}

    def result(self, frame: pl.DataFrame) -> pl.Expr | pl.Series:
        total = self.state("sum")
        if self.mean_wanted:
            return _divided(total.cast(pl.Float64), self.state("count"))
        outside = frame.select((total > _INT64.stop - 1) | (total < _INT64.start)).to_series().arg_true()
        if len(outside):
            raise GroupError(
                outside[0],
                f"{self.name} comes to {frame.select(total)[outside[0], 0]}, beyond Int64",
                "leave out what makes it so large, with a filter; or give the flow another name, and sum floats: "
                "fk.sum(fk.col(…).cast(fk.Float64))",
            )
        return total.cast(pl.Int64)


class BoundDecimals(BoundIntegers):
    """Sum or mean of decimals: of the integers behind them."""

    def __init__(
        self, context: Context, dtype: pl.Decimal, *, mean_wanted: bool, arguments: Mapping[str, nw.Expr], words: str
    ) -> None:
        super().__init__(context, mean_wanted=mean_wanted, arguments=arguments, words=words)
        self.scale = dtype.scale

    @property
    def returns(self) -> pl.DataType:
        return pl.Float64() if self.mean_wanted else pl.Decimal(38, self.scale)

    @property
    def scales(self) -> Mapping[str, int]:
        return {"sum": self.scale}

    def argument(self, name: str = "x") -> pl.Expr:
        return super().argument(name).to_physical()

    def result(self, frame: pl.DataFrame) -> pl.Expr | pl.Series:
        if self.mean_wanted:
            return _divided(self.state("sum").cast(pl.Float64) / 10**self.scale, self.state("count"))
        return as_decimal(frame[old(self.name, "sum")], self.scale)


class BoundFloats(Bound):
    """Sum or mean of floats. Where rows can be taken back, NaN and infinities are counted rather than added: nothing
    else would bring the sum back to what it was before they came."""

    def __init__(
        self, context: Context, dtype: pl.DataType, *, mean_wanted: bool, arguments: Mapping[str, nw.Expr], words: str
    ) -> None:
        super().__init__(context, arguments=arguments, words=words)
        self.mean_wanted, self.dtype = mean_wanted, dtype

    @property
    def returns(self) -> pl.DataType:
        return pl.Float64() if self.mean_wanted else self.dtype

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        counts = ("count", "nan", "above", "below") if self.retract else ("count",) if self.mean_wanted else ()
        return {"sum": pl.Float64()} | {c: pl.Int64() for c in counts}

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        x = self.argument().cast(pl.Float64)
        count = {"count": counted_values(x, weight)} if "count" in self.parts else {}
        if weight is None:
            return {"sum": x.sum()} | count
        special = {"nan": x.is_nan(), "above": x == float("inf"), "below": x == float("-inf")}
        return {
            "sum": (x * weight).filter(x.is_finite()).sum(),
            **count,
            **{part: weight.filter(is_it).sum().cast(pl.Int64) for part, is_it in special.items()},
        }

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {part: add(self.name, part) for part in self.parts}

    def result(self, frame: pl.DataFrame) -> pl.Expr:
        total = self.state("sum")
        if self.retract:
            nan, above, below = (self.state(part) > 0 for part in ("nan", "above", "below"))
            # Of floats that came and went some dust may stay; of none, nothing does.
            total = (
                pl.when(nan | (above & below)).then(float("nan"))
                .when(above).then(float("inf"))
                .when(below).then(float("-inf"))
                .when(self.state("count") == 0).then(0.0)
                .otherwise(total)
            )  # fmt: skip
        return _divided(total, self.state("count")) if self.mean_wanted else total.cast(self.dtype)


def add(name: str, part: str) -> pl.Expr:
    """Partial plus state, which is 0 for a new group."""
    return pl.col(new(name, part)) + pl.col(f"{name}.{part}").fill_null(0)


def counted_values(x: pl.Expr, weight: pl.Expr | None) -> pl.Expr:
    return (x.count() if weight is None else weight.filter(x.is_not_null()).sum()).cast(pl.Int64)


def _divided(total: pl.Expr, count: pl.Expr) -> pl.Expr:
    return pl.when(count > 0).then(total / count)


def len_() -> Len:
    """The number of rows in a group, nulls included: Int64.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(n=fk.len())
    <Stream of group_by 'by.auction': auction Int64, n Int64>
    """
    return Len()


def sum_(of: IntoExpr) -> OfColumn:
    """The sum of a column or row-wise expression; nulls count as 0.

    Int64 for integers and Booleans, Decimal(38, scale) for decimals, else of the column's type. A sum beyond Int64
    stops the app. Raises DefinitionError in `agg` for a column that is not a number.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": float}))
    >>> bids.group_by("auction").agg(total=fk.sum("price"), high=fk.sum(fk.col("price") > 100))
    <Stream of group_by 'by.auction': auction Int64, total Float64, high Int64>
    """
    return OfColumn("sum", of)


def min_(of: IntoExpr) -> OfColumn:
    """The least value of a column or row-wise expression, of its type; null if all are null.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "by": str}))
    >>> bids.group_by("auction").agg(first=fk.min("by"))
    <Stream of group_by 'by.auction': auction Int64, first String>
    """
    return OfColumn("min", of)


def max_(of: IntoExpr) -> OfColumn:
    """The greatest value of a column or row-wise expression, of its type; null if all are null.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(top=fk.max("price"))
    <Stream of group_by 'by.auction': auction Int64, top Int64>
    """
    return OfColumn("max", of)


def mean(of: IntoExpr) -> OfColumn:
    """The mean of the values of a column or row-wise expression that are not null: Float64; null if all are null.

    Raises DefinitionError in `agg` for a column that is not a number.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(usual=fk.mean("price"))
    <Stream of group_by 'by.auction': auction Int64, usual Float64>
    """
    return OfColumn("mean", of)
