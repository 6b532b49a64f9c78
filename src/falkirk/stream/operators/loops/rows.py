"""Rows of a loop: tuples of plain values, so that a change of three rows costs three rows and no frame.

Dates and times are their numbers. Equal rows are equal as tuples: −0.0 is 0.0, and there is one NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type
from falkirk.state.timed import Row, RowCoding
from falkirk.stream.aggregates.arguments import one_zero
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.operators.loops.node import ZSet, add

NAN = math.nan
"""Tuples with the same object are equal, though NaN equals nothing."""

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_OTHERS = (pl.Boolean, pl.Float32, pl.Float64, pl.String, pl.Binary, pl.Date, pl.Datetime)


def check_columns(schema: pl.Schema, where: str) -> None:
    """Raises DefinitionError if rows of a loop cannot have these columns."""
    for name, dtype in schema.items():
        if isinstance(dtype, pl.Datetime):
            check_key_type(dtype, where=f"column {name!r} of {where}")
        if dtype not in _INTEGERS + _OTHERS:
            raise DefinitionError(
                f"column {name!r} is {dtype}, and rows of a loop cannot have such a column",
                where=where,
                hint="use numbers, booleans, dates, strings or bytes; leave other columns out with select, and join them "
                "behind the loop",
            )


def coding(schema: pl.Schema, columns: Sequence[str]) -> RowCoding:
    """The bytes of these columns in keys of state."""
    return RowCoding([is_integer(schema[c]) for c in columns])


def is_integer(dtype: pl.DataType) -> bool:
    """Whether plain values of this type are integers of at most 64 bits."""
    return dtype in _INTEGERS or dtype in (pl.Date, pl.Datetime)


def plain_rows(frame: pl.DataFrame) -> list[Row]:
    """The rows of a frame, as tuples."""
    columns = [_plain(column) for column in frame.get_columns()]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(column: pl.Series) -> list[object]:
    if column.dtype.is_float():
        values = column.to_frame("").select(one_zero(pl.col(""), column.dtype)).to_series().to_list()
        return [NAN if x != x else x for x in values] if column.is_nan().any() else values
    return (column.to_physical() if column.dtype.is_temporal() else column).to_list()


def frame_of_rows(schema: pl.Schema, rows: Sequence[Row]) -> pl.DataFrame:
    """The inverse of `plain_rows`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pl.DataFrame([_column(n, t, values) for (n, t), values in zip(schema.items(), columns, strict=True)])


def _column(name: str, dtype: pl.DataType, values: Sequence[object]) -> pl.Series:
    if dtype.is_temporal():
        return pl.Series(name, values, dtype=pl.Int32 if dtype == pl.Date() else pl.Int64).cast(dtype)
    return pl.Series(name, values, dtype=dtype)


def zset_of(batch: Batch, columns: Sequence[str]) -> ZSet:
    """A batch as a Z-set of these columns."""
    rows = plain_rows(batch.rows.select(columns))
    total: ZSet = {}
    for row, weight in zip(rows, batch.weights.to_list(), strict=True):
        add(total, row, weight)
    return total


def batch_of(schema: pl.Schema, zset: ZSet, time: int) -> Batch:
    """A Z-set as a batch, in which all rows have one date."""
    rows = frame_of_rows(schema, list(zset))
    times = pl.Series(TS, [time], dtype=pl.Int64).new_from_index(0, len(zset))
    return Batch(rows, pl.DataFrame([times, pl.Series(WEIGHT, list(zset.values()), dtype=pl.Int64)]))
