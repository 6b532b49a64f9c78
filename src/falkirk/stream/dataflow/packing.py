"""Rows as bytes, to send them from one task to another.

    few rows of plain columns     2 (one byte) · MessagePack (columns, rows)      `columns` is MessagePack itself
    anything else                 1 (one byte) · Arrow IPC stream
    a watermark, without rows     4 (one byte) · MessagePack (task, tasks, watermark, idle)

One row of five columns takes 1,024 bytes as an Arrow stream and some 80 as MessagePack. What matters more: many small batches
in MessagePack are decoded together, in under 1 µs for each row, where each Arrow stream costs 12 µs to read and 13 to write.
Above some 30 rows Arrow is better in both.

Both forms name their columns, so that rows which wait in an edge can be read after the flow has changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import StateError
from falkirk.stream.dataflow.arrow import arrow_rows
from falkirk.stream.dataflow.batch import TS

ARROW, PLAIN, MARK = 1, 2, 4
FEW = 32
"""Rows up to which MessagePack is the better form."""
LIMIT = 512 << 10
"""Bytes of one batch before compression: well below the broker's default for the largest record (1 MiB)."""

_UNITS: tuple[Literal["ms", "us", "ns"], ...] = ("ms", "us", "ns")
_CODES: dict[pl.DataType, str] = {
    pl.Boolean(): "b1",
    pl.String(): "U",
    pl.Binary(): "S",
    **{dtype(): f"i{n}" for n, dtype in ((1, pl.Int8), (2, pl.Int16), (4, pl.Int32), (8, pl.Int64))},
    **{dtype(): f"u{n}" for n, dtype in ((1, pl.UInt8), (2, pl.UInt16), (4, pl.UInt32), (8, pl.UInt64))},
    **{dtype(): f"f{n}" for n, dtype in ((4, pl.Float32), (8, pl.Float64))},
    **{dtype(): code for dtype, code in ((pl.Date, "D"), (pl.Time, "T"))},
    **{pl.Duration(unit): f"m8{unit}" for unit in _UNITS},
    **{pl.Datetime(unit): f"M8{unit}" for unit in _UNITS},
    **{pl.Datetime(unit, "UTC"): f"M8{unit}Z" for unit in _UNITS},
}
"""Plain types, and how they are spelled."""
_TYPES = {code: dtype for dtype, code in _CODES.items()}

_encode = msgspec.msgpack.Encoder().encode
_batch = msgspec.msgpack.Decoder(tuple[bytes, list[Any]]).decode
_rows = msgspec.msgpack.Decoder(tuple[bytes, list[msgspec.Raw]]).decode
_columns = msgspec.msgpack.Decoder(list[tuple[str, str]]).decode


class Mark(NamedTuple):
    """What a task says of its watermark to the tasks that it sends to."""

    task: int
    tasks: int
    """How many tasks send over the edge."""
    watermark: int
    idle: bool
    """Whether the receivers need not wait for it."""


_mark = msgspec.msgpack.Decoder(Mark).decode


def marked(mark: Mark) -> bytes:
    """A watermark as bytes.

    >>> mark_in(marked(Mark(task=1, tasks=3, watermark=500, idle=False)), "")
    Mark(task=1, tasks=3, watermark=500, idle=False)
    """
    return bytes([MARK]) + _encode(mark)


def is_mark(value: bytes | None) -> bool:
    """Whether these bytes are a watermark, and not rows."""
    return value is not None and value[:1] == bytes([MARK])


def mark_in(value: bytes, where: str) -> Mark:
    """The watermark in these bytes. Raises StateError if they are damaged."""
    try:
        return _mark(value[1:])
    except msgspec.DecodeError as error:
        raise StateError(f"a watermark between stages is damaged: {error}", where=where) from error


