"""A table in the place of records: those of a source that lie below where a backfill begins to read it.

rows ──the source's formats──▶ records ──Java's partitioner──▶ partitions, each in the order of time

Time is what a column for the records' timestamps says, or else that of `time=`; without either all rows are of one time.
The table has columns of the source's own names. The records that it stands for need never have been in Kafka.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from falkirk.errors import ConfigError
from falkirk.stream.dataflow.records import Records

TABLE = "table"
"""The format of what a catalog of Spark's has."""

_pack, _unpack = msgspec.msgpack.encode, msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, int]).decode


class History(NamedTuple):
    """Where the table is that stands for the beginnings of a source."""

    source: str
    format: str
    """Of Spark's readers, or `TABLE`."""
    path: str
    """Or a table's name."""

    @classmethod
    def parse(cls, text: str) -> History:
        """Of SOURCE=FORMAT:PATH. Raises ConfigError.

        >>> History.parse("bids=parquet:s3a://lake/bids")
        History(source='bids', format='parquet', path='s3a://lake/bids')
        """
        source, _, table = text.partition("=")
        format_, _, path = table.partition(":")
        if not (source and format_ and path):
            raise ConfigError(
                f"{text!r} is not a history",
                where="--history",
                hint="it is SOURCE=FORMAT:PATH, bids=parquet:/data/bids for instance, or SOURCE=table:NAME for a table of "
                "Spark's catalog",
            )
        return cls(source, format_, path)

    def __str__(self) -> str:
        """As it was given."""
        return f"{self.source}={self.format}:{self.path}"


def payload(key: bytes | None, value: bytes | None, time: int) -> bytes:
    """A record of a history, as it travels."""
    return _pack((key, value, time))


def record(payload: bytes, number: int, *, headers: bool) -> Records:
    """The same again, as the so-many-th of its partition."""
    key, value, time = _unpack(payload)
    none: list[Any] | None = [[]] if headers else None
    return Records([number], [key], [value], [time], none)
