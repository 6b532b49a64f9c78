"""Which fields a record has, beside which fields its schema names.

    flaw(record) depends on names alone, at every level of the schema: values are for the reader to judge

Few records have a flaw. So a decoder that builds nothing sees each record first, and only what it does not take is looked
at exactly. It checks every one of several fields with one name, where the first alone counts: what it takes is good.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import polars as pl

from falkirk.stream.formats import reasons
from falkirk.stream.formats.types import instance

_NOT_TAKEN = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Names:
    """The names of a schema.

    >>> names = Names({"a": pl.Int64(), "x": pl.Struct({"y": pl.Int64})}, extra=True, missing=True)
    >>> names.flaw(b'{"a": 1, "x": {"y": 1, "z": 2}}'), names.flaw(b'{"x": null}')
    ("field 'x.z': the schema has none", "field 'a': it is missing")
    >>> names.flaw(b'{"a": null, "x": null}')
    """

    def __init__(self, schema: Mapping[str, pl.DataType], *, extra: bool, missing: bool) -> None:
        """`extra`: a field that the schema does not name is a flaw; `missing`: one that it names and a record lacks."""
        self._schema, self._extra, self._missing = schema, extra, missing
        self._decoder: msgspec.json.Decoder[Any] | None = None
        # It cannot tell names with quotes or control characters.
        with suppress(ValueError):
            self._decoder = msgspec.json.Decoder(self._struct(schema))

    def __reduce__(self) -> Any:
        return partial(Names, extra=self._extra, missing=self._missing), (self._schema,)

    def flaw(self, value: bytes) -> str | None:
        """What is wrong with the fields' names of a record that is an object; None: nothing."""
        if self._decoder is not None:
            with suppress(*_NOT_TAKEN):
                self._decoder.decode(value)
                return None
        return self._judged(value)

    def _judged(self, value: bytes) -> str | None:
        try:
            document = reasons.parsed(value)
        except ValueError as error:
            return reasons.not_json(value, str(error))
        return self._fields(document, self._schema, "")

    def _fields(self, document: Mapping[str, Any], schema: Mapping[str, pl.DataType], where: str) -> str | None:
        for name, dtype in schema.items():
            if name in document:
                if found := self._value(document[name], dtype, where + name):
                    return found
            elif self._missing:
                return f"field '{where}{name}': it is missing"
        extra = next((name for name in document if name not in schema), None) if self._extra else None
        return None if extra is None else f"field '{where}{reasons.shown(extra)}': the schema has none"

    def _value(self, value: Any, dtype: pl.DataType, where: str) -> str | None:
        if isinstance(dtype, pl.List) and isinstance(value, list):
            inner = instance(dtype.inner)
            return next((w for i, v in enumerate(value) if (w := self._value(v, inner, f"{where}[{i}]"))), None)
        if isinstance(dtype, pl.Struct) and isinstance(value, dict):
            return self._fields(value, {f.name: instance(f.dtype) for f in dtype.fields}, f"{where}.")
        return None

    def _struct(self, schema: Mapping[str, pl.DataType]) -> Any:
        fields = [(f"f{i}", self._kind(dtype)) for i, dtype in enumerate(schema.values())]
        return msgspec.defstruct(
            "Names",
            fields if self._missing else [(*field, None) for field in fields],
            rename={f"f{i}": name for i, name in enumerate(schema)},
            forbid_unknown_fields=self._extra,
        )

    def _kind(self, dtype: pl.DataType) -> Any:
        if isinstance(dtype, pl.Struct):
            return self._struct({f.name: instance(f.dtype) for f in dtype.fields}) | None
        if isinstance(dtype, pl.List) and (inner := self._kind(instance(dtype.inner))) is not msgspec.Raw:
            return list[inner] | None  # type: ignore[valid-type]
        return msgspec.Raw
