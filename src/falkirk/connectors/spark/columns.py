"""Records as Arrow batches, in the types of Spark.

    Polars                   Spark
    UInt8, UInt16, UInt32    the next wider signed integer
    UInt64, Int128           decimal(20, 0), decimal(38, 0)
    Datetime, ms, UTC        timestamp, in microseconds
    Duration (of states)     interval day to second, in microseconds

All other types have the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa
from confluent_kafka import Message

from falkirk.errors import SourceError
from falkirk.stream.dataflow.circuit import Slice
from falkirk.stream.dataflow.metadata import METADATA, metadata_column
from falkirk.stream.dataflow.records import Records
from falkirk.stream.formats.base import Format
from falkirk.stream.formats.types import instance

RECORD: Mapping[str, pl.DataType] = {
    name: METADATA[name] for name in ("key", "topic", "partition", "offset", "timestamp", "headers")
}
"""A record's parts, besides its value, that can be columns."""

_WIDER: dict[Any, pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
    pl.Int128: pl.Decimal(38, 0),
    pl.Datetime: pl.Datetime("us", "UTC"),
    pl.Duration: pl.Duration("us"),
}
_ARROW: dict[Any, Any] = {
    pl.Int8: pa.int8(),
    pl.Int16: pa.int16(),
    pl.Int32: pa.int32(),
    pl.Int64: pa.int64(),
    pl.Float32: pa.float32(),
    pl.Float64: pa.float64(),
    pl.String: pa.string(),
    pl.Boolean: pa.bool_(),
    pl.Binary: pa.binary(),
    pl.Date: pa.date32(),
    pl.Datetime: pa.timestamp("us", "UTC"),
    pl.Duration: pa.duration("us"),
}


class Columns:
    """The columns of one read: the value's, then the record's other requested parts."""

    def __init__(self, topic: str, value: Format, metadata: Mapping[str, str], *, skip_malformed: bool) -> None:
        self._topic, self._value, self._metadata, self._skip = topic, value, metadata, skip_malformed

    @cached_property
    def schema(self) -> pl.Schema:
        """In the types of Spark."""
        value = self._value.schema
        assert value is not None
        columns = {**value, **{column: RECORD[what] for column, what in self._metadata.items()}}
        return pl.Schema({name: spark_type(dtype) for name, dtype in columns.items()})

    @cached_property
    def arrow(self) -> pa.Schema:
        """The same for Arrow, with 32-bit offsets, as in Spark."""
        return pa.schema([(name, arrow_type(dtype)) for name, dtype in self.schema.items()])

    def batch(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """One row per record of one partition, in order; a record without a value is a row of nulls.

        Raises SourceError for a value that does not decode, unless such records are skipped.
        """
        values = [m.value() for m in messages]
        decoded = self._value.decode(values)
        rows, kept = decoded.frame, messages
        if decoded.bad:
            malformed = {i: why for i, why in decoded.bad if values[i] is not None}
            if malformed and not self._skip:
                raise self._malformed(messages, *next(iter(malformed.items())))
            unread, numbers = {i for i, _ in decoded.bad}, iter(range(rows.height))
            places = [None if i in unread else next(numbers) for i in range(len(messages)) if i not in malformed]
            rows = rows.select(pl.all().gather(pl.Series(places, dtype=pl.UInt32)))
            kept = [m for i, m in enumerate(messages) if i not in malformed]
        if self._metadata:
            records = Records.of(kept, headers="headers" in self._metadata.values())  # type: ignore[arg-type]
            piece = Slice("", self._topic, messages[0].partition() or 0, records)
            rows = rows.hstack([metadata_column(what, piece).alias(c) for c, what in self._metadata.items()])
        if rows.schema != self.schema:
            rows = rows.cast(self.schema)
        table = rows.to_arrow().cast(self.arrow).combine_chunks()
        return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=self.arrow)

    def _malformed(self, messages: Sequence[Message], index: int, why: str) -> SourceError:
        message = messages[index]
        return SourceError(
            f"a record does not decode: {why}",
            where=f"topic {self._topic}, partition {message.partition()}, offset {message.offset()}",
            hint='read it with another format, or leave such records out with .option("malformed", "skip")',
        )


def spark_type(dtype: pl.DataType) -> pl.DataType:
    """A column's type in Spark: the narrowest that holds all its values.

    >>> spark_type(pl.List(pl.UInt32()))
    List(Int64)
    """
    if isinstance(dtype, pl.List):
        return pl.List(spark_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: spark_type(instance(f.dtype)) for f in dtype.fields})
    return _WIDER.get(dtype.base_type(), dtype)


def arrow_type(dtype: pl.DataType) -> Any:
    """Arrow's type for a Spark type.

    >>> arrow_type(pl.List(pl.String()))
    ListType(list<item: string>)
    """
    if isinstance(dtype, pl.List):
        return pa.list_(arrow_type(instance(dtype.inner)))
    if isinstance(dtype, pl.Decimal):
        return pa.decimal128(dtype.precision, dtype.scale)
    if isinstance(dtype, pl.Struct):
        return pa.struct([(f.name, arrow_type(instance(f.dtype))) for f in dtype.fields])
    return _ARROW[dtype.base_type()]


def frame_in_utc(rows: pa.RecordBatch) -> pl.DataFrame:
    """Rows of Spark's, with their moments in UTC. Spark names its session's zone, and Polars does not know every name.

    >>> at = pa.array([0], pa.timestamp("us", "GMT+02:00"))
    >>> frame_in_utc(pa.RecordBatch.from_arrays([at], ["at"])).schema["at"]
    Datetime(time_unit='us', time_zone='UTC')
    """
    known = pa.schema([(each.name, _in_utc(each.type)) for each in rows.schema])
    return pl.DataFrame(pa.Table.from_batches([rows]).cast(known))


def _in_utc(dtype: Any) -> Any:
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return pa.timestamp(dtype.unit, "UTC")
    if pa.types.is_list(dtype):
        return pa.list_(_in_utc(dtype.value_type))
    if pa.types.is_map(dtype):
        return pa.map_(_in_utc(dtype.key_type), _in_utc(dtype.item_type))
    if pa.types.is_struct(dtype):
        return pa.struct([(each.name, _in_utc(each.type)) for each in dtype])
    return dtype
