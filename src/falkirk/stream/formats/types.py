"""The types of columns, and schemas made from them.

The types are Narwhals' own, so that `fk.col("a").cast(fk.Int64)` and `fk.Json({"a": fk.Int64})` name one thing. Every
column may hold nulls: a type says what a value is when there is one.
"""

from __future__ import annotations

import dataclasses
import decimal
import keyword
import types
import typing
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, cast

import narwhals as nw
import polars as pl
from narwhals.dtypes import DType

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream.formats.rows import SchemaLike

Int8, Int16, Int32, Int64 = nw.Int8, nw.Int16, nw.Int32, nw.Int64
UInt8, UInt16, UInt32, UInt64 = nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64
Float32, Float64 = nw.Float32, nw.Float64
String, Boolean, Binary, Date = nw.String, nw.Boolean, nw.Binary, nw.Date
Decimal = nw.Decimal
List, Struct = nw.List, nw.Struct

Datetime = nw.Datetime("ms", "UTC")
"""A moment, in milliseconds since 1970, UTC: what a Kafka timestamp is."""

DatetimeMicros = nw.Datetime("us", "UTC")
"""A moment, in microseconds since 1970, UTC."""

_PLAIN: dict[pl.DataType, str] = {
    pl.Int8(): "Int8",
    pl.Int16(): "Int16",
    pl.Int32(): "Int32",
    pl.Int64(): "Int64",
    pl.UInt8(): "UInt8",
    pl.UInt16(): "UInt16",
    pl.UInt32(): "UInt32",
    pl.UInt64(): "UInt64",
    pl.Float32(): "Float32",
    pl.Float64(): "Float64",
    pl.String(): "String",
    pl.Boolean(): "Boolean",
    pl.Binary(): "Binary",
    pl.Date(): "Date",
    pl.Datetime("ms", "UTC"): "Datetime",
    pl.Datetime("us", "UTC"): "DatetimeMicros",
}
_UNITS = ("ms", "us", "ns")
_PYTHON: dict[Any, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bool: pl.Boolean(),
    bytes: pl.Binary(),
    datetime: pl.Datetime("ms", "UTC"),
    date: pl.Date(),
}


def schema_of(spec: SchemaLike) -> pl.Schema:
    """The Polars schema that a user's description of columns means.

    Fields are types of this module, Python's `int`, `float`, `str`, `bool`, `bytes`, `datetime`, `date`, `list[T]` and
    `T | None`, or descriptions again, which become structs. Raises DefinitionError for anything else.

    >>> dict(schema_of({"id": Int64, "tags": list[str]}))
    {'id': Int64, 'tags': List(String)}
    >>> @dataclasses.dataclass
    ... class Bid:
    ...     price: int
    ...     at: datetime | None
    >>> dict(schema_of(Bid))
    {'price': Int64, 'at': Datetime(time_unit='ms', time_zone='UTC')}
    """
    fields = _fields(spec)
    if fields is None:
        raise DefinitionError(
            f"{spec!r} does not describe columns",
            where=user_line(),
            hint='give a dict of types, as {"price": fk.Int64}, a dataclass or a TypedDict',
        )
    return pl.Schema(_columns(fields, where=""))


def type_name(dtype: pl.DataType) -> str:
    """The type in this module's words, for messages.

    >>> print(type_name(pl.List(pl.Struct({"a": pl.Int64, "b.c": pl.String}))))
    List(Struct({a: Int64, 'b.c': String}))
    """
    if isinstance(dtype, pl.List):
        return f"List({type_name(instance(dtype.inner))})"
    if isinstance(dtype, pl.Struct):
        return "Struct({" + ", ".join(f"{_shown(f.name)}: {type_name(instance(f.dtype))}" for f in dtype.fields) + "})"
    if isinstance(dtype, pl.Decimal):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    return _PLAIN.get(dtype, str(dtype))


def _shown(name: str) -> str:
    """The name of a field: in quotes if it is none of a variable, so that the text of a type can be read."""
    return name if name.isascii() and name.isidentifier() and not keyword.iskeyword(name) else repr(name)


def described(schema: Mapping[str, pl.DataType]) -> str:
    """A schema in this module's words, for messages. What is recorded has Polars' words, which must stay as they are.

    >>> described({"id": pl.Int64(), "at": pl.Datetime("ms", "UTC"), "usd": pl.Decimal(12, 2)})
    'id Int64, at Datetime, usd Decimal(12, 2)'
    """
    return ", ".join(f"{name} {type_name(dtype)}" for name, dtype in schema.items())


