"""SQL's types as column types."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.formats import types as fk
from falkirk.stream.formats.types import schema_of
from falkirk.stream.sql.text import Text

_D = exp.DataType.Type

_PLAIN: dict[Any, object] = {
    _D.TINYINT: fk.Int8, _D.SMALLINT: fk.Int16, _D.INT: fk.Int32, _D.BIGINT: fk.Int64,
    _D.UTINYINT: fk.UInt8, _D.USMALLINT: fk.UInt16, _D.UINT: fk.UInt32, _D.UBIGINT: fk.UInt64,
    _D.FLOAT: fk.Float32, _D.DOUBLE: fk.Float64, _D.BOOLEAN: fk.Boolean, _D.DATE: fk.Date,
    _D.TEXT: fk.String, _D.VARCHAR: fk.String, _D.CHAR: fk.String, _D.NVARCHAR: fk.String,
    _D.BINARY: fk.Binary, _D.VARBINARY: fk.Binary, _D.BLOB: fk.Binary,
    _D.TIMESTAMP: fk.Datetime, _D.TIMESTAMPTZ: fk.Datetime, _D.TIMESTAMPLTZ: fk.Datetime, _D.TIMESTAMPNTZ: fk.Datetime,
    _D.TIMESTAMP_MS: fk.Datetime, _D.DATETIME: fk.Datetime,
}  # fmt: skip

KNOWN = (
    "bigint, int, smallint, tinyint, double, float, decimal(p, s), varchar, boolean, date, timestamp (milliseconds), "
    "timestamp(6) (microseconds), varbinary, bigint[], struct(a bigint)"
)


def type_of(node: exp.Expr, text: Text) -> object:
    """The Falkirk type that SQL's type means. Raises DefinitionError.

    >>> from sqlglot import parse_one
    >>> str(type_of(parse_one("cast(x as bigint[])").args["to"], Text("", "")))
    'List(Int64)'
    """
    kind = getattr(node, "this", None)
    inner = list(getattr(node, "expressions", ()))
    if kind in (_D.DECIMAL, _D.BIGDECIMAL):
        digits = [int(e.name) for e in inner]
        precision, scale = {0: [18, 3], 1: [*digits, 0]}.get(len(digits), digits)
        return nw.Decimal(precision, scale)
    if kind in (_D.TIMESTAMP, _D.TIMESTAMPTZ, _D.TIMESTAMPNTZ, _D.TIMESTAMPLTZ) and inner and inner[0].name == "6":
        return fk.DatetimeMicros
    if kind in (_D.ARRAY, _D.LIST) and len(inner) == 1:
        return nw.List(type_of(inner[0], text))  # type: ignore[arg-type]
    if kind in (_D.STRUCT, _D.OBJECT) and inner:
        return {e.name: type_of(e.args["kind"], text) for e in inner}
    if kind in _PLAIN:
        return _PLAIN[kind]
    raise text.error(node, f"{node.sql('duckdb').lower()} is not a type", f"there are: {KNOWN}")


def dtype_of(node: exp.Expr, text: Text) -> pl.DataType:
    """The same, as a Polars type. Raises DefinitionError."""
    return schema_of({"x": type_of(node, text)})["x"]


_NAMES: dict[pl.DataType, str] = {
    pl.Int8(): "tinyint", pl.Int16(): "smallint", pl.Int32(): "int", pl.Int64(): "bigint", pl.UInt8(): "utinyint",
    pl.UInt16(): "usmallint", pl.UInt32(): "uinteger", pl.UInt64(): "ubigint", pl.Float32(): "float",
    pl.Float64(): "double", pl.String(): "varchar", pl.Boolean(): "boolean", pl.Binary(): "varbinary", pl.Date(): "date",
    pl.Datetime("ms", "UTC"): "timestamp", pl.Datetime("us", "UTC"): "timestamp(6)",
}  # fmt: skip


def sql_type(dtype: pl.DataType) -> str:
    """The name of a column's type in SQL; "" if it has none.

    >>> sql_type(pl.List(pl.Int64())), sql_type(pl.Struct({"a": pl.Decimal(9, 2)}))
    ('bigint[]', 'struct("a" decimal(9, 2))')
    """
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.List):
        inner = sql_type(pl.List(dtype.inner).inner)  # type: ignore[arg-type]
        return f"{inner}[]" if inner else ""
    if isinstance(dtype, pl.Struct):
        fields = [(f.name, sql_type(f.dtype)) for f in dtype.fields]  # type: ignore[arg-type]
        return f"struct({', '.join(f'{quoted(n)} {t}' for n, t in fields)})" if all(t for _, t in fields) else ""
    return _NAMES.get(dtype, "")


def quoted(name: str) -> str:
    """A name as an identifier.

    >>> print(quoted('a "b" c'))
    "a ""b"" c"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
