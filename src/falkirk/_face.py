"""What `import falkirk as fk` offers. It is imported when the first of it is used: see `falkirk.__getattr__`."""

from __future__ import annotations

from narwhals import (
    all,  # noqa: A004
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    exclude,
    lit,
    max_horizontal,
    mean_horizontal,
    min_horizontal,
    sum_horizontal,
    when,
)

from falkirk.connectors.registry import Registry
from falkirk.errors import FalkirkError
from falkirk.stream.aggregates import Aggregate, mean
from falkirk.stream.aggregates import len_ as len  # noqa: A004
from falkirk.stream.aggregates import max_ as max  # noqa: A004
from falkirk.stream.aggregates import min_ as min  # noqa: A004
from falkirk.stream.aggregates import sum_ as sum  # noqa: A004
from falkirk.stream.earlier import From
from falkirk.stream.flow import Flow
from falkirk.stream.formats import Avro, Float32BE, Float64BE, Int16BE, Int32BE, Int64BE, Json, Key, Protobuf, Raw, Text
from falkirk.stream.formats.types import (
    Binary,
    Boolean,
    Date,
    Datetime,
    DatetimeMicros,
    Decimal,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    List,
    String,
    Struct,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)
from falkirk.stream.on_error import DeadLetter, Skip, Stop
from falkirk.stream.once import Once
from falkirk.stream.pattern import Pattern
from falkirk.stream.process import KeyContext, Process, Timer
from falkirk.stream.provenance import Provenance, provenance
from falkirk.stream.regimes import Batch, EagerCheckpoint, LazyCheckpoint
from falkirk.stream.streams import Stream

__all__ = [
    "Aggregate",
    "Avro",
    "Batch",
    "Binary",
    "Boolean",
    "Date",
    "Datetime",
    "DatetimeMicros",
    "DeadLetter",
    "Decimal",
    "EagerCheckpoint",
    "FalkirkError",
    "Float32",
    "Float32BE",
    "Float64",
    "Float64BE",
    "Flow",
    "From",
    "Int8",
    "Int16",
    "Int16BE",
    "Int32",
    "Int32BE",
    "Int64",
    "Int64BE",
    "Json",
    "Key",
    "KeyContext",
    "LazyCheckpoint",
    "List",
    "Once",
    "Pattern",
    "Process",
    "Protobuf",
    "Provenance",
    "Raw",
    "Registry",
    "Skip",
    "Stop",
    "Stream",
    "String",
    "Struct",
    "Text",
    "Timer",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "all",
    "all_horizontal",
    "any_horizontal",
    "coalesce",
    "col",
    "concat_str",
    "exclude",
    "len",
    "lit",
    "max",
    "max_horizontal",
    "mean",
    "mean_horizontal",
    "min",
    "min_horizontal",
    "provenance",
    "sum",
    "sum_horizontal",
    "when",
]
