"""Formats from their own text, for places that carry strings alone: a format is shown as what makes it.

format_of(repr(f)) decodes as f does, if f is plain; of Protobuf, a file or a schema's text is named
"""

from __future__ import annotations

import ast
from typing import Any

import polars as pl

from falkirk.errors import ConfigError, FalkirkError
from falkirk.stream.formats import scalar, types
from falkirk.stream.formats.avro import Avro
from falkirk.stream.formats.base import Format
from falkirk.stream.formats.json import Json
from falkirk.stream.formats.protobuf import Protobuf

_FORMATS: dict[str, Any] = {
    "Avro": Avro,
    "Json": Json,
    "Protobuf": Protobuf,
    **{
        name: getattr(scalar, name)
        for name in ("Text", "Raw", "Int64BE", "Int32BE", "Int16BE", "Float64BE", "Float32BE")
    },
}
_TYPES: dict[str, Any] = {
    name: getattr(types, name)
    for name in (
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
        "String", "Boolean", "Binary", "Date", "Datetime", "DatetimeMicros",
    )
} | {"int": int, "float": float, "str": str, "bool": bool, "bytes": bytes}  # fmt: skip


def format_of(text: str, *, where: str = "") -> Format:
    """The format that `text` describes. Nothing is evaluated: only names of formats and types are known.

    Raises ConfigError for any other text, and for a format without a schema; `where` names the setting.

    >>> format_of("Json({'auction': Int64, 'tags': List(String)})")
    Json({'auction': Int64, 'tags': List(String)})
    >>> format_of("fk.Text('line')")
    Text('line')
    >>> format_of("json", where="option value")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: 'json' does not describe a format
      where: option value
      to do: write one as in Python: Json({"auction": Int64, "price": Int64}), Text("line") or Raw()
    """
    try:
        made = _format(ast.parse(text.strip(), mode="eval").body)
        if made.schema is not None:
            return made
    except (SyntaxError, ValueError, TypeError):
        pass
    except FalkirkError as error:
        raise ConfigError(error.what, where=error.where or where, hint=error.hint) from None
    raise ConfigError(
        f"{text!r} does not describe a format",
        where=where,
        hint='write one as in Python: Json({"auction": Int64, "price": Int64}), Text("line") or Raw()',
    )


def _format(node: ast.expr) -> Format:
    if not isinstance(node, ast.Call) or (name := _name(node.func)) not in _FORMATS:
        raise ValueError("no format")
    options = {option.arg: _argument(option.value) for option in node.keywords if option.arg}
    made: Format = _FORMATS[name](*map(_argument, node.args), **options)
    return made


def _argument(node: ast.expr) -> Any:
    return str(node.value) if isinstance(node, ast.Constant) else _schema(node)


def _schema(node: ast.expr) -> dict[str, pl.DataType]:
    if not isinstance(node, ast.Dict):
        raise ValueError("no schema")
    return dict(zip(map(_field, node.keys), map(_type, node.values), strict=True))


def _field(node: ast.expr | None) -> str:
    """The name of a column or field. In a struct, a format shows it without quotes if it can."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("no name")


def _type(node: ast.expr) -> pl.DataType:
    if isinstance(node, ast.Call) and _name(node.func) == "Decimal":
        precision, scale = map(ast.literal_eval, node.args)
        return types.schema_of({"": types.Decimal(precision, scale)})[""]
    if isinstance(node, ast.Call) and len(node.args) == 1:
        (inner,) = node.args
        return pl.List(_type(inner)) if _name(node.func) == "List" else pl.Struct(_schema(inner))
    if (name := _name(node)) not in _TYPES:
        raise ValueError(f"no type {name}")
    return types.schema_of({"": _TYPES[name]})[""]


def _name(node: ast.expr | None) -> str:
    """`Int64`, or `fk.Int64`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("no name")
