"""Values as bytes: one row of typed columns each.

    value = format (1 byte) · nulls (a bit per column, the first lowest) · one cell per column · bytes of the variable ones

    | column | cell, little-endian |
    |---|---|
    | boolean, integer, float | as wide as the type |
    | date, time, datetime, duration | its number: 4 bytes for a date, else 8 |
    | decimal | its integer: 16 bytes |
    | string, bytes | length (4 bytes); the bytes follow the cells, in the order of columns |

A null cell is all zeros, so equal rows are equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import DefinitionError, StateError
from falkirk.state.cells import Cells, as_decimal, cells_of, filled, rows_of

_FORMAT = 1
_CELL_TYPES: dict[Any, str] = {
    pl.Boolean: "u1",
    pl.Int8: "i1",
    pl.Int16: "<i2",
    pl.Int32: "<i4",
    pl.Int64: "<i8",
    pl.UInt8: "u1",
    pl.UInt16: "<u2",
    pl.UInt32: "<u4",
    pl.UInt64: "<u8",
    pl.Float32: "<f4",
    pl.Float64: "<f8",
    pl.Date: "<i4",
    pl.Time: "<i8",
    pl.Datetime: "<i8",
    pl.Duration: "<i8",
    pl.String: "<u4",
    pl.Binary: "<u4",
}
_WORD = pl.Series([1 << 64], dtype=pl.Int128)


def check_value_type(dtype: pl.DataType, *, where: str) -> None:
    """Raises DefinitionError if state cannot hold columns of this type."""
    if dtype.base_type() not in _WIDTHS:
        raise DefinitionError(
            f"state cannot hold a column of type {dtype}",
            where=where,
            hint="use numbers, booleans, times, strings, or bytes that you encode yourself",
        )


def check_value_types(schema: Mapping[str, pl.DataType], where: str) -> None:
    """Raises DefinitionError if state cannot hold one of these columns."""
    for column, dtype in schema.items():
        check_value_type(dtype, where=f"column {column!r} of {where}")


_WIDTHS = {dtype: np.dtype(cell).itemsize for dtype, cell in _CELL_TYPES.items()} | {pl.Int128: 16, pl.Decimal: 16}


def encode_values(schema: pl.Schema, frame: pl.DataFrame) -> list[bytes]:
    """The rows of a frame, each as bytes. The frame's columns are the schema's, in its order.

    >>> schema = pl.Schema({"n": pl.Int64, "last": pl.String})
    >>> frame = pl.DataFrame({"n": [1, None], "last": ["a", "bc"]}, schema)
    >>> [value.hex(" ") for value in encode_values(schema, frame)]
    ['01 00 01 00 00 00 00 00 00 00 01 00 00 00 61', '01 01 00 00 00 00 00 00 00 00 02 00 00 00 62 63']
    """
    if frame.schema != schema:
        raise TypeError(f"columns {dict(frame.schema)} are not those of the state's schema {dict(schema)}")
    layout = _layout(tuple(schema.values()))
    matrix = np.zeros((len(frame), layout.end), np.uint8)
    matrix[:, 0] = _FORMAT
    tails: list[list[bytes]] = []
    for i, (column, at) in enumerate(zip(frame.get_columns(), layout.cells, strict=True)):
        if column.null_count():
            matrix[:, 1 + i // 8] |= column.is_null().to_numpy().astype(np.uint8) << np.uint8(i % 8)
        if _is_variable(column.dtype):
            texts = filled(column.cast(pl.Binary), b"")
            tails.append(texts.to_list())
            column = texts.bin.size().cast(pl.UInt32)
        cell = _encode_cells(column)
        matrix[:, at : at + cell.shape[1]] = cell
    rows = rows_of(matrix)
    for tail in tails:
        rows = list(map(add, rows, tail))
    return rows


def decode_values(schema: pl.Schema, values: Sequence[bytes]) -> pl.DataFrame:
    """The inverse of `encode_values`. Raises StateError if the bytes are not rows of this schema.

    >>> schema = pl.Schema({"n": pl.Int64, "last": pl.String})
    >>> decode_values(schema, [bytes.fromhex("01 00 01 00 00 00 00 00 00 00 01 00 00 00 61")]).rows()
    [(1, 'a')]
    """
    layout = _layout(tuple(schema.values()))
    end = layout.end
    heads = [value[:end] for value in values] if layout.variable else values
    if set(map(len, heads)) - {end}:
        raise _unreadable(schema, "a value has another length")
    matrix = np.frombuffer(b"".join(heads), np.uint8).reshape(len(values), end)
    if not (matrix[:, 0] == _FORMAT).all():
        raise _unreadable(schema, f"a value is not of format {_FORMAT}")
    columns: list[pl.Series] = []
    nulls = matrix[:, 1 : layout.first].any()
    starts = np.full(len(values), end, np.int64)
    try:
        for i, ((name, dtype), at) in enumerate(zip(schema.items(), layout.cells, strict=True)):
            cell = matrix[:, at : at + _WIDTHS[dtype.base_type()]]
            if _is_variable(dtype):
                ends = starts + _numbers(cell, "<u4").astype(np.int64)
                column = _slices(values, starts, ends).cast(dtype)
                starts = ends
            else:
                column = _decode_cells(cell, dtype)
            if nulls:
                column = _with_nulls(column, (matrix[:, 1 + i // 8] & np.uint8(1 << i % 8)).astype(np.bool_))
            columns.append(column.alias(name))
    except pl.exceptions.PolarsError as error:
        raise _unreadable(schema, str(error)) from error
    if layout.variable and not np.array_equal(starts, np.fromiter(map(len, values), np.int64, len(values))):
        raise _unreadable(schema, "a value has another length")
    return pl.DataFrame(columns)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a row's cells are."""

    cells: list[int]
    """The first byte of each."""
    first: int
    """The first byte after the nulls."""
    end: int
    """The first byte after the last."""
    variable: bool
    """Whether variable columns follow."""


