"""The type of numbers that holds those of two types, as in DuckDB."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl

_DIGITS: dict[pl.DataType, int] = {
    pl.Int8(): 3, pl.UInt8(): 3, pl.Int16(): 5, pl.UInt16(): 5, pl.Int32(): 10, pl.UInt32(): 10, pl.Int64(): 19,
}  # fmt: skip
"""How many digits an integer type may need; others need 20."""


def holds_both(a: pl.DataType, b: pl.DataType, big: Any) -> Any:
    """The type for two different types of numbers. `big` is the one for unsigned integers of 64 bits beside signed ones.

    >>> holds_both(pl.Decimal(9, 2), pl.Int64(), None), holds_both(pl.Int8(), pl.Int32(), None)
    (Decimal(precision=21, scale=2), Int64)
    """
    if a.is_float() or b.is_float():
        return nw.Float64
    if isinstance(a, pl.Decimal) or isinstance(b, pl.Decimal):
        parts = [_parts(a), _parts(b)]
        whole, scale = (max(sizes) for sizes in zip(*parts, strict=True))
        return nw.Decimal(min(38, whole + scale), scale)
    if pl.UInt64() not in (a, b):
        return nw.Int64
    return big if a.is_signed_integer() or b.is_signed_integer() else nw.UInt64


def _parts(dtype: pl.DataType) -> tuple[int, int]:
    """How many digits are in front of the point, and behind it."""
    if isinstance(dtype, pl.Decimal):
        return (dtype.precision or 38) - dtype.scale, dtype.scale
    return _DIGITS.get(dtype, 20), 0
