"""cast."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.sql.scalar import arithmetic, times
from falkirk.stream.sql.scalar.types import dtype_of
from falkirk.stream.sql.scalar.values import Build, Handler, Value, called, family, narwhals

_CASTS = {
    "number": ("number", "Boolean", "String"), "Boolean": ("number", "Boolean", "String"),
    "String": ("number", "String", "Binary", "Date"), "Binary": ("Binary", "String"),
    "Date": ("Date", "Datetime", "String"), "Datetime": ("Date", "Datetime"),
}  # fmt: skip
"""What a value can become. Polars casts more, some of it only where there are no rows."""


def _cast(build: Build, node: exp.Cast) -> Value:
    dtype, value = dtype_of(node.args["to"], build.text), build(node.this)
    if isinstance(value.literal, str) and (dtype == pl.Date() or isinstance(dtype, pl.Datetime)):
        return times.parsed(value.literal, dtype, node, build.text)
    if not _castable(value.dtype, dtype):
        what = f"{called(value.dtype)} cannot be cast to {called(dtype)}"
        raise build.text.error(node, what, _instead(value.dtype, dtype))
    if isinstance(value.dtype, pl.Datetime) and dtype == pl.Date():
        return build.typed(node, value.expr.dt.date())
    if value.dtype == pl.String() and dtype == pl.Date():
        return build.typed(node, value.expr.str.to_date(format="%Y-%m-%d"))
    if dtype.is_integer() and isinstance(value.literal, int | float | Decimal):
        return build.typed(node, nw.lit(_whole(build, node, value.literal, dtype), dtype=narwhals(dtype)))
    if isinstance(value.literal, str) and pl.Series([value.literal]).cast(dtype, strict=False).has_nulls():
        raise build.text.error(node, f"{value.literal!r} is not {called(dtype)}", "a constant must be of the type")
    if isinstance(dtype, pl.Decimal) and (given := _decimal(value, dtype)) is not None:
        return build.typed(node, given.cast(narwhals(dtype)))
    source = arithmetic.as_integer(value) if dtype.is_integer() else value.settled()
    if value.dtype == pl.Boolean() and isinstance(dtype, pl.Decimal):
        source = source.cast(nw.Int64)
    return build.typed(node, source.cast(narwhals(dtype)))


def _decimal(value: Value, wanted: pl.Decimal) -> nw.Expr | None:
    """A value that loses digits behind the point, rounded half away from zero as in SQL; None: it has no such digits.

    Polars rounds half to even.
    """
    digits = wanted.scale
    if isinstance(value.literal, Decimal):
        return nw.lit(arithmetic.shorter(value.literal, digits))
    if isinstance(value.dtype, pl.Decimal):
        return arithmetic.rounded(value, digits) if value.dtype.scale > digits else None
    if value.dtype.is_float():
        return arithmetic.rounded_float(value.expr, digits)
    scale = 37 - (wanted.precision - digits)  # one digit more in front of the point: 9.96 becomes 10.0
    if value.dtype != pl.String() or scale <= digits + 1:
        return None
    exact = pl.Decimal(38, scale - 1)
    return arithmetic.rounded(Value(value.expr.cast(narwhals(exact)), exact), digits)


def _castable(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether each value, or each value that is written so, can become one of another type."""
    if given in (pl.Null(), wanted):
        return True
    if isinstance(given, pl.List) and isinstance(wanted, pl.List):
        return given.inner.is_integer() and (wanted.inner.is_numeric() or wanted.inner == pl.String())
    return _kind(wanted) in _CASTS.get(_kind(given), ())


def _kind(dtype: pl.DataType) -> str:
    return type(dtype).__name__ if dtype.is_temporal() else family(dtype)


def _whole(build: Build, node: exp.Cast, number: int | float | Decimal, dtype: pl.DataType) -> int:
    """A constant as an integer: half of a decimal goes away from zero, half of a float to even. Raises DefinitionError."""
    whole = round(number) if isinstance(number, float) else int(Decimal(number).to_integral_value(ROUND_HALF_UP))
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    if not low <= whole <= high:
        raise build.text.error(node, f"{called(dtype)} does not hold {whole}", f"it holds {low} to {high}")
    return whole


def _instead(given: pl.DataType, wanted: pl.DataType) -> str:
    """What to write in place of a cast that has no plain meaning."""
    moment = isinstance(wanted, pl.Datetime)
    if moment and given == pl.String():
        return "strptime(x, '%Y-%m-%d %H:%M:%S')"
    if moment and given.is_numeric():
        return "to_timestamp(seconds), or epoch_ms(milliseconds)"
    if wanted.is_numeric() and isinstance(given, pl.Datetime):
        return "epoch_ms(at), or extract(epoch from at)"
    if wanted.is_numeric() and given == pl.Date():
        return "days since 1970: d - date '1970-01-01'"
    if wanted == pl.String() and isinstance(given, pl.Datetime):
        return "strftime(at, '%Y-%m-%d %H:%M:%S')"
    if wanted == pl.Boolean() and given == pl.String():
        return "compare it: x = 'true'"
    if given.is_nested() or wanted.is_nested():
        return "cast what is in a list before it is in it: array_agg(cast(x as varchar))"
    kinds = _CASTS.get(_kind(given))
    return f"{called(given)} can be cast to: {', '.join(kinds).lower()}" if kinds else ""


def _try_cast(build: Build, node: exp.TryCast) -> Value:
    raise build.text.error(
        node, "try_cast is not supported", "cast it; a row that has no such value fails, as on_error says"
    )


HANDLERS: Mapping[type[exp.Expr], Handler] = {exp.Cast: _cast, exp.TryCast: _try_cast}