@cache
def _layout(dtypes: tuple[pl.DataType, ...]) -> _Layout:
    first = 1 + -(-len(dtypes) // 8)
    *cells, end = accumulate((_WIDTHS[dtype.base_type()] for dtype in dtypes), initial=first)
    return _Layout(cells, first, end, any(map(_is_variable, dtypes)))


def _is_variable(dtype: pl.DataType) -> bool:
    return dtype in (pl.String, pl.Binary)


def _encode_cells(column: pl.Series) -> Cells:
    dtype = column.dtype
    if dtype == pl.Int128:
        return _encode_wide(filled(column, 0))
    if dtype.is_decimal():
        return _encode_wide(filled(column.to_physical(), 0))
    if dtype.is_temporal():
        column = column.to_physical()
    numbers = filled(column, False if dtype == pl.Boolean else 0).to_numpy().astype(_CELL_TYPES[dtype.base_type()])
    return cells_of(numbers)


def _encode_wide(column: pl.Series) -> Cells:
    """Int128 as two words, the lower first. Most fit one; then the other holds only the sign."""
    narrow = column.cast(pl.Int64, strict=False)
    if narrow.null_count():
        high = column // _WORD
        low = (column - high * _WORD).cast(pl.UInt64).to_numpy().view(np.int64)
        words = np.column_stack([low, high.cast(pl.Int64).to_numpy()])
    else:
        low = narrow.to_numpy()
        words = np.column_stack([low, low >> 63])
    return words.astype("<i8").view(np.uint8)


def _decode_wide(cell: Cells) -> pl.Series:
    low, high = _numbers(cell[:, :8], "<i8"), _numbers(cell[:, 8:], "<i8")
    if (high == low >> 63).all():
        return pl.Series(low).cast(pl.Int128)
    return pl.Series(high).cast(pl.Int128) * _WORD + pl.Series(low.view(np.uint64)).cast(pl.Int128)


def _numbers(cell: Cells, dtype: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(cell).view(dtype).ravel()


def _decode_cells(cell: Cells, dtype: pl.DataType) -> pl.Series:
    if dtype == pl.Int128:
        return _decode_wide(cell)
    if isinstance(dtype, pl.Decimal):
        return as_decimal(_decode_wide(cell), dtype.scale, dtype.precision)
    return pl.Series(_numbers(cell, _CELL_TYPES[dtype.base_type()])).cast(dtype)


def _slices(values: Sequence[bytes], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pl.Series:
    spans = zip(values, starts.tolist(), ends.tolist(), strict=True)
    return pl.Series([value[start:end] for value, start, end in spans], dtype=pl.Binary)


def _with_nulls(column: pl.Series, null: npt.NDArray[np.bool_]) -> pl.Series:
    if not null.any():
        return column
    return column.zip_with(pl.Series(~null), pl.Series([None], dtype=column.dtype))


def _unreadable(schema: pl.Schema, why: str) -> StateError:
    return StateError(
        f"values in state are not rows of {dict(schema)}: {why}",
        hint="the store was written by other code, or is damaged: restore it from a checkpoint",
    )
