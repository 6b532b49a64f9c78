"""What of a record, besides its value, can become a column."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from falkirk.stream.records import Records

_HEADERS = pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))

METADATA: Mapping[str, pl.DataType] = {
    "key": pl.Binary(),
    "headers": _HEADERS,
    "timestamp": pl.Datetime("ms", "UTC"),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
}


def metadata_column(what: str, records: Records, partition: int) -> pl.Series:
    """One of METADATA, a value a record."""
    match what:
        case "key":
            return pl.Series(records.keys, dtype=pl.Binary)
        case "timestamp":
            return pl.Series(records.times, dtype=pl.Int64).cast(pl.Datetime("ms", "UTC"))
        case "partition":
            return pl.repeat(partition, len(records), dtype=pl.Int32, eager=True)
        case "offset":
            return pl.Series(records.offsets, dtype=pl.Int64)
        case _:
            headers = [[{"key": k, "value": v} for k, v in of_one] for of_one in records.headers or ()]
            return pl.Series(headers, dtype=_HEADERS)
