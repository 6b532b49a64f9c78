"""How each type of column is read from JSON and written as it.

    type       in JSON, written                       in JSON, read
    Datetime   "2026-01-31T12:00:00.000Z"             that; with another offset (+01:00, +0100, +01), or none for UTC;
                                                      without seconds; a date; milliseconds
    …Micros    "2026-01-31T12:00:00.000000Z"          that, and the same; microseconds
    Date       "2026-01-31"                           that, of years 1 to 9999
    Binary     base64, with padding                   that
    String     a string                               a string; a number or a boolean becomes its text
    Float      a number; NaN and infinity: null       a number; beyond the type's range it is bad
    Decimal    a string                               a string; a number, read as a double, of up to 15 digits
    the rest   as one expects                         exactly the type: 1.0 is not an integer, "1" is not a number

Polars reads a batch of JSON in one go, but of these types it knows some only, and by rules that look at the whole
batch. So they are read as text, small numbers as large ones (`as_read`), and converted here, by expressions that see
one value at a time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import polars as pl

from falkirk.stream.formats.types import instance

_SMALL = (pl.Int8(), pl.Int16(), pl.UInt8(), pl.UInt16())
_MOMENT = pl.Datetime("ms", "UTC")
_MICROS = pl.Datetime("us", "UTC")
_UNIT: dict[pl.DataType, Literal["ms", "us"]] = {_MOMENT: "ms", _MICROS: "us"}
_PER_SECOND: dict[pl.DataType, int] = {_MOMENT: 1_000, _MICROS: 1_000_000}
_ISO = r"^\d{4}-\d\d-\d\d(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?(?:Z|[+-][0-2]\d(?::?[0-5]\d)?)?)?$"
_FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_END = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1
_EXACT = 15
"""Digits that a double keeps."""


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
    if dtype == pl.Float32():
        return pl.Float64()
    return pl.String() if dtype in (_MOMENT, _MICROS, pl.Date(), pl.Binary()) or dtype.is_decimal() else dtype


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
    if dtype == pl.Float32():
        narrow = e.cast(dtype)
        return pl.when(narrow.is_finite()).then(narrow)
    if dtype == pl.Binary():
        return e.str.decode("base64", strict=False)
    if dtype == pl.Date():
        # Python has no year 0.
        fits = e.str.contains(r"^\d{4}-\d\d-\d\d$") & ~e.str.starts_with("0000")
        return pl.when(fits).then(e).str.to_date("%Y-%m-%d", strict=False)
    if isinstance(dtype, pl.Decimal):
        fits = e.str.contains(r"^-?\d+(?:\.\d+)?$") & e.str.contains(_decimal(dtype))
        return pl.when(fits).then(e).cast(dtype, strict=False)
    return e.map_batches(lambda text: moments(text, dtype), return_dtype=dtype, is_elementwise=True)


def _decimal(dtype: pl.Decimal) -> str:
    """What a decimal's text looks like: no digit of it would be lost."""
    whole = dtype.precision - dtype.scale
    return rf"^-?0*\d{{0,{whole}}}(?:\.\d{{0,{dtype.scale}}}0*)?$"


def moments(text: pl.Series, dtype: pl.DataType = _MOMENT) -> pl.Series:
    """Text as Datetime: ISO 8601, or milliseconds (of DatetimeMicros: microseconds) since 1970. Null for what is neither,
    or out of years 1 to 9999.

    Digits beyond the unit are cut off. Formats are spelled out, for one that Polars infers from the first row
    would make a row's value depend on another row.

    >>> moments(pl.Series(["1970-01-01T00:00:01.2345Z", "1970-01-01 00:00:00", "-1", "soon"])).cast(pl.Int64).to_list()
    [1234, 0, -1, None]
    """
    t, per, unit = pl.col("t"), _PER_SECOND[dtype], _UNIT[dtype]
    iso = text.alias("t").to_frame().select(pl.when(t.str.contains(_ISO)).then(t.str.replace(" ", "T", literal=True)))
    at = iso.select(t.str.to_datetime("%+", time_unit=unit, time_zone="UTC", strict=False).to_physical()).to_series()
    if at.null_count() > text.null_count():
        rest = pl.DataFrame({"at": at, "t": iso["t"], "text": text}).with_columns(
            pl.when(pl.col("at").is_null()).then(pl.col("t", "text"))
        )
        digits = pl.when(pl.col("text").str.contains(r"^-?\d+$")).then("text")
        at = rest.select(
            pl.coalesce(
                "at",
                t.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit=unit, strict=False).to_physical(),
                t.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime(unit)).to_physical(),
                digits.cast(pl.Int64, strict=False),
            )
        ).to_series()
    if at.null_count() > text.null_count():
        rest = pl.DataFrame({"at": at, "t": _filled(iso["t"].set(at.is_not_null(), None))})
        filled = t.str.to_datetime("%+", time_unit=unit, time_zone="UTC", strict=False).to_physical()
        at = rest.select(pl.coalesce("at", filled)).to_series()
    return pl.select(pl.when(at.is_between(_FIRST * per, _END * per - 1)).then(at)).to_series().cast(dtype)


