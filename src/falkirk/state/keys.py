"""Whole columns of keys as bytes, and back. `falkirk.state.scalars` defines the bytes of a single column."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import DefinitionError, StateError
from falkirk.state.cells import Cells, cells_of, filled, rows_of
from falkirk.state.scalars import (
    BYTES,
    DATE,
    DATETIME,
    FALSE,
    FLOAT,
    INT,
    NULL,
    SIGN,
    STR,
    TEXT_END,
    TEXT_ZERO,
    Scalar,
    decode_scalar,
    encode_scalar,
)

_HEAD = struct.Struct(">HB")
COMPLEMENT = bytes(range(255, -1, -1))
"""Turns an order of bytes round: `value.translate(COMPLEMENT)`."""
_HINT = "the store was written by other code, or is damaged: restore it from a checkpoint"
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_FLOATS = (pl.Float32, pl.Float64)
_OTHERS = (pl.Boolean, pl.String, pl.Binary, pl.Date, pl.Datetime, pl.Null)


def check_key_type(dtype: pl.DataType, *, where: str) -> None:
    """Raises DefinitionError if columns of this type cannot be part of a key."""
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns":
        raise DefinitionError(
            "a key in state holds microseconds, and this column nanoseconds",
            where=where,
            hint='cast it to Datetime("us") first',
        )
    if dtype not in _INTEGERS + _FLOATS + _OTHERS:
        raise DefinitionError(
            f"a column of type {dtype} cannot be part of a key in state",
            where=where,
            hint="use a bool, an integer, a float, a string, bytes, a date or a datetime; a decimal can be cast to text",
        )


def encode_key(table: int, shard: int, values: Sequence[Scalar]) -> bytes:
    """One full key, or, given only its leading columns, the prefix that all such keys share.

    >>> encode_key(1, 835, ["ab", 7]).hex(" ")
    '03 43 01 40 61 62 00 01 11 80 00 00 00 00 00 00 07'
    """
    return _HEAD.pack(shard, table) + b"".join(map(encode_scalar, values))


def decode_key(key: bytes) -> tuple[int, int, tuple[Scalar, ...]]:
    """Table, shard and columns of a full key. Raises StateError for others.

    >>> decode_key(encode_key(1, 835, ["ab", 7]))
    (1, 835, ('ab', 7))
    """
    try:
        shard, table = _HEAD.unpack_from(key)
        values: list[Scalar] = []
        at = _HEAD.size
        while at < len(key):
            value, at = decode_scalar(key, at)
            values.append(value)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise _unreadable(key) from error
    return table, shard, tuple(values)


def encode_keys(table: int, shards: npt.NDArray[np.integer[Any]], columns: Sequence[pl.Series]) -> list[bytes]:
    """Full keys, one per row: as `encode_key` for each row, but a column at a time.

    >>> keys = encode_keys(1, np.array([835, 2]), [pl.Series(["ab", None]), pl.Series([7, 8])])
    >>> keys == [encode_key(1, 835, ["ab", 7]), encode_key(1, 2, [None, 8])]
    True
    """
    head = np.empty((len(shards), _HEAD.size), np.uint8)
    head[:, :2] = cells_of(shards.astype(">u2"))
    head[:, 2] = table
    return _side_by_side([head, *map(_encode_column, columns)])


def encode_columns(columns: Sequence[pl.Series], descending: Sequence[bool]) -> list[bytes]:
    """The columns of full keys without their heads, one row per key. Where `descending` is true, the bytes of a column are
    complemented: no encoding of a value is a prefix of another, so complements sort exactly in the opposite order.

    >>> columns = [pl.Series(["ab", "a"]), pl.Series([7, 8])]
    >>> encode_columns(columns, [False, False]) == [encode_key(1, 2, row)[3:] for row in (["ab", 7], ["a", 8])]
    True
    >>> encode_columns(columns, [True, False])[0] < encode_columns(columns, [True, False])[1]
    True
    """
    down = zip(columns, descending, strict=True)
    return _side_by_side([_complemented(_encode_column(c)) if d else _encode_column(c) for c, d in down])


def _complemented(cells: Cells | list[bytes]) -> Cells | list[bytes]:
    return [cell.translate(COMPLEMENT) for cell in cells] if isinstance(cells, list) else ~cells


def _side_by_side(columns: Sequence[Cells | list[bytes]]) -> list[bytes]:
    """The bytes of each row. Neighbours of fixed width are joined as matrices, which costs less than joining bytes."""
    parts: list[list[bytes]] = []
    fixed: list[Cells] = []
    for cells in columns:
        if isinstance(cells, list):
            parts += [_rows(fixed), cells] if fixed else [cells]
            fixed = []
        else:
            fixed.append(cells)
    if fixed:
        parts.append(_rows(fixed))
    return reduce(_glue, parts)


def decode_keys(schema: pl.Schema, keys: Sequence[bytes]) -> pl.DataFrame:
    """The columns of full keys, one row per key. Raises StateError if they have another schema.

    >>> keys = encode_keys(1, np.array([835, 2]), [pl.Series(["ab", None]), pl.Series([7, 8])])
    >>> decode_keys(pl.Schema({"name": pl.String, "n": pl.Int64}), keys).rows()
    [('ab', 7), (None, 8)]
    """
    frame = _decode_fixed(schema, keys)
    if frame is not None:
        return frame
    rows = [decode_key(key)[2] for key in keys]
    if any(len(row) != len(schema) for row in rows):
        raise _other_columns(schema, "another number of columns")
    cells = zip(*rows, strict=True) if rows else [()] * len(schema)
    columns = zip(schema.items(), cells, strict=True)
    return pl.DataFrame([_collect(name, dtype, column) for (name, dtype), column in columns])


def decode_leading(schema: pl.Schema, keys: Sequence[bytes]) -> pl.DataFrame:
    """The leading columns of full keys, whatever follows them, one row per key. Raises StateError for other columns.

    >>> keys = [key + b"anything" for key in encode_keys(1, np.array([835, 2]), [pl.Series(["ab", None])])]
    >>> decode_leading(pl.Schema({"name": pl.String}), keys).rows()
    [('ab',), (None,)]
    """
    rows: list[list[Scalar]] = []
    for key in keys:
        row, at = list[Scalar](), _HEAD.size
        try:
            for _ in schema:
                value, at = decode_scalar(key, at)
                row.append(value)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            raise _unreadable(key) from error
        rows.append(row)
    cells = zip(*rows, strict=True) if rows else [()] * len(schema)
    columns = zip(schema.items(), cells, strict=True)
    return pl.DataFrame([_collect(name, dtype, column) for (name, dtype), column in columns])


def prefix_end(prefix: bytes) -> bytes:
    """The least bytes above all that begin with `prefix`: `scan(prefix, prefix_end(prefix))` gives all of them.

    >>> prefix_end(b"a"), prefix_end(bytes([1, 255]))
    (b'b', b'\\x02')
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _glue(left: list[bytes], right: list[bytes]) -> list[bytes]:
    return list(map(add, left, right))