class Packer:
    """Packs parts of a frame, which has a column of timestamps. `order`: the order that its rows are to have.

    >>> [(batch, latest)] = Packer(pl.DataFrame({"k": ["a", None], TS: [7, 9]})).pack(0, 2)
    >>> len(batch), latest, unpacked(batch, "").rows()
    (35, 9, [('a', 7), (None, 9)])
    """

    def __init__(self, frame: pl.DataFrame, order: npt.NDArray[np.int64] | None = None) -> None:
        plain = all(dtype in _CODES for dtype in frame.schema.values())
        few = plain and frame.height <= FEW
        # To order a frame takes several threads, and more time than to pack a few rows.
        self.frame = frame if order is None or few else frame[order]
        self._head = _encode([(name, _CODES[dtype]) for name, dtype in frame.schema.items()]) if plain else b""
        # Once for all parts: for each of them a cast would cost more than all the rest.
        self._plain = _as_numbers(self.frame) if plain else self.frame
        self._times = self.frame[TS].to_numpy()
        self._rows = self._plain.rows() if few else None
        if self._rows is not None and order is not None:
            self._rows, self._times = [self._rows[i] for i in order.tolist()], self._times[order]

    def pack(self, start: int, end: int) -> list[tuple[bytes, int]]:
        """Rows start ≤ i < end as batches, each below the limit if it has more rows than one, and the greatest timestamp
        of each."""
        if self._head and end - start <= FEW:
            rows = self._plain.slice(start, end - start).rows() if self._rows is None else self._rows[start:end]
            data = bytes([PLAIN]) + _encode((self._head, rows))
        else:
            out = BytesIO()
            self.frame.slice(start, end - start).write_ipc_stream(out, compression="uncompressed")
            data = bytes([ARROW]) + out.getvalue()
        if len(data) < LIMIT or end - start == 1:
            return [(data, int(self._times[start:end].max()))]
        half = (start + end) // 2
        return self.pack(start, half) + self.pack(half, end)


def unpacked(value: bytes | None, where: str) -> pl.DataFrame:
    """The rows of a batch. Raises StateError for other bytes."""
    ((frame,), _) = unpacked_all([value], lambda _: where)
    return frame


def rows_of(value: bytes | None) -> int:
    """The number of rows in a batch, from its head, in a few microseconds. Bytes that are not a batch count as one row: their
    reader reports the error.

    >>> packer = Packer(pl.DataFrame({"k": range(33), TS: 1}))
    >>> [rows_of(batch) for n in (32, 33) for batch, _ in packer.pack(0, n)], rows_of(b"?"), rows_of(None)
    ([32, 33], 1, 1)
    """
    kind = value[0] if value else None
    if kind == MARK:
        return 0
    try:
        if value is not None and kind == PLAIN:
            return len(_rows(value[1:])[1])
        if value is not None and kind == ARROW:
            return arrow_rows(value, 1)
    except (msgspec.DecodeError, struct.error, IndexError):
        pass
    return 1


def unpacked_all(values: Sequence[bytes | None], where: Callable[[int], str]) -> tuple[list[pl.DataFrame], list[int]]:
    """The rows of batches, in their order, and how many there are in each. Neighbours that are alike share a frame.

    Raises StateError for bytes that are not a batch; `where` gives the origin of a batch by its number.
    """
    frames: list[pl.DataFrame] = []
    heights: list[int] = []
    head, rows = b"", list[Any]()
    for i, value in enumerate(values):
        kind = value[0] if value else None
        if value is None or kind not in (ARROW, PLAIN):
            raise StateError(
                f"a batch between stages is of version {kind}, and this Falkirk reads {ARROW} and {PLAIN}",
                where=where(i),
                hint="run the version that wrote it until the topic is drained",
            )
        try:
            if kind == PLAIN:
                columns, more = _batch(value[1:])
                if columns != head and rows:
                    frames.append(_frame(head, rows))
                    rows = []
                head = columns
                rows += more
                heights.append(len(more))
                continue
            if rows:
                frames.append(_frame(head, rows))
                rows = []
            frames.append(pl.read_ipc_stream(value[1:]))
            heights.append(frames[-1].height)
        except (msgspec.DecodeError, pl.exceptions.PolarsError, OSError) as error:
            raise StateError(
                f"a batch between stages is damaged: {str(error).splitlines()[0]}", where=where(i)
            ) from error
    if rows:
        frames.append(_frame(head, rows))
    return frames, heights


def _as_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """With the numbers behind its times and dates."""
    columns = frame.get_columns()
    return pl.DataFrame([c.to_physical() if c.dtype.is_temporal() else c for c in columns])


def _frame(head: bytes, rows: list[Any]) -> pl.DataFrame:
    plain, times = _schemas(head)
    frame = pl.DataFrame(rows, schema=plain, orient="row")
    return frame.cast(times) if times else frame  # type: ignore[arg-type]  # names to types


@lru_cache(maxsize=1_000)
def _schemas(head: bytes) -> tuple[dict[str, pl.DataType], dict[str, pl.DataType]]:
    """The types of columns as they are packed, and those that times and dates have."""
    schema = {name: _TYPES[code] for name, code in _columns(head)}
    times = {name: dtype for name, dtype in schema.items() if dtype.is_temporal()}
    numbers = {name: pl.Int32() if dtype == pl.Date() else pl.Int64() for name, dtype in times.items()}
    return schema | numbers, times
