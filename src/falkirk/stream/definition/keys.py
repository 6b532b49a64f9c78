"""Checks of the keys and formats that users name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type
from falkirk.stream.formats import Format, Key, KeyLike, Registering, key_of


def checked_key(spec: KeyLike, schema: pl.Schema, where: str) -> Key:
    """The key. Raises DefinitionError if its columns do not exist or cannot be encoded."""
    key = key_of(spec)
    columns_of(key.columns, schema, where)
    try:
        key.encode(schema.to_frame())
    except DefinitionError as error:
        raise DefinitionError(error.what, where=where, hint=error.hint) from error
    return key


def checked_format(value: Any, where: str, json: str = 'fk.Json({"price": fk.Int64})') -> Format:
    """The format. Raises DefinitionError for anything else. A class means its instance: `fk.Text` means `fk.Text()`. The
    error for a missing format shows `json` as an example."""
    made = value() if isinstance(value, type) and hasattr(value, "decode") else value
    if not all(hasattr(made, method) for method in ("schema", "decode", "encode")):
        raise DefinitionError(
            f"value={value!r} is not a format", where=where, hint=f"write value={_NAMES.get(str(value).lower(), json)}"
        )
    return cast(Format, made)


_NAMES = {
    "avro": 'fk.Avro("bid.avsc")',
    "protobuf": 'fk.Protobuf("bid.proto")',
    "string": "fk.Text()",
    "text": "fk.Text()",
    "bytes": "fk.Raw()",
    "raw": "fk.Raw()",
}
"""The formats that users mean when they give a name."""


def sink_format(value: Any, topic: str, schema: pl.Schema, where: str) -> Format:
    """The format of a sink. Raises DefinitionError if it is not a format, or cannot encode these columns."""
    made = checked_format(value, where, "fk.Json()")
    try:
        made = made.for_sink(topic, schema) if isinstance(made, Registering) else made
        made.encode(schema.to_frame())
    except DefinitionError as error:
        raise DefinitionError(error.what, where=where, hint=error.hint or did_you_mean("", schema)) from error
    return made


def check_column(name: Any, schema: pl.Schema, where: str) -> None:
    """Raises DefinitionError unless it is the name of a column."""
    if not isinstance(name, str):
        raise DefinitionError(
            f"{name!r} is not a column name", where=where, hint="compute it with with_columns first, then name it"
        )
    if name not in schema:
        raise DefinitionError(f"there is no column {name!r}", where=where, hint=did_you_mean(name, schema))


def columns_of(given: Sequence[str | Sequence[str]], schema: pl.Schema, where: str) -> tuple[str, ...]:
    """Columns to group by, as one flat tuple. Raises DefinitionError if there are none, or if a column does not exist or
    cannot be a key."""
    names: list[Any] = [n for g in given for n in (g if isinstance(g, list | tuple) else [g])]
    if not names:
        raise DefinitionError("there is no column", where=where, hint='name one: "auction"')
    for name in names:
        check_column(name, schema, where)
        if names.count(name) > 1:
            raise DefinitionError(f"column {name!r} is named twice", where=where, hint="name it once")
        check_key_type(schema[name], where=f"column {name!r} of {where}")
    return tuple(names)


def same_key(a: Key, b: Key) -> bool:
    """Whether both keys encode a row to the same bytes."""
    return repr(a) == repr(b)
