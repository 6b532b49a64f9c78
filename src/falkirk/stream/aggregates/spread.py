"""var and std, exactly: the result is what exact arithmetic gives, rounded once.

    var = (n · Σx² − (Σx)²) / (n · (n − ddof))          null if n ≤ ddof; std = √var

Rows that are taken back leave nothing behind, and the division into steps does not matter. Integers and decimals are added in
128 bits, their squares in three parts:  x = a · 2³² + b  and  x² = a² · 2⁶⁴ + 2ab · 2³² + b².  A float is an integer times a
power of two: sums of those are integers of any length. One NaN or infinity makes the result NaN, until it is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.arguments import Argument, checked_argument
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, new, old
from falkirk.stream.aggregates.builtin import SUMMED, add, counted_values
from falkirk.stream.definition.expressions import IntoExpr
from falkirk.stream.formats.types import type_name

_LOW = 32
_MANTISSA = 53


@dataclass(frozen=True, slots=True)
class Spread(AggregateLike):
    """var or std of one column."""

    kind: str
    of: IntoExpr
    ddof: int

    def bind(self, context: Context) -> Bound:
        where = f"{self.kind} in {context.where}"
        x = checked_argument(self.kind, self.of, context)
        if self.ddof < 0:
            raise DefinitionError(f"ddof={self.ddof!r} is not 0, 1 or more", where=where, hint="ddof=1")
        if isinstance(x.dtype, pl.Decimal) and x.dtype.precision <= SUMMED:
            return BoundIntegerSpread(context, self, x, 10**x.dtype.scale)
        if x.dtype.is_integer():
            return BoundIntegerSpread(context, self, x, 1)
        if x.dtype.is_float():
            return BoundFloatSpread(context, self, x)
        raise DefinitionError(
            f"{self.kind} of {x.column!r}, which is {type_name(x.dtype)}, is not defined",
            where=where,
            hint=f'make it a number first: fk.{self.kind}(fk.col("{x.column}").cast(fk.Float64))',
        )


class _BoundSpread(Bound):
    returns = pl.Float64()

    def __init__(self, context: Context, spread: Spread, x: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr}, words=f"{spread.kind} of {x.dtype}")
        self.spread = spread

    def results(self, sums: Iterable[tuple[int, int, int, int]]) -> pl.Series:
        """From the number of values, their sum in units of 1 / d, the sum of their squares in units of 1 / d², and d."""
        return pl.Series([self._result(*each) for each in sums], dtype=pl.Float64)

    def _result(self, n: int, total: int, squares: int, unit: int) -> float | None:
        if n <= self.spread.ddof:
            return None
        try:
            # A quotient of integers is rounded once, however long they are.
            var = (n * squares - total * total) / (n * (n - self.spread.ddof) * unit * unit)
        except OverflowError:
            return math.inf
        return var if self.spread.kind == "var" else math.sqrt(var)


class BoundIntegerSpread(_BoundSpread):
    parts: Mapping[str, pl.DataType] = {
        "count": pl.Int64(), "sum": pl.Int128(), "high": pl.Int128(), "middle": pl.Int128(), "low": pl.Int128()
    }  # fmt: skip

    def __init__(self, context: Context, spread: Spread, x: Argument, unit: int) -> None:
        super().__init__(context, spread, x)
        self.unit = unit

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        x = self.argument()
        wide = (x if self.unit == 1 else x.to_physical()).cast(pl.Int128)
        a = wide // pl.lit(1 << _LOW, pl.Int128)
        b = wide - a * pl.lit(1 << _LOW, pl.Int128)
        summed = {"sum": wide, "high": a * a, "middle": a * b, "low": b * b}
        times = pl.lit(1, pl.Int128) if weight is None else weight.cast(pl.Int128)
        return {"count": counted_values(x, weight), **{part: (e * times).sum() for part, e in summed.items()}}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {part: add(self.name, part) for part in self.parts}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        # A group that is not there has nulls.
        parts = (frame[old(self.name, part)].fill_null(0).to_list() for part in self.parts)
        rows = zip(*parts, strict=True)
        return self.results(
            (n, x, (high << 2 * _LOW) + (middle << _LOW + 1) + low, self.unit) for n, x, high, middle, low in rows
        )


class BoundFloatSpread(_BoundSpread):
    folds = False
    parts: Mapping[str, pl.DataType] = {
        "count": pl.Int64(), "special": pl.Int64(), "sum": pl.Binary(), "squares": pl.Binary()
    }  # fmt: skip

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        x = self.argument().cast(pl.Float64)
        finite = x.is_finite()
        special = (~finite).sum() if weight is None else weight.filter(~finite).sum()
        times = {} if weight is None else {"times": weight.filter(finite)}
        return {
            "count": counted_values(x, weight), "special": special.cast(pl.Int64), "x": x.filter(finite), **times,
        }  # fmt: skip

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        sums: list[bytes] = []
        squares: list[bytes] = []
        lists = frame[new(self.name, "x")]
        mantissas, exponents = np.frexp(lists.explode(empty_as_null=False).to_numpy())
        # As integers, 2⁵³ times as large.
        whole = np.ldexp(mantissas, _MANTISSA).astype(np.int64).tolist()
        powers = (exponents - _MANTISSA).tolist()
        times = (
            frame[new(self.name, "times")].explode(empty_as_null=False).to_list() if self.retract else [1] * len(whole)
        )
        each = zip(whole, powers, times, strict=True)
        before = frame.select(old(self.name, "sum"), old(self.name, "squares")).rows()
        for size, (total, square) in zip(lists.list.len(), before, strict=True):
            mine = [*islice(each, size)]
            sums.append(_added(total, [(m * n, e) for m, e, n in mine]))
            squares.append(_added(square, [(m * m * n, 2 * e) for m, e, n in mine]))
        return {
            "count": add(self.name, "count"), "special": add(self.name, "special"),
            "sum": pl.Series(sums, dtype=pl.Binary), "squares": pl.Series(squares, dtype=pl.Binary),
        }  # fmt: skip

    def united(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        sums = {
            part: pl.Series(
                [
                    _added(a, [_read(b)])
                    for a, b in zip(frame[old(self.name, part)], frame[new(self.name, part)], strict=True)
                ],
                dtype=pl.Binary,
            )
            for part in ("sum", "squares")
        }
        return {"count": add(self.name, "count"), "special": add(self.name, "special"), **sums}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        rows = frame.select(old(self.name, part) for part in self.parts).rows()
        found = self.results(_in_units(n or 0, _read(total), _read(squares)) for n, _, total, squares in rows)
        special = frame[old(self.name, "special")].fill_null(0) > 0
        return pl.select(pl.when(special & found.is_not_null()).then(float("nan")).otherwise(found)).to_series()


def _in_units(n: int, total: tuple[int, int], squares: tuple[int, int]) -> tuple[int, int, int, int]:
    """Integers of one unit, 2^e with e ≤ 0, from multiples of powers of two."""
    e = min(total[1], squares[1] // 2, 0)
    return n, total[0] << total[1] - e, squares[0] << squares[1] - 2 * e, 1 << -e


def _added(state: bytes | None, terms: list[tuple[int, int]]) -> bytes:
    """The sum of integers times powers of two: the same bytes for the same number."""
    terms = [_read(state), *(term for term in terms if term[0])]
    least = min(e for _, e in terms)
    total = sum(m << e - least for m, e in terms)
    if not total:
        return b""
    zeros = (total & -total).bit_length() - 1
    total, least = total >> zeros, least + zeros
    return least.to_bytes(2, "big", signed=True) + total.to_bytes(total.bit_length() // 8 + 1, "big", signed=True)


def _read(state: bytes | None) -> tuple[int, int]:
    if not state:
        return 0, 0
    return int.from_bytes(state[2:], "big", signed=True), int.from_bytes(state[:2], "big", signed=True)


def var(of: IntoExpr, *, ddof: int = 1) -> Spread:
    """The variance of the values of a column or row-wise expression that are not null: Float64.

    Divides by n − `ddof`; null if there are no more than `ddof` values. Exact up to one rounding. Raises DefinitionError
    in `agg` for a column that is not a number.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(spread=fk.var("price"))
    <Stream of group_by 'by.auction': auction Int64, spread Float64>
    """
    return Spread("var", of, ddof)


def std(of: IntoExpr, *, ddof: int = 1) -> Spread:
    """The standard deviation of the values of a column or row-wise expression that are not null: Float64.

    Divides by n − `ddof`; null if there are no more than `ddof` values. The root of the exact variance. Raises
    DefinitionError in `agg` for a column that is not a number.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(spread=fk.std("price"))
    <Stream of group_by 'by.auction': auction Int64, spread Float64>
    """
    return Spread("std", of, ddof)
