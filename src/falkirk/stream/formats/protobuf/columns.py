"""The columns that a message's fields mean.

    Protobuf                                   column
    bool                                       Boolean
    int32, sint32, sfixed32; …64               Int32; Int64
    uint32, fixed32; …64                       UInt32; UInt64
    float, double                              Float32, Float64
    string, an enum                            String
    bytes                                      Binary
    google.protobuf.Timestamp                  DatetimeMicros
    google.protobuf.Int64Value and its like    as the value within, or null
    a message, repeated, a map                 Struct, List, List(Struct({key, value}))

A message that holds itself, or has no such field: no column. Such fields are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from falkirk.stream.formats.protobuf.schemas import library
from falkirk.stream.formats.types import instance

MICROS = pl.Datetime("us", "UTC")
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
INT32, INT64, UINT32, UINT64, DOUBLE, FLOAT, BOOL, ENUM, STRING, MESSAGE = range(1, 11)
"""The library's kinds of values (`FieldDescriptor.cpp_type`)."""
BYTES = 12
"""Of a string, its type (`FieldDescriptor.type`), where it is none."""
SCALARS: dict[int, pl.DataType] = {
    INT32: pl.Int32(),
    INT64: pl.Int64(),
    UINT32: pl.UInt32(),
    UINT64: pl.UInt64(),
    DOUBLE: pl.Float64(),
    FLOAT: pl.Float32(),
    BOOL: pl.Boolean(),
    ENUM: pl.String(),
    STRING: pl.String(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """What a reader wants of a field."""

    dtype: pl.DataType
    number: int | None = None
    """The field's; None: it goes by its name."""
    absent: Any = None
    """What it is where the writer's message has no such field."""
    fields: Mapping[str, Column] = field(default_factory=dict)
    """Of a struct, or of a list's structs."""


def columns_of(message: Any, within: tuple[str, ...] = ()) -> dict[str, Column]:
    """The fields of a message that can be columns. `within` are the messages that it is part of.

    >>> from falkirk.stream.formats.protobuf.schemas import schema_from
    >>> made = schema_from('syntax = "proto3"; message Bid { int64 price = 1; optional string by = 7; Bid before = 3; }')
    >>> {name: (column.number, column.dtype) for name, column in columns_of(made.descriptor).items()}
    {'price': (1, Int64), 'by': (7, String)}
    """
    found = {}
    for each in message.fields:
        if (column := _column(each, (*within, message.full_name))) is not None:
            found[each.name] = column
    return found


def wanted_as(dtype: pl.DataType) -> Column:
    """What a reader wants who names a column's type alone."""
    inner = instance(dtype.inner) if isinstance(dtype, pl.List) else dtype
    fields = {f.name: wanted_as(instance(f.dtype)) for f in inner.fields} if isinstance(inner, pl.Struct) else {}
    return Column(dtype, fields=fields)


def is_map(field: Any) -> bool:
    """Whether it is a map: its message is of a key and a value."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_checked(field: Any) -> bool:
    """Whether the library sees to it that a text is UTF-8: it does where the file is of the third syntax."""
    pb2 = library().descriptor_pb2
    file = pb2.FileDescriptorProto.FromString(field.containing_type.file.serialized_pb)
    return bool(file.syntax == "proto3")


def wrapped(field: Any) -> Any:
    """The field of the value within, of one that is a wrapper; None for any other."""
    wrapper = field.message_type is not None and field.message_type.full_name in WRAPPERS
    return field.message_type.fields_by_name["value"] if wrapper else None


def _column(field: Any, within: tuple[str, ...]) -> Column | None:
    fields: Mapping[str, Column] = {}
    if (inner := wrapped(field)) is not None:
        dtype = scalar(inner)
    elif field.cpp_type != MESSAGE:
        dtype = scalar(field)
    elif field.message_type.full_name == TIMESTAMP:
        dtype = MICROS
    else:
        fields = {} if field.message_type.full_name in within else columns_of(field.message_type, within)
        if not fields or (is_map(field) and len(fields) < 2):
            return None
        dtype = pl.Struct({name: column.dtype for name, column in fields.items()})
    if field.is_repeated:
        return Column(pl.List(dtype), field.number, [], fields)
    return Column(dtype, field.number, None if field.has_presence else _default(field), fields)


def scalar(field: Any) -> pl.DataType:
    """The type of a field's value that is no message."""
    return pl.Binary() if field.type == BYTES else SCALARS[field.cpp_type]


def _default(field: Any) -> Any:
    if field.cpp_type == ENUM:
        return field.enum_type.values_by_number[field.default_value].name
    return field.default_value