def _filled(text: pl.Series) -> pl.Series:
    """ISO 8601 with what Java and Kotlin leave out, seconds that are zero, and PostgreSQL, the minutes of an offset.

    >>> _filled(pl.Series(["2026-01-31T12:00", "2026-01-31T12:00+01", "2026-01-31"])).to_list()
    ['2026-01-31T12:00:00Z', '2026-01-31T12:00:00+01:00', '2026-01-31']
    """
    return (
        text.str.replace(r"(T.*[+-]\d\d)$", "${1}:00")
        .str.replace(r"(T\d\d:\d\d)$", "${1}Z")
        .str.replace(r"(T\d\d:\d\d)(Z|[+-])", "${1}:00${2}")
    )


def present(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """How many scalars that are not null a value of `dtype` holds.

    present(converted(x)) = present(x), or else x holds something that is not a value of its type.
    """
    if isinstance(dtype, pl.List):
        return e.list.eval(present(pl.element(), instance(dtype.inner))).list.sum().fill_null(0)
    if isinstance(dtype, pl.Struct):
        return pl.sum_horizontal(present(e.struct.field(f.name), instance(f.dtype)) for f in dtype.fields)
    return e.is_not_null().cast(pl.UInt32)


def doubtful(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Where text may come from something that is no text, for the reader writes down whatever it meets.

    An object of more than 32 fields is written in an order that differs between processes, so these must be refused:
    two runs of one step would not give the same bytes. A number may pass for base64.
    """
    if isinstance(dtype, pl.List):
        return e.list.eval(doubtful(pl.element(), instance(dtype.inner))).list.any().fill_null(False)
    if isinstance(dtype, pl.Struct):
        return pl.any_horizontal(doubtful(e.struct.field(f.name), instance(f.dtype)) for f in dtype.fields)
    if dtype == pl.Binary():
        return e.str.contains(r"^(?:\d+|true)$").fill_null(False)
    if dtype.is_decimal():
        return (e.str.replace_all(r"^[-0.]+|\.", "").str.len_bytes() > _EXACT).fill_null(False)
    if dtype == pl.String():
        braces = e.str.starts_with("{") & e.str.ends_with("}")
        return (braces | (e.str.starts_with("[") & e.str.ends_with("]"))).fill_null(False)
    return pl.lit(False)


def holds(dtype: pl.DataType, *kinds: pl.DataType | type[pl.DataType]) -> bool:
    """Is `dtype` one of these scalars, or has it one of them within?

    >>> holds(pl.List(pl.Struct({"a": pl.String})), pl.String())
    True
    """
    if isinstance(dtype, pl.List):
        return holds(instance(dtype.inner), *kinds)
    if isinstance(dtype, pl.Struct):
        return any(holds(instance(f.dtype), *kinds) for f in dtype.fields)
    return dtype in kinds or (pl.Decimal in kinds and dtype.is_decimal())


def written(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """`e`, of type `dtype`, as what Polars' JSON writer writes in the way that this module's table says."""
    if not rewritten(dtype):
        return e
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
    return e.bin.encode("base64")


def rewritten(dtype: pl.DataType) -> bool:
    """Does `written` change values of `dtype`?"""
    if isinstance(dtype, (pl.List, pl.Array)):
        return rewritten(instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return any(rewritten(instance(f.dtype)) for f in dtype.fields)
    return isinstance(dtype, (pl.Datetime, pl.Binary))
