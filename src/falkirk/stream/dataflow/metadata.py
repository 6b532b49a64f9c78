"""The metadata of a record that can become columns."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from falkirk.checkpoint.ids import name_of
from falkirk.stream.dataflow.circuit import Slice

_HEADERS = pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))

METADATA: Mapping[str, pl.DataType] = {
    "key": pl.Binary(),
    "headers": _HEADERS,
    "timestamp": pl.Datetime("ms", "UTC"),
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
}


def metadata_column(what: str, piece: Slice) -> pl.Series:
    """One item of METADATA, one value per record."""
    records = piece.records
    match what:
        case "topic":
            return pl.repeat(name_of(piece.topic), len(records), dtype=pl.String(), eager=True)
        case "key":
            return pl.Series(records.keys, dtype=pl.Binary)
        case "timestamp":
            return pl.Series(records.times, dtype=pl.Int64).cast(pl.Datetime("ms", "UTC"))
        case "partition":
            return pl.repeat(piece.partition, len(records), dtype=pl.Int32, eager=True)
        case "offset":
            return pl.Series(records.offsets, dtype=pl.Int64)
        case _:
            headers = [[{"key": k, "value": v} for k, v in of_one] for of_one in records.headers or ()]
            return pl.Series(headers, dtype=_HEADERS)
