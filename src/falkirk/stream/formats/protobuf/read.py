"""A writer's message and the columns that a reader wants, brought together: by the fields' numbers, or by their names.

    writer                     column
    an integer                 any integer that it fits into (else the record is bad), a float, a Datetime
    float, double              Float64; float: Float32
    string, an enum; bytes     String; Binary
    Timestamp                  DatetimeMicros, Datetime: digits beyond the unit are cut off
    a message, repeated, a map  Struct, List, List(Struct({key, value}))

Messages are parsed by the library one by one, each for itself; columns are taken from all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import polars as pl

from falkirk.stream.formats.protobuf import columns as kinds
from falkirk.stream.formats.protobuf.columns import Column
from falkirk.stream.formats.protobuf.schemas import ProtoSchema, library
from falkirk.stream.formats.types import instance, type_name

Get: TypeAlias = Callable[[Any], Any]
_BITS = {kinds.INT32: (-(1 << 31), (1 << 31) - 1), kinds.INT64: (-(1 << 63), (1 << 63) - 1)} | {
    kinds.UINT32: (0, (1 << 32) - 1),
    kinds.UINT64: (0, (1 << 64) - 1),
}
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of years 1 and 9999: what Python has moments for."""
_PER_SECOND = {"ms": 1_000, "us": 1_000_000}
_NANOS = 1_000_000_000


class Unresolvable(Exception):
    """The writer's message has no such column."""


class Misfit(Exception):
    """A value is none of the column's type."""


class Reader:
    """Reads messages of one writer's schema.

    >>> from falkirk.stream.formats.protobuf.schemas import schema_from
    >>> made = schema_from('syntax = "proto3"; message Bid { int64 price = 1; }')
    >>> bad = {}
    >>> Reader(made, {"price": kinds.wanted_as(pl.Int8())}).read([b"\\x08\\x05", b"\\x08\\xff\\x01", b"\\x08"], bad).rows()
    [(5,), (None,), (0,)]
    >>> bad
    {2: 'not a Bid: Wire format was corrupt', 1: "field 'price': cannot read 255 as Int8"}
    """

    def __init__(self, writer: ProtoSchema, columns: Mapping[str, Column]) -> None:
        """Raises Unresolvable, with the reason."""
        self._writer, self._columns = writer, columns
        self._gets = _gets(writer.descriptor, columns, "")

    def read(self, messages: Sequence[bytes], bad: dict[int, str]) -> pl.DataFrame:
        """A row for each message. Into `bad` come those that cannot be read, with the reason; their rows mean nothing."""
        try:
            parsed = list(map(self._writer.made.FromString, messages))
        except library().message.DecodeError:
            parsed = [self._parsed(message, i, bad) for i, message in enumerate(messages)]
        series = []
        for name, get in self._gets.items():
            try:
                values = list(map(get, parsed))
            except Misfit:
                values = [_tried(get, message, i, bad) for i, message in enumerate(parsed)]
            series.append(pl.Series(name, values, dtype=self._columns[name].dtype))
        return pl.DataFrame(series)

    def _parsed(self, message: bytes, row: int, bad: dict[int, str]) -> Any:
        try:
            return self._writer.made.FromString(message)
        except library().message.DecodeError as error:
            bad[row] = f"not a {self._writer.message}: {str(error).rpartition(': ')[2]}"
            return self._writer.made()


def _tried(get: Get, message: Any, row: int, bad: dict[int, str]) -> Any:
    try:
        return get(message)
    except Misfit as error:
        bad.setdefault(row, str(error))
    return None


def _gets(message: Any, columns: Mapping[str, Column], where: str) -> dict[str, Get]:
    """By column, what takes its value out of a message."""
    found = {}
    for name, column in columns.items():
        place = f"{where}.{name}" if where else name
        by_name = column.number is None
        field = message.fields_by_name.get(name) if by_name else message.fields_by_number.get(column.number)
        if field is None:
            found[name] = _constant(column.absent)
        else:
            get = _get(field, column, place)
            found[name] = _named(field, get, place) if _is_closed(field) else get
    return found


def _get(field: Any, column: Column, where: str) -> Get:
    name = field.name
    if not field.is_repeated:
        return _single(field, _convert(field, column.dtype, column.fields, where))
    if not isinstance(column.dtype, pl.List):
        raise _unfit(field, column.dtype, where)
    inner = instance(column.dtype.inner)
    if kinds.is_map(field):
        return _pairs(field, inner, column.fields, where)
    convert = _convert(field, inner, column.fields, f"{where}[]") or _same
    return lambda message: [convert(value) for value in getattr(message, name)]


def _single(field: Any, convert: Get | None) -> Get:
    name, value = field.name, attrgetter(field.name)
    if convert is None:
        return (lambda message: value(message) if message.HasField(name) else None) if field.has_presence else value
    if field.has_presence:
        return lambda message: convert(value(message)) if message.HasField(name) else None
    return lambda message: convert(value(message))