def _rows(cells: Sequence[Cells]) -> list[bytes]:
    """The rows of cells side by side, each as bytes."""
    return rows_of(np.concatenate(cells, axis=1))


def _tagged(tag: int, cells: Cells) -> Cells:
    out = np.empty((len(cells), cells.shape[1] + 1), np.uint8)
    out[:, 0] = tag
    out[:, 1:] = cells
    return out


def _encode_column(column: pl.Series) -> Cells | list[bytes]:
    """Cells of one width, or bytes per row if widths differ."""
    dtype = column.dtype
    check_key_type(dtype, where=f"column {column.name}")
    if dtype == pl.Null:
        return np.full((len(column), 1), NULL, np.uint8)
    if dtype in (pl.String, pl.Binary):
        return _encode_texts(column)
    if dtype in (pl.UInt64, pl.Int128) and not _fits_int64(column):
        return [encode_scalar(value) for value in column.to_list()]
    cells = _encode_fixed(column)
    if not column.null_count():
        return cells
    rows = _rows([cells])
    for row in column.is_null().arg_true().to_list():
        rows[row] = bytes([NULL])
    return rows


def _fits_int64(column: pl.Series) -> bool:
    return bool(column.cast(pl.Int128).is_between(-SIGN, SIGN - 1).all())


def _encode_fixed(column: pl.Series) -> Cells:
    dtype = column.dtype
    if dtype == pl.Boolean:
        return filled(column, False).to_numpy().astype(np.uint8).reshape(-1, 1) + np.uint8(FALSE)
    if dtype in _FLOATS:
        return _tagged(FLOAT, cells_of(_float_bits(filled(column.cast(pl.Float64), 0.0).to_numpy())))
    if dtype == pl.Date:
        days = filled(column.to_physical(), 0).to_numpy().view(np.uint32)
        return _tagged(DATE, cells_of((days ^ np.uint32(1 << 31)).astype(">u4")))
    if isinstance(dtype, pl.Datetime):
        column = column.dt.cast_time_unit("us").to_physical()
    words = filled(column.cast(pl.Int64), 0).to_numpy().view(np.uint64) ^ np.uint64(SIGN)
    return _tagged(DATETIME if isinstance(dtype, pl.Datetime) else INT, cells_of(words.astype(">u8")))


