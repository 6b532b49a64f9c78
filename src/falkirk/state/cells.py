"""Columns as matrices of bytes: the common part of the encodings of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Cells = npt.NDArray[np.uint8]
"""A row's bytes per row: shape (rows, width)."""


def cells_of(numbers: npt.NDArray[Any]) -> Cells:
    """Each number's bytes, one row each.

    >>> cells_of(np.array([1, 258], ">u2")).tolist()
    [[0, 1], [1, 2]]
    """
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


def rows_of(matrix: Cells) -> list[bytes]:
    """Each row as bytes.

    >>> rows_of(np.array([[1, 0], [2, 0]], np.uint8))
    [b'\\x01\\x00', b'\\x02\\x00']
    """
    # A void scalar becomes bytes of its full width; numpy's string type would drop trailing zeros.
    rows: list[bytes] = matrix.view(f"V{matrix.shape[1]}").ravel().tolist()
    return rows


def as_decimal(units: pl.Series, scale: int, precision: int = 38) -> pl.Series:
    """Int128 as decimals: units of their last digit.

    >>> as_decimal(pl.Series([150, None], dtype=pl.Int128), 2).to_list()
    [Decimal('1.50'), None]
    """
    import pyarrow as pa  # takes a tenth of a second, which a worker without decimals saves

    whole = units.cast(pl.Decimal(38, 0)).rechunk().to_arrow()
    kind = pa.decimal128(precision, scale)
    return pl.Series(
        units.name, pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)
    )


def filled(column: pl.Series, value: Any) -> pl.Series:
    """The column with `value` for null.

    >>> filled(pl.Series([1, None]), 0).to_list()
    [1, 0]
    """
    # Even with nothing to fill, fill_null uses the query engine, which costs more than the encoding.
    return column.fill_null(value) if column.null_count() else column
