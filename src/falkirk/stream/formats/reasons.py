"""Why a record is not what the schema says, in words for the dead-letter topic.

`mismatch` is certain: what it refuses, the reader refuses too, for it looks at kinds of values alone, and takes the
first of fields with one name as the reader does. The converse need not hold.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson
import polars as pl

from falkirk.stream.formats import fields
from falkirk.stream.formats.registering import HEAD
from falkirk.stream.formats.types import instance, type_name

BLANK = b" \t\r\n"
_LONGEST = 60
_EXACT = 15
"""Digits that a double keeps: of a number with more, it is not known what was meant."""


def certain(value: bytes | None, schema: Mapping[str, pl.DataType]) -> str | None:
    """Why no reader of JSON would take this record; None when it may.

    >>> certain(b'{"price": 1.5}', {"price": pl.Int64()})
    "field 'price': cannot read 1.5 as Int64"
    >>> certain(None, {}), certain(b" ", {}), certain(b"17", {})
    ('null value', 'empty', 'not a JSON object: 17')
    """
    if value is None:
        return "null value"
    text = value.strip(BLANK)
    if not text:
        return "empty"
    if text[:1] == b"\0" and text[HEAD:].lstrip(BLANK).startswith(b"{"):
        return "a schema's id is before the object: JSON of a schema registry is not supported"
    if not text.startswith(b"{"):
        return f"not a JSON object: {shown(text.decode('utf-8', 'backslashreplace'))}"
    try:
        document = parsed(value)
    except ValueError as error:
        return _malformed(value, error)
    return mismatch(document, schema)


def _malformed(value: bytes, error: ValueError) -> str | None:
    """Why a record is not JSON, if both parsers say so: what is malformed, no reader takes. Of depth and of the size of
    numbers each has its own view."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | _NoNumber) and not isinstance(
        error, orjson.JSONDecodeError
    ):
        try:
            orjson.loads(value)
        except orjson.JSONDecodeError:
            return not_json(value, "")
    return None


def not_json(value: bytes, otherwise: str) -> str:
    """Why a record that the reader refused is not JSON; `otherwise` when Python's own parser takes it."""
    try:
        parsed(value)
    except UnicodeDecodeError as error:
        return f"not JSON: invalid UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}"
    except ValueError as error:
        return f"not JSON: {error}"
    return f"not JSON that can be read: {otherwise}"


def mismatch(document: Mapping[str, Any], schema: Mapping[str, pl.DataType]) -> str | None:
    """The first field of a parsed document whose kind is not its column's.

    >>> mismatch({"a": {"b": ["x"]}}, {"a": pl.Struct({"b": pl.List(pl.Int64)})})
    "field 'a.b[0]': cannot read 'x' as Int64"
    """
    return _fields(document, schema, "")


def unreadable(where: str, value: Any, dtype: pl.DataType) -> str:
    """Which part of a field's value, of type as_read(dtype), means nothing as its column's type.

    >>> unreadable("at", ["2026-01-31", "noon"], pl.List(pl.Datetime("ms", "UTC")))
    "field 'at[1]': cannot read 'noon' as Datetime"
    """
    parts: list[tuple[str, Any, pl.DataType]] = []
    if isinstance(dtype, pl.List):
        parts = [(f"{where}[{i}]", part, instance(dtype.inner)) for i, part in enumerate(value)]
    elif isinstance(dtype, pl.Struct):
        parts = [(f"{where}.{f.name}", value[f.name], instance(f.dtype)) for f in dtype.fields]
    for place, part, kind in parts:
        read = pl.DataFrame({"": pl.Series([part], dtype=fields.as_read(kind))})
        kept = read.select(fields.present(fields.converted(pl.col(""), kind), kind)).item()
        if kept != read.select(fields.present(pl.col(""), fields.as_read(kind))).item():
            return unreadable(place, part, kind)
    return _cannot_read(where, value, dtype)


def parsed(value: bytes) -> Any:
    """The document, with the first of fields with one name. Raises ValueError."""
    text = value.decode("utf-8")
    try:
        return json.loads(text, object_pairs_hook=_first, parse_constant=_no_constant)
    except RecursionError:
        # How deep Python goes depends on the caller's stack; what becomes of a record must not.
        return orjson.loads(text)


def shown(value: Any) -> str:
    """A value for a message: short, on one line."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _fields(document: Mapping[str, Any], schema: Mapping[str, pl.DataType], where: str) -> str | None:
    for name, dtype in schema.items():
        found = _value(document.get(name), dtype, f"{where}.{name}" if where else name)
        if found:
            return found
    return None


def _value(value: Any, dtype: pl.DataType, where: str) -> str | None:
    if value is None:
        return None
    if isinstance(dtype, pl.List) and isinstance(value, list):
        inner = instance(dtype.inner)
        return next((w for i, v in enumerate(value) if (w := _value(v, inner, f"{where}[{i}]"))), None)
    if isinstance(dtype, pl.Struct) and isinstance(value, dict):
        inners = {f.name: instance(f.dtype) for f in dtype.fields}
        return _fields(value, inners, where)
    if _is(value, dtype):
        return None
    return _cannot_read(where, value, dtype)


def _cannot_read(where: str, value: Any, dtype: pl.DataType) -> str:
    quoted = f"'{shown(value)}'" if isinstance(value, str) else shown(value)
    return f"field '{where}': cannot read {quoted} as {type_name(dtype)}"


def _is(value: Any, dtype: pl.DataType) -> bool:
    if dtype.is_integer():
        low, high = _range(dtype)
        return type(value) is int and low <= value <= high
    if dtype.is_float():
        return type(value) in (int, float)
    if dtype == pl.Boolean():
        return type(value) is bool
    if dtype == pl.String():
        return isinstance(value, (str, int, float))
    if dtype in (pl.Date(), pl.Binary()):
        return isinstance(value, str)
    if isinstance(dtype, pl.Datetime):
        return type(value) in (str, int, float)
    if dtype.is_decimal():
        return type(value) in (str, int) or (type(value) is float and _digits(value) <= _EXACT)
    return False


def _digits(number: float) -> int:
    """Of the shortest text that reads back as the number."""
    return len(repr(number).partition("e")[0].lstrip("-0.").replace(".", ""))


@functools.cache
def _range(dtype: pl.DataType) -> tuple[int, int]:
    name = type_name(dtype)
    bits = int(name.removeprefix("U").removeprefix("Int"))
    return (0, (1 << bits) - 1) if name.startswith("U") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


class _NoNumber(ValueError):
    """NaN or infinity."""


def _no_constant(name: str) -> NoReturn:
    raise _NoNumber(f"{name} is not JSON")