def _float_bits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    values = np.where(np.isnan(values), np.nan, values) + 0.0  # −0.0 + 0.0 = 0.0
    bits = values.view(np.uint64)
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(SIGN)).astype(">u8")


def _encode_texts(column: pl.Series) -> list[bytes]:
    tag = bytes([STR if column.dtype == pl.String else BYTES])
    rows = column.cast(pl.Binary).to_list()
    return [bytes([NULL]) if row is None else tag + row.replace(b"\0", TEXT_ZERO) + TEXT_END for row in rows]


def _fixed_tag(dtype: pl.DataType) -> tuple[int, int] | None:
    """Tag and width of a column that has a fixed width without nulls and integers beyond 64 bits."""
    if dtype in _INTEGERS:
        return INT, 8
    if dtype in _FLOATS:
        return FLOAT, 8
    if dtype == pl.Date:
        return DATE, 4
    return (DATETIME, 8) if isinstance(dtype, pl.Datetime) else None


def _decode_fixed(schema: pl.Schema, keys: Sequence[bytes]) -> pl.DataFrame | None:
    """The columns, if each has its fixed width in every key; else None."""
    tags = [_fixed_tag(dtype) for dtype in schema.values()]
    width = _HEAD.size + sum(1 + tag[1] for tag in tags if tag)
    if None in tags or set(map(len, keys)) != {width}:
        return None
    matrix = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), width)
    columns: list[pl.Series] = []
    at = _HEAD.size
    for (name, dtype), tagged in zip(schema.items(), tags, strict=True):
        assert tagged is not None
        tag, cell = tagged
        if not (matrix[:, at] == tag).all():
            return None
        bits = np.ascontiguousarray(matrix[:, at + 1 : at + 1 + cell]).view(f">u{cell}").ravel().astype(f"u{cell}")
        columns.append(_column_of(name, tag, bits, dtype))
        at += 1 + cell
    return pl.DataFrame(columns)


def _column_of(name: str, tag: int, bits: npt.NDArray[Any], dtype: pl.DataType) -> pl.Series:
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    if tag == FLOAT:
        values: npt.NDArray[Any] = np.where(bits & sign, bits ^ sign, ~bits).view(np.float64)
    else:
        values = (bits ^ sign).view(f"i{bits.itemsize}")
    if isinstance(dtype, pl.Datetime):
        micros = pl.Series(name, values).cast(pl.Datetime("us", dtype.time_zone))
        return micros.dt.cast_time_unit(dtype.time_unit)
    try:
        return pl.Series(name, values).cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise _other_columns(pl.Schema({name: dtype}), str(error)) from error


def _collect(name: str, dtype: pl.DataType, values: Sequence[Scalar]) -> pl.Series:
    """A column of decoded scalars."""
    kind, plain = _plain_type(dtype)
    if any(value is not None and type(value) is not kind for value in values):
        raise _other_columns(pl.Schema({name: dtype}), "a value of another type")
    try:
        return pl.Series(name, values, dtype=plain).cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise _other_columns(pl.Schema({name: dtype}), str(error)) from error


def _plain_type(dtype: pl.DataType) -> tuple[type, pl.DataType]:
    """The type of a column's scalars, and the type that collects them."""
    if dtype in _INTEGERS:
        return int, pl.Int128()
    if dtype in _FLOATS:
        return float, pl.Float64()
    if isinstance(dtype, pl.Datetime):
        return datetime, pl.Datetime("us", dtype.time_zone)
    return _PLAIN_TYPES[dtype.base_type()], dtype


_PLAIN_TYPES: dict[Any, type] = {pl.Boolean: bool, pl.String: str, pl.Binary: bytes, pl.Date: date, pl.Null: type(None)}


def _other_columns(schema: pl.Schema, why: str) -> StateError:
    return StateError(f"keys in state do not have the columns {dict(schema)}: {why}", hint=_HINT)


def _unreadable(key: bytes) -> StateError:
    return StateError(f"a key in state cannot be read: {key[:64].hex(' ')}", hint=_HINT)
