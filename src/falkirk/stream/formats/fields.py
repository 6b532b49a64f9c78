"""How each type of column is read from JSON and written as it.

    type       in JSON, written                       in JSON, read
    Datetime   "2026-01-31T12:00:00.000Z"             that; with another offset, or none for UTC; a date; milliseconds
    Date       "2026-01-31"                           that
    Binary     base64, with padding                   that
    String     a string                               a string; a number or a boolean becomes its text
    Float      a number; NaN and infinity: null       a number
    the rest   as one expects                         exactly the type: 1.0 is not an integer, "1" is not a number

Polars reads a batch of JSON in one go, but of these types it knows some only, and by rules that look at the whole
batch. So they are read as text, small integers as large ones (`as_read`), and converted here, by expressions that see
one value at a time.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from datetime import UTC, datetime

import polars as pl

from falkirk.stream.formats.types import instance

_SMALL = (pl.Int8(), pl.Int16(), pl.UInt8(), pl.UInt16())
_MOMENT = pl.Datetime("ms", "UTC")
_ISO = r"^\d{4}-\d\d-\d\d(?:[T ][0-2]\d:[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-][0-2]\d:?[0-5]\d)?)?$"
_FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1000
_LAST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000 + 999


def as_read(dtype: pl.DataType) -> pl.DataType:
    """What the JSON reader is asked for, in place of `dtype`.

    >>> as_read(pl.List(pl.Date()))
    List(String)
    """
    if isinstance(dtype, pl.List):
        return pl.List(as_read(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: as_read(instance(f.dtype)) for f in dtype.fields})
    if dtype in _SMALL:
        return pl.Int64()
    return pl.String() if dtype in (_MOMENT, pl.Date(), pl.Binary()) else dtype


def converted(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """`e`, of type as_read(dtype), as `dtype`; null where the text means no such value.

    >>> pl.select(converted(pl.lit("2026-01-31T01:00:00+01:00"), _MOMENT).dt.to_string()).item()
    '2026-01-31 00:00:00.000+00:00'
    """
    if as_read(dtype) == dtype:
        return e
    if isinstance(dtype, pl.List):
        return e.list.eval(converted(pl.element(), instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        fields = [converted(e.struct.field(f.name), instance(f.dtype)).alias(f.name) for f in dtype.fields]
        return pl.when(e.is_not_null()).then(pl.struct(fields))
    if dtype in _SMALL:
        return e.cast(dtype, strict=False)
    if dtype == pl.Binary():
        return e.str.decode("base64", strict=False)
    if dtype == pl.Date():
        return pl.when(e.str.contains(r"^\d{4}-\d\d-\d\d$")).then(e).str.to_date("%Y-%m-%d", strict=False)
    return moment(e)


def moment(e: pl.Expr) -> pl.Expr:
    """Text as a Datetime: ISO 8601, or milliseconds since 1970. Null for what is neither, or out of years 1 to 9999.

    Digits beyond the millisecond are cut off. Formats are spelled out, for one that Polars infers from the first row
    would make a row's value depend on another row.
    """
    iso = pl.when(e.str.contains(_ISO)).then(e.str.replace(" ", "T", literal=True))
    parsed = pl.coalesce(
        iso.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="ms", time_zone="UTC", strict=False),
        iso.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="ms", strict=False).dt.replace_time_zone("UTC"),
        iso.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("ms")).dt.replace_time_zone("UTC"),
    ).to_physical()
    number = pl.when(e.str.contains(r"^-?\d+$")).then(e).cast(pl.Int64, strict=False)
    at = pl.coalesce(parsed, number)
    return pl.when(at.is_between(_FIRST, _LAST)).then(at).cast(_MOMENT)


def lost(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Where `e`, of type as_read(dtype), holds something that `converted` makes null."""

    def scalar(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        return e.is_not_null() & converted(e, dtype).is_null()

    return _anywhere(e, dtype, lambda t: as_read(t) != t, scalar)


def doubtful(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Where text may come from something that is no text, for the reader writes down whatever it meets.

    An object of more than 32 fields is written in an order that differs between processes, so these must be refused:
    two runs of one step would not give the same bytes. A number may pass for base64.
    """

    def scalar(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        if dtype == pl.Binary():
            return e.str.contains(r"^(?:\d+|true)$")
        braces = e.str.starts_with("{") & e.str.ends_with("}")
        return braces | (e.str.starts_with("[") & e.str.ends_with("]"))

    return _anywhere(e, dtype, lambda t: t in (pl.String(), pl.Binary()), scalar)


def to_check(dtype: pl.DataType) -> bool:
    """May `lost` or `doubtful` hold for anything of this type?"""
    if isinstance(dtype, pl.List):
        return to_check(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return any(to_check(instance(f.dtype)) for f in dtype.fields)
    return dtype == pl.String() or as_read(dtype) != dtype


def written(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """`e`, of type `dtype`, as what Polars' JSON writer writes in the way that this module's table says."""
    if isinstance(dtype, (pl.List, pl.Array)):
        inner = instance(dtype.inner)
        e = e.arr.to_list() if isinstance(dtype, pl.Array) else e
        return e.list.eval(written(pl.element(), inner))
    if isinstance(dtype, pl.Struct):
        fields = [written(e.struct.field(f.name), instance(f.dtype)).alias(f.name) for f in dtype.fields]
        return pl.when(e.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.Datetime):
        utc = e if dtype.time_zone in (None, "UTC") else e.dt.convert_time_zone("UTC")
        digits = {"ms": 3, "us": 6, "ns": 9}[dtype.time_unit]
        return utc.dt.to_string(f"%Y-%m-%dT%H:%M:%S%.{digits}f" + ("Z" if dtype.time_zone else ""))
    if dtype == pl.Binary():
        return e.bin.encode("base64")
    return e


def _anywhere(
    e: pl.Expr,
    dtype: pl.DataType,
    wanted: Callable[[pl.DataType], bool],
    scalar: Callable[[pl.Expr, pl.DataType], pl.Expr],
) -> pl.Expr:
    """Where `scalar` holds for a value of a wanted scalar type, at any depth of lists and structs. Never null."""
    if isinstance(dtype, pl.List):
        inner = _anywhere(pl.element(), instance(dtype.inner), wanted, scalar)
        return e.list.eval(inner).list.any().fill_null(False)
    if isinstance(dtype, pl.Struct):
        fields = [_anywhere(e.struct.field(f.name), instance(f.dtype), wanted, scalar) for f in dtype.fields]
        return functools.reduce(operator.or_, fields)
    return scalar(e, dtype).fill_null(False) if wanted(dtype) else pl.lit(False)