def _pairs(field: Any, inner: pl.DataType, fields: Mapping[str, Column], where: str) -> Get:
    """A map, in the order of its keys: that of the library differs between processes."""
    if list(fields) != ["key", "value"]:
        raise _unfit(field, pl.List(inner), where)
    name, (key, value) = field.name, (field.message_type.fields_by_name[part] for part in ("key", "value"))
    keys, values = (
        _convert(part, column.dtype, column.fields, f"{where}.{part.name}") or _same
        for part, column in zip((key, value), fields.values(), strict=True)
    )

    def pairs(message: Any) -> list[dict[str, Any]]:
        found = getattr(message, name)
        return [{"key": key, "value": values(found[k])} for key, k in sorted((keys(k), k) for k in found)]

    return pairs


def _convert(field: Any, dtype: pl.DataType, fields: Mapping[str, Column], where: str) -> Get | None:
    """What makes a column's value of a field's; None: it is the same."""
    if (inner := kinds.wrapped(field)) is not None:
        convert = _convert(inner, dtype, fields, where) or _same
        return lambda message: convert(message.value)
    if field.cpp_type == kinds.MESSAGE:
        if field.message_type.full_name == kinds.TIMESTAMP and isinstance(dtype, pl.Datetime):
            return _moment(dtype, where)
        if not isinstance(dtype, pl.Struct) or kinds.is_map(field) or not fields:
            raise _unfit(field, dtype, where)
        gets = _gets(field.message_type, fields, where)
        return lambda message: {name: get(message) for name, get in gets.items()}
    if field.cpp_type in _BITS:
        return _number(field, dtype, where)
    if field.cpp_type == kinds.ENUM and dtype == pl.String():
        return _symbol(field.enum_type, where)
    if field.cpp_type == kinds.STRING and dtype == pl.String() and not kinds.is_checked(field):
        return _text(where)
    if dtype != kinds.scalar(field) and (field.cpp_type, dtype) != (kinds.FLOAT, pl.Float64()):
        raise _unfit(field, dtype, where)
    return None


def _number(field: Any, dtype: pl.DataType, where: str) -> Get | None:
    low, high = _BITS[field.cpp_type]
    if dtype.is_integer():
        least, most = pl.select(least=dtype.min(), most=dtype.max()).row(0)  # type: ignore[attr-defined]
    elif isinstance(dtype, pl.Datetime):
        per = _PER_SECOND[dtype.time_unit]
        least, most = _FIRST * per, (_LAST + 1) * per - 1
    elif dtype.is_float():
        return float
    else:
        raise _unfit(field, dtype, where)
    if least <= low and high <= most:
        return None

    def number(value: int) -> int:
        if not least <= value <= most:
            raise Misfit(f"field {where!r}: cannot read {value} as {type_name(dtype)}")
        return value

    return number


def _text(where: str) -> Get:
    def text(value: str | bytes) -> str:
        if isinstance(value, bytes):
            raise Misfit(f"field {where!r}: not UTF-8")
        return value

    return text


def _symbol(enum: Any, where: str) -> Get:
    # Of two with one number, the first is the value's name.
    names = {value.number: value.name for value in reversed(enum.values)}

    def symbol(number: int) -> str:
        if number not in names:
            raise Misfit(f"field {where!r}: {number} is not a value of {enum.full_name}")
        found: str = names[number]
        return found

    return symbol


def _is_closed(field: Any) -> bool:
    """Whether it is of a closed enum: proto2's. The library sets numbers without a name aside, as if they were not there."""
    value = field.message_type.fields_by_name["value"] if kinds.is_map(field) else field
    return value.cpp_type == kinds.ENUM and bool(value.enum_type.is_closed)


def _named(field: Any, get: Get, where: str) -> Get:
    unknown = library().unknown_fields.UnknownFieldSet

    def named(message: Any) -> Any:
        for each in unknown(message):
            if each.field_number == field.number:
                raise Misfit(f"field {where!r}: it has a number that its enum does not name")
        return get(message)

    return named


def _moment(dtype: pl.Datetime, where: str) -> Get:
    per = _PER_SECOND[dtype.time_unit]
    step = _NANOS // per

    def moment(value: Any) -> Any:
        seconds, nanos = value.seconds, value.nanos
        if not (_FIRST <= seconds <= _LAST and 0 <= nanos < _NANOS):
            raise Misfit(f"field {where!r}: cannot read {seconds} s and {nanos} ns as {type_name(dtype)}")
        return seconds * per + nanos // step

    return moment


def _unfit(field: Any, dtype: pl.DataType, where: str) -> Unresolvable:
    kind = _KINDS[field.type] if field.type < len(_KINDS) else "?"
    named = field.message_type or field.enum_type
    said = "a map" if kinds.is_map(field) else named.full_name if named is not None else kind
    said = f"repeated {said}" if field.is_repeated and not kinds.is_map(field) else said
    return Unresolvable(f"field {where!r}: the writer has {said}, which does not fit {type_name(dtype)}")


_KINDS = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes",
    "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""The library's types (`FieldDescriptor.type`), in Protobuf's words."""


def _constant(value: Any) -> Get:
    return lambda _: value


def _same(value: Any) -> Any:
    return value
