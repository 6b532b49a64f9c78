"""Rows of scalars as datums, all of them at once: the bytes that fastavro writes row by row.

    row i  =  head · piece 0 of i · piece 1 of i · …        first all sizes, and so where each piece lies; then the bytes

Which schemas are written so depends on the schema alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.cells import cells_of
from falkirk.stream.formats.avro.schemas import AvroSchema, decimal_of, is_null, kind_of

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]
_WHOLE = 18
"""Digits of the decimals that a word of 64 bits holds."""
_KINDS = {"boolean", "int", "long", "float", "double", "string", "bytes"}


def is_flat(schema: AvroSchema) -> bool:
    """Can `write` write rows of all of its columns?"""
    return all(_is_scalar(field["type"]) for field in schema.root["fields"])


def write(schema: AvroSchema, frame: pl.DataFrame, head: bytes) -> list[bytes]:
    """A datum a row. The frame's columns are the schema's, of its types, without nulls where it has none.

    >>> from falkirk.stream.formats.avro.schemas import schema_from
    >>> schema = schema_from({"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "long"]}]})
    >>> write(schema, pl.DataFrame({"n": [None, -1, 64]}), b"")
    [b'\\x00', b'\\x02\\x01', b'\\x02\\x80\\x01']
    """
    everybody = np.arange(frame.height)
    pieces: list[tuple[_Ints, _Piece]] = [
        (everybody, _Cells(np.tile(np.frombuffer(head, np.uint8), (frame.height, 1))))
    ]
    for field in schema.root["fields"]:
        pieces += _pieces(field["type"], frame[field["name"]], everybody)
    sizes = np.zeros(frame.height, np.int64)
    for rows, piece in pieces:
        sizes[rows] += piece.sizes
    ends = np.cumsum(sizes)
    at = ends - sizes
    starts, buffer = at.tolist(), np.empty(int(sizes.sum()), np.uint8)
    for rows, piece in pieces:
        piece.put(buffer, at[rows])
        at[rows] += piece.sizes
    data = buffer.tobytes()
    return [data[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


class _Piece(ABC):
    """A part of some rows."""

    sizes: _Ints

    @abstractmethod
    def put(self, buffer: _Bytes, at: _Ints) -> None:
        """Write each row's part where it belongs."""


class _Cells(_Piece):
    """As many bytes of each: shape (rows, width)."""

    def __init__(self, cells: _Bytes) -> None:
        self._cells, self._width = cells, cells.shape[1]
        self.sizes = np.full(len(cells), self._width)

    def put(self, buffer: _Bytes, at: _Ints) -> None:
        buffer[at[:, None] + np.arange(self._width)] = self._cells


class _Numbers(_Piece):
    """Integers in as few groups of seven bits as they need."""

    def __init__(self, numbers: _Ints) -> None:
        self._bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.sizes = np.ones(len(numbers), np.int64)
        for shift in range(7, 64, 7):
            longer = self._bits >> np.uint64(shift) != 0
            if not longer.any():
                break
            self.sizes += longer

    def put(self, buffer: _Bytes, at: _Ints) -> None:
        for k in range(int(self.sizes.max(initial=0))):
            rows = np.flatnonzero(self.sizes > k)
            group = (self._bits[rows] >> np.uint64(7 * k)).astype(np.uint8) & 0x7F
            buffer[at[rows] + k] = group | ((self.sizes[rows] > k + 1).astype(np.uint8) << 7)


@dataclass
class _Spans(_Piece):
    """Bytes of any length."""

    data: _Bytes
    sizes: _Ints

    def put(self, buffer: _Bytes, at: _Ints) -> None:
        starts = np.cumsum(self.sizes) - self.sizes
        buffer[np.repeat(at - starts, self.sizes) + np.arange(len(self.data))] = self.data


def _is_scalar(schema: Any) -> bool:
    if isinstance(schema, list):
        inner = [branch for branch in schema if not is_null(branch)]
        return len(schema) <= 2 and len(inner) == 1 and _is_scalar(inner[0])
    decimal = decimal_of(schema)
    return kind_of(schema) in _KINDS and (decimal is None or decimal.precision <= _WHOLE)


def _pieces(schema: Any, column: pl.Series, rows: _Ints) -> Iterator[tuple[_Ints, _Piece]]:
    if isinstance(schema, list):
        there = column.is_not_null().to_numpy()
        value = next(n for n, branch in enumerate(schema) if not is_null(branch))
        if len(schema) == 2:
            yield rows, _Cells(np.where(there, 2 * value, 2 - 2 * value).astype(np.uint8)[:, None])
        else:
            yield rows, _Cells(np.zeros((len(rows), 1), np.uint8))
        yield from _pieces(schema[value], column.drop_nulls(), rows[there])
        return
    kind = kind_of(schema)
    if decimal_of(schema) is not None:
        spans = _decimals(column.to_physical().cast(pl.Int64).to_numpy())
        yield rows, _Numbers(spans.sizes)
        yield rows, spans
    elif kind in ("string", "bytes"):
        blobs = column.cast(pl.Binary)
        sizes = blobs.bin.size().to_numpy().astype(np.int64)
        yield rows, _Numbers(sizes)
        yield rows, _Spans(np.frombuffer(b"".join(blobs.to_list()), np.uint8), sizes)
    elif kind == "boolean":
        yield rows, _Cells(column.to_numpy().astype(np.uint8)[:, None])
    elif kind in ("float", "double"):
        yield rows, _Cells(cells_of(column.to_numpy().astype("<f4" if kind == "float" else "<f8")))
    else:
        yield rows, _Numbers(column.to_physical().cast(pl.Int64).to_numpy())


def _decimals(numbers: _Ints) -> _Spans:
    """Big-endian, as many bytes as number and sign need."""
    sizes = np.ones(len(numbers), np.int64)
    for shift in range(7, 63, 8):
        sizes += np.abs(numbers) >> shift != 0
    cells = cells_of(numbers.astype(">i8"))
    return _Spans(cells[np.arange(8) >= 8 - sizes[:, None]], sizes)