def fits(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Does a cast keep each value, as near as the wanted type comes to it, or else fail?"""
    if given in (wanted, pl.Null()):
        return True
    if isinstance(wanted, pl.Struct) and isinstance(given, pl.Struct):
        have = {f.name: instance(f.dtype) for f in given.fields}
        same = have.keys() == {f.name for f in wanted.fields}
        return same and all(fits(have[f.name], instance(f.dtype)) for f in wanted.fields)
    if isinstance(wanted, pl.List) and isinstance(given, pl.List):
        return fits(instance(given.inner), instance(wanted.inner))
    if isinstance(wanted, pl.Datetime) and isinstance(given, pl.Datetime):
        return given.time_zone is not None and _UNITS.index(given.time_unit) <= _UNITS.index(wanted.time_unit)
    if isinstance(wanted, pl.Decimal) and isinstance(given, pl.Decimal):
        return given.scale <= wanted.scale
    if wanted == pl.String():
        return isinstance(given, pl.Categorical | pl.Enum)
    if given.is_integer():
        return wanted.is_integer() or wanted.is_float() or isinstance(wanted, pl.Decimal)
    return given.is_float() and wanted == pl.Float64()


def _fields(spec: Any) -> Mapping[Any, Any] | None:
    """Name to type, when `spec` describes columns; None when it is a type."""
    if isinstance(spec, Mapping):
        return spec
    if isinstance(spec, type) and (dataclasses.is_dataclass(spec) or typing.is_typeddict(spec)):
        try:
            hints = typing.get_type_hints(spec)
        except NameError as error:
            raise DefinitionError(
                f"a type of {spec.__name__} is not known: {error}",
                where=user_line(),
                hint="define it at the top of the module",
            ) from None
        return {f.name: hints[f.name] for f in dataclasses.fields(spec)} if dataclasses.is_dataclass(spec) else hints
    return None


def _columns(fields: Mapping[Any, Any], where: str) -> dict[str, pl.DataType]:
    if not fields:
        raise DefinitionError(
            "a schema without columns",
            where=_place(where) if where else user_line(),
            hint='name one column at least: {"price": fk.Int64}',
        )
    for name in fields:
        if not isinstance(name, str):
            raise DefinitionError(
                f"the name of a column is a string, not {name!r}", where=user_line(), hint=f'write "{name}"'
            )
    return {name: _dtype(kind, f"{where}.{name}" if where else name) for name, kind in fields.items()}


def _dtype(kind: Any, where: str) -> pl.DataType:
    fields = _fields(kind)
    if fields is not None:
        return pl.Struct(_columns(fields, where))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1:
            return _dtype(rest[0], where)
    elif origin is list:
        return pl.List(_dtype(args[0], where))
    elif isinstance(kind, nw.List):
        return pl.List(_dtype(kind.inner, where))
    elif isinstance(kind, nw.Struct):
        return pl.Struct(_columns({f.name: f.dtype for f in kind.fields}, where))
    elif isinstance(kind, type) and kind in _PYTHON:
        return _PYTHON[kind]
    else:
        dtype = _library_type(kind)
        if isinstance(dtype, pl.List):
            return pl.List(_dtype(dtype.inner, where))
        if isinstance(dtype, pl.Struct):
            return pl.Struct(_columns({f.name: f.dtype for f in dtype.fields}, where))
        if dtype in _PLAIN or isinstance(dtype, pl.Decimal):
            return dtype
    raise DefinitionError(
        f"{kind.__name__ if isinstance(kind, type) else repr(kind)} is not a type of a column",
        where=_place(where),
        hint=_instead(kind),
    )


def _place(field: str) -> str:
    return f"field {field!r} ({user_line()})"


_INSTEAD: dict[Any, str] = {
    dict: 'name the fields of the nested object: {"city": str, "zip": str}',
    list: "say of what: list[str]",
    tuple: "use a list, and say of what: list[str]",
    set: "use a list, and say of what: list[str]",
    decimal.Decimal: "say how many digits, and how many behind the point: fk.Decimal(18, 2)",
    nw.Decimal: "say how many digits, and how many behind the point: fk.Decimal(18, 2)",
    time: "use str; for a moment, datetime",
    timedelta: "use int, and count seconds",
    uuid.UUID: "use str",
}


def _instead(kind: Any) -> str:
    """What people mean who write this. For a dict[str, int] it is what they mean by a dict."""
    if isinstance(kind, str):
        return "write the type without quotes"
    plain = typing.get_origin(kind) or kind
    if isinstance(plain, type) and plain in _INSTEAD:
        return _INSTEAD[plain]
    return (
        f"use int, float, str, bool, {', '.join(_PLAIN.values())}, Decimal(digits, scale), list[...], or a dict of types for "
        "a nested object"
    )


def _library_type(kind: Any) -> pl.DataType | None:
    """A Narwhals or Polars type as Polars'; None when it is neither."""
    if kind is nw.Decimal or kind is pl.Decimal:
        # Without its digits: the library would take some of its own.
        return None
    if isinstance(kind, DType) or (isinstance(kind, type) and issubclass(kind, DType)):
        try:
            return instance(nw.Schema([("", cast("DType", kind))]).to_polars()[""])
        except TypeError:
            # A class that needs an argument, such as List without its inner type.
            return None
    if isinstance(kind, pl.DataType) or (isinstance(kind, type) and issubclass(kind, pl.DataType)):
        return instance(kind)
    return None


def instance(dtype: Any) -> pl.DataType:
    """A Polars type, from its class where it has no parameters: Polars takes either, in its own results too."""
    try:
        made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    except TypeError:
        return pl.Unknown()
    return made
