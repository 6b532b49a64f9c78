"""Reading a few flat JSON objects one by one, wherever that gives what reading the batch would.

    read(values) = the batch reader's frame, or None: then it is for the batch reader to judge

A read of a batch takes 0.5 ms however small it is, most of it spent on handing work between threads. Here nothing is
judged: what could be read in two ways, or is bad, or is not flat, is left to the batch reader. Both decode the same
record to the same row, or else outputs would depend on how a topic is cut into steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import orjson
import polars as pl

ROWS, BYTES = 128, 16 << 10
"""Above either, a read of the batch is cheaper."""

_TYPES: dict[pl.DataType, set[type]] = {
    pl.Int32(): {int, type(None)},
    pl.Int64(): {int, type(None)},
    pl.UInt32(): {int, type(None)},
    pl.UInt64(): {int, type(None)},
    pl.Float64(): {int, float, type(None)},
    pl.String(): {str, type(None)},
    pl.Boolean(): {bool, type(None)},
}
_FLAT = {int, float, str, bool, type(None)}
_NUMBERS = {int, float}
_LARGE = 1 << 63
_OVERFLOW = (OverflowError, TypeError, pl.exceptions.PolarsError)


def readable(columns: Mapping[str, pl.DataType]) -> bool:
    """Can `read` read columns of these types at all?"""
    return all(dtype in _TYPES for dtype in columns.values())


def read(values: Sequence[bytes | None], columns: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """A row for each record, or None if this is for the batch reader. The columns are `readable`.

    >>> read([b'{"a": 1, "b": 2}'], {"a": pl.Int64()}).rows()
    [(1,)]
    >>> read([b'{"a": 1, "a": 2}'], {"a": pl.Int64()}), read([b'{"a": [1]}'], {"a": pl.Int64()})
    (None, None)
    """
    present = [value for value in values if value is not None]
    lines = b"".join(present)
    if len(present) < len(values) or len(lines) > BYTES or b"\\" in lines:
        return None
    try:
        documents = [orjson.loads(value) for value in present]
    except orjson.JSONDecodeError:
        return None
    if any(type(document) is not dict for document in documents):
        return None
    cells = [cell for document in documents for cell in document.values()]
    kinds = Counter(map(type, cells))
    # Without escapes, quotes enclose keys and texts, nothing else: with more of them, a document has a key twice.
    if not kinds.keys() <= _FLAT or lines.count(b'"') != 2 * (len(cells) + kinds[str]):
        return None
    # Numbers at the ends of their ranges are read by rules of the reader's own.
    if any(type(cell) in _NUMBERS and not -_LARGE < cell < _LARGE for cell in cells):
        return None
    series = []
    for name, dtype in columns.items():
        column = [document.get(name) for document in documents]
        if not set(map(type, column)) <= _TYPES[dtype]:
            return None
        try:
            series.append(pl.Series(name, column, dtype=dtype))
        except _OVERFLOW:
            return None
    return pl.DataFrame(series)
