"""Rows as messages.

What a column is written as is checked by types, before any row is: an empty frame of the same columns fails as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import DefinitionError
from falkirk.stream.formats.protobuf import columns as kinds
from falkirk.stream.formats.protobuf.columns import Column, columns_of
from falkirk.stream.formats.protobuf.schemas import ProtoSchema, library
from falkirk.stream.formats.types import fits, instance, type_name

_MILLION = 1_000_000


class Writer:
    """Writes frames as messages.

    >>> from falkirk.stream.formats.protobuf.schemas import schema_from
    >>> made = schema_from('syntax = "proto3"; message Bid { int64 price = 1; optional int64 by = 2; }')
    >>> Writer(made).write(pl.DataFrame({"price": [1, 0], "by": [None, 0]}))
    [b'\\x08\\x01', b'\\x10\\x00']
    """

    def __init__(self, schema: ProtoSchema) -> None:
        self._schema = schema
        self._columns = columns_of(schema.descriptor)
        self._fields: Mapping[str, Any] = schema.descriptor.fields_by_name

    def write(self, frame: pl.DataFrame, head: bytes = b"") -> list[bytes]:
        """A message a row, after `head`. Raises DefinitionError where columns, types or nulls are not the message's."""
        frame = self._fitted(frame)
        made, messages = self._schema.made, []
        encode_error = library().message.EncodeError  # a part lacks a field that is required, and is no column
        fixes = [
            (name, fix) for name in frame.columns if (fix := _fix(self._fields[name], self._columns[name])) is not None
        ]
        for row in frame.iter_rows(named=True):
            try:
                for name, fix in fixes:
                    row[name] = fix(row[name])
                messages.append(head + made(**row).SerializeToString(deterministic=True))
            except (LookupError, TypeError, ValueError, encode_error) as error:
                raise DefinitionError(
                    f"a row does not fit the message {self._schema.message}: {in_brief(error)}",
                    where=f"row {str(row)[:200]}",
                    hint="change or filter it before the sink",
                ) from None
        return messages

    def _fitted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The message's columns, of its types, without nulls where it has none; moments as microseconds."""
        if unknown := [c for c in frame.columns if c not in self._columns]:
            what = "a field of a type that is not a column" if unknown[0] in self._fields else "not a field"
            raise DefinitionError(
                f"column {unknown[0]!r} is {what} of message {self._schema.message}",
                hint=f"select before the sink: {', '.join(self._columns)}",
            )
        required = [name for name, field in self._fields.items() if field.is_required]
        if missing := [name for name in required if name not in frame.columns]:
            raise DefinitionError(
                f"no column for the message's field {missing[0]!r}, which is required",
                hint=f"there are: {', '.join(frame.columns)}",
            )
        for name, dtype in frame.schema.items():
            wanted = self._columns[name].dtype
            if not fits(dtype, wanted):
                raise DefinitionError(
                    f"column {name!r} is {type_name(dtype)}, and the message's field {type_name(wanted)}",
                    hint="cast it before the sink",
                )
        try:
            frame = frame.cast({name: self._columns[name].dtype for name in frame.columns})
        except pl.exceptions.InvalidOperationError as error:
            raise DefinitionError(
                f"a value does not fit the message: {in_brief(error)}", hint="name a wider type"
            ) from None
        for column in frame.get_columns():
            _check_nulls(column, self._fields[column.name], column.name)
        _check_oneofs(frame, self._schema.descriptor, "")
        return frame.cast({name: _numbers(dtype) for name, dtype in frame.schema.items()})


def _check_nulls(column: pl.Series, field: Any, where: str) -> None:
    """Raises DefinitionError for a null where a message has none. A list that is null is written as none."""
    if field.is_repeated:
        column = column.drop_nulls().explode(keep_nulls=False, empty_as_null=False)
        where = f"{where}[]"
        _refuse_nulls(column, where, "let the list hold none")
    elif not field.has_presence or field.is_required:
        _refuse_nulls(column, where, "let it be `optional` in the .proto, or fill_null(…) it, or filter the rows")
    if field.message_type is not None and isinstance(column.dtype, pl.Struct):
        column = column.drop_nulls()
        for part in column.dtype.fields:  # type: ignore[attr-defined]
            inner = field.message_type.fields_by_name[part.name]
            if kinds.is_map(field) and not inner.is_repeated:
                _refuse_nulls(column.struct.field(part.name), f"{where}.{part.name}", "drop the pair")
            _check_nulls(column.struct.field(part.name), inner, f"{where}.{part.name}")


def _check_oneofs(frame: pl.DataFrame, message: Any, where: str) -> None:
    """Raises DefinitionError for two values of a oneof: the library would keep one of them."""
    for oneof in message.oneofs:
        there = [pl.col(each.name).is_not_null() for each in oneof.fields if each.name in frame.columns]
        if len(there) > 1 and frame.select((pl.sum_horizontal(there) > 1).any()).item():
            names = ", ".join(where + each.name for each in oneof.fields if each.name in frame.columns)
            raise DefinitionError(
                f"a row has several values of the oneof {oneof.name!r}: {names}",
                hint="let all but one of these columns be null, or filter the rows",
            )
    for column in frame.get_columns():
        field, name = message.fields_by_name[column.name], f"{where}{column.name}"
        if field.is_repeated:
            column, name = column.drop_nulls().explode(keep_nulls=False, empty_as_null=False), f"{name}[]"
        if field.message_type is not None and isinstance(column.dtype, pl.Struct):
            _check_oneofs(column.drop_nulls().struct.unnest(), field.message_type, f"{name}.")


def _refuse_nulls(column: pl.Series, where: str, hint: str) -> None:
    if column.null_count():
        raise DefinitionError(f"column {where!r} is null, and the message allows no null there", hint=hint)


def _numbers(dtype: pl.DataType) -> pl.DataType:
    """The type, with moments as microseconds."""
    if isinstance(dtype, pl.List):
        return pl.List(_numbers(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: _numbers(instance(f.dtype)) for f in dtype.fields})
    return pl.Int64() if isinstance(dtype, pl.Datetime) else dtype


def _fix(field: Any, column: Column) -> Callable[[Any], Any] | None:
    """What makes of a column's value what the library takes for a field; None: nothing need be done."""
    if kinds.is_map(field):
        return _pairs(field, column)
    one = _one(field, column)
    if not field.is_repeated or one is None:
        return one
    return lambda values: None if values is None else [one(value) for value in values]


def _pairs(field: Any, column: Column) -> Callable[[Any], Any]:
    fix = _fix(field.message_type.fields_by_name["value"], column.fields["value"])

    def pairs(given: Any) -> dict[Any, Any] | None:
        if given is None:
            return None
        found = {pair["key"]: pair["value"] if fix is None else fix(pair["value"]) for pair in given}
        if len(found) < len(given):
            raise ValueError(f"field {field.name!r}: a map has each key once")
        return found

    return pairs


def _one(field: Any, column: Column) -> Callable[[Any], Any] | None:
    if kinds.wrapped(field) is not None:
        return lambda value: None if value is None else {"value": value}
    if field.message_type is None:
        return None
    if field.message_type.full_name == kinds.TIMESTAMP:
        return lambda at: None if at is None else {"seconds": at // _MILLION, "nanos": at % _MILLION * 1000}
    fixes = {name: _fix(field.message_type.fields_by_name[name], each) for name, each in column.fields.items()}

    def struct(row: Any) -> Any:
        if row is None:
            return None
        return {name: value if (fix := fixes[name]) is None else fix(value) for name, value in row.items()}

    return struct
