"""What travels between the tasks of a job: one table for everything, which any engine can sort.

    level      exchange           bucket               order                 payload        key, value, timestamp
    1…n        operator's number  hash of its key      where it comes from   rows, packed
    n + 1      sink's number      result partition     where it comes from                  of the record

Sorted by (level, exchange, bucket, order), rows of one key are in the order in which a stream sees them: piece by piece,
partition by partition. No two rows have the same four, unless all of them is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.stream.operators.sinks.sink import Written

PARCELS = pl.Schema(
    {
        "level": pl.Int16(), "exchange": pl.Int16(), "bucket": pl.Int32(), "order": pl.Binary(), "payload": pl.Binary(),
        "key": pl.Binary(), "value": pl.Binary(), "timestamp": pl.Int64(),
    }
)  # fmt: skip
"""The columns of every frame that a job takes and gives."""


class Piece(NamedTuple):
    """A range of offsets of one partition of one source: start ≤ offset < end."""

    source: int
    """Number of the stage's input."""
    topic: str
    partition: int
    start: int
    end: int


def parcels(
    level: int, exchange: int, buckets: Sequence[int], orders: Sequence[bytes], payloads: Sequence[bytes]
) -> pl.DataFrame:
    """Rows for a stateful operator, packed."""
    return _frame(level, exchange, {"bucket": buckets, "order": orders, "payload": payloads})


def results(
    level: int, sink: int, partitions: npt.NDArray[np.int64], orders: Sequence[bytes], records: Written
) -> pl.DataFrame:
    """Records for a sink, one a row."""
    columns = {"bucket": partitions, "order": orders, "key": records.keys, "value": records.values}
    return _frame(level, sink, {**columns, "timestamp": records.timestamps})


def _frame(level: int, exchange: int, columns: Mapping[str, Any]) -> pl.DataFrame:
    rows = len(columns["order"])
    same = {"level": level, "exchange": exchange}
    return pl.DataFrame(
        pl.Series(name, columns[name], dtype)
        if name in columns
        else pl.Series(name, [same.get(name)], dtype).new_from_index(0, rows)
        for name, dtype in PARCELS.items()
    )
