"""What a user may write for a schema, and the Polars schema that it means.

    {"auction": fk.Int64, "at": fk.Datetime("ms", "UTC")}      a dict of types: Narwhals' or Polars', or Python's own
    a dataclass, or a TypedDict                                 its annotations; nested ones are structs

`X | None` is X: every column may hold nulls.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import types
import typing
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError

SchemaLike = Mapping[str, Any] | type
"""A dict of types, a dataclass or a TypedDict."""

_PYTHON: dict[object, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bool: pl.Boolean(),
    bytes: pl.Binary(),
    dt.datetime: pl.Datetime("us"),
    dt.date: pl.Date(),
    dt.time: pl.Time(),
    dt.timedelta: pl.Duration("us"),
    decimal.Decimal: pl.Decimal(38, 9),
}


def schema_of(spec: SchemaLike) -> pl.Schema:
    """The Polars schema that `spec` means. Raises DefinitionError for what is none.

    >>> import narwhals as nw
    >>> schema_of({"auction": nw.Int64, "tags": list[str]})
    Schema([('auction', Int64), ('tags', List(String))])
    """
    fields = spec if isinstance(spec, Mapping) else _annotations(spec)
    if not fields:
        raise DefinitionError("a schema needs at least one column", hint='write a dict of types: {"price": fk.Int64}')
    if "" in fields:
        raise DefinitionError("a column needs a name that is not empty")
    return pl.Schema({name: dtype_of(of, name) for name, of in fields.items()})


def dtype_of(spec: Any, column: str) -> pl.DataType:
    """The Polars type that `spec` means. Raises DefinitionError, naming `column`, for what is none.

    >>> dtype_of(int | None, "price")
    Int64
    """
    if isinstance(spec, pl.DataType) or (isinstance(spec, type) and issubclass(spec, pl.DataType)):
        return pl.Schema({"": spec})[""]
    if isinstance(spec, nw.dtypes.DType) or (isinstance(spec, type) and issubclass(spec, nw.dtypes.DType)):
        return _narwhals(spec, column)
    if spec in _PYTHON:
        return _PYTHON[spec]
    origin, arguments = typing.get_origin(spec), typing.get_args(spec)
    if origin in (typing.Union, types.UnionType):
        given = [a for a in arguments if a is not type(None)]
        if len(given) == 1:
            return dtype_of(given[0], column)
    elif origin is list and len(arguments) == 1:
        return pl.List(dtype_of(arguments[0], column))
    elif origin is typing.Annotated:
        return dtype_of(arguments[0], column)
    elif isinstance(spec, Mapping) or dataclasses.is_dataclass(spec) or typing.is_typeddict(spec):
        return pl.Struct(dict(schema_of(typing.cast(SchemaLike, spec))))
    raise DefinitionError(
        f"{spec!r} is no type for column {column!r}",
        hint="use fk.Int64, fk.Float64, fk.String, fk.Boolean, fk.Datetime, fk.List, fk.Struct, or Python's int, str…",
    )


def _narwhals(spec: Any, column: str) -> pl.DataType:
    try:
        return nw.Schema({column: spec}).to_polars()[column]
    except Exception as error:
        raise DefinitionError(f"column {column!r}: {spec} has no form in Polars: {error}") from error


def _annotations(spec: object) -> Mapping[str, Any]:
    if not isinstance(spec, type) or not (dataclasses.is_dataclass(spec) or typing.is_typeddict(spec)):
        raise DefinitionError(
            f"{spec!r} is no schema", hint='use a dict of types ({"price": fk.Int64}), a dataclass or a TypedDict'
        )
    try:
        return typing.get_type_hints(spec, include_extras=False)
    except NameError as error:
        raise DefinitionError(f"schema {spec.__name__}: {error}", hint="define its types at module level") from error
