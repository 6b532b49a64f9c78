"""What of a record, besides its value, can become a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from falkirk.stream.circuit import Message

_HEADERS = pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))

METADATA: Mapping[str, pl.DataType] = {
    "key": pl.Binary(),
    "headers": _HEADERS,
    "timestamp": pl.Datetime("ms", "UTC"),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
}


def metadata_column(what: str, messages: Sequence[Message]) -> pl.Series:
    """One of METADATA, a value a record."""
    match what:
        case "key":
            return pl.Series([m.key() for m in messages], dtype=pl.Binary)
        case "timestamp":
            return pl.Series([m.timestamp()[1] for m in messages], dtype=pl.Int64).cast(pl.Datetime("ms", "UTC"))
        case "partition":
            return pl.Series([m.partition() for m in messages], dtype=pl.Int32)
        case "offset":
            return pl.Series([m.offset() for m in messages], dtype=pl.Int64)
        case _:
            headers = [[{"key": k, "value": v} for k, v in m.headers() or ()] for m in messages]
            return pl.Series(headers, dtype=_HEADERS)
