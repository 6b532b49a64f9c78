"""Reads the head of an Arrow IPC stream without its columns.

    stream    message …      message    -1 (int32) · size of the head (int32) · head · body
    head      a flatbuffer: Message(version, kind, RecordBatch(length, …), body length)

Arrow's own reader first builds every column. That takes as long as reading the rows.
"""

from __future__ import annotations

import struct

RECORD_BATCH = 3
"""A message's kind."""

_two = struct.Struct("<ii").unpack_from
_short = struct.Struct("<H").unpack_from
_int = struct.Struct("<i").unpack_from
_long = struct.Struct("<q").unpack_from


def arrow_rows(data: bytes, at: int = 0) -> int:
    """The number of rows in the stream that begins there. Raises struct.error or IndexError for other bytes.

    >>> import io, polars as pl
    >>> out = io.BytesIO()
    >>> pl.DataFrame({"k": range(70)}).write_ipc_stream(out)
    >>> arrow_rows(out.getvalue())
    70
    """
    rows = 0
    while at + 8 <= len(data):
        mark, size = _two(data, at)
        if mark != -1 or size <= 0:
            break
        message = _table(data, at + 8)
        kind, head, body = (_field(data, message, n) for n in (1, 2, 3))
        if kind and head and data[kind] == RECORD_BATCH and (length := _field(data, _table(data, head), 0)):
            rows += int(_long(data, length)[0])
        # In damaged bytes a size can have any value. A step backwards would make this loop endless.
        at += 8 + size + max(0, int(_long(data, body)[0]) if body else 0)
    return rows


def _table(data: bytes, at: int) -> int:
    """The position of the table that the offset at this position points to."""
    return at + int(_int(data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """The position of a table's field. 0 if the table does not have it: the field then has the value 0."""
    fields = table - _int(data, table)[0]
    place = 4 + 2 * number
    offset = _short(data, fields + place)[0] if place < _short(data, fields)[0] else 0
    return table + int(offset) if offset else 0
