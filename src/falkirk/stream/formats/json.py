"""JSON objects, one a record.

decode:  values ──join with newlines──> one read of the whole batch ──> convert text columns ──> frame
                                          └ refused: set the certain ones aside, halve the rest until each is found
encode:  frame ──> convert ──> one write of the whole batch, a row to a cell
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.formats import fields, ndjson
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.types import SchemaLike, schema_of, type_name


class Json:
    """JSON objects in UTF-8, one a record; columns are fields.

    Decoding: a missing field is null, a field that the schema lacks is passed over, and of two with one name the first
    counts. Types are strict (see `falkirk.stream.formats.fields` for how each is written): what does not fit is bad.

    >>> bids = Json({"auction": int, "price": int})
    >>> bids.decode([b'{"auction": 1, "price": 5}', b'{"price": 1.5}']).bad
    [(1, "field 'price': cannot read 1.5 as Int64")]
    >>> Json().encode(pl.DataFrame({"auction": [1], "top": [None]}))
    [b'{"auction":1,"top":null}']
    """

    def __init__(self, schema: SchemaLike | None = None) -> None:
        """`schema` is a dict of types, a dataclass or a TypedDict; without one the format is only for sinks."""
        self.schema = None if schema is None else schema_of(schema)

    def __repr__(self) -> str:
        if self.schema is None:
            return "Json()"
        return "Json({" + ", ".join(f"{name!r}: {type_name(dtype)}" for name, dtype in self.schema.items()) + "})"

    def project(self, columns: Sequence[str]) -> Json:
        """Decode these columns alone. At least one is decoded, so that rows can be counted.

        >>> Json({"a": int, "b": str}).project(["b"])
        Json({'b': String})
        """
        schema = self._schema()
        if unknown := [c for c in columns if c not in schema]:
            raise DefinitionError(f"no column {unknown[0]!r} in {self!r}", hint=f"it has {', '.join(schema)}")
        names = [name for name in schema if name in columns] or list(schema)[:1]
        return Json({name: schema[name] for name in names})

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Rows from JSON objects; the frame is one contiguous chunk. Raises DefinitionError without a schema.

        >>> Json({"a": int}).decode([b'{"a":1}', None, b'{"a":}']).bad
        [(1, 'null value'), (2, 'not JSON: Expecting value at character 5')]
        """
        return self._reader.read(values)

    def encode(self, frame: pl.DataFrame) -> list[bytes]:
        """A JSON object a row: fields in the order of columns, nulls written out. NaN and infinity become null.

        Raises DefinitionError when the frame's columns are not the schema's, or hold what JSON cannot (objects).
        """
        if self.schema is not None and frame.schema != self.schema:
            frame = self._fitted(frame)
        if frame.width == 0:
            return [b"{}"] * frame.height
        if rewritten := _rewritten(tuple(frame.schema.items())):
            frame = frame.with_columns(rewritten)
        # A row at a time into one column: no line to split, and no stream of lines, which takes several threads.
        return frame.to_struct().struct.json_encode().cast(pl.Binary).to_list()

    @cached_property
    def _reader(self) -> ndjson.Reader:
        return ndjson.Reader(self._schema())

    def _schema(self) -> pl.Schema:
        if self.schema is None:
            raise DefinitionError(
                "a JSON format without a schema cannot decode", hint='name the columns: fk.Json({"id": fk.Int64})'
            )
        return self.schema

    def _fitted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The schema's columns, in its order, of its types where those are wider."""
        schema = self._schema()
        if set(frame.columns) != set(schema):
            raise DefinitionError(
                f"columns {', '.join(frame.columns)} are not those of {self!r}", hint="select them before the sink"
            )
        for name, dtype in schema.items():
            if not _widens(frame.schema[name], dtype):
                raise DefinitionError(
                    f"column {name!r} is {type_name(frame.schema[name])}, not {type_name(dtype)}",
                    hint="cast it before the sink",
                )
        try:
            return frame.select(schema.names()).cast(schema)
        except pl.exceptions.InvalidOperationError as error:
            raise DefinitionError(f"a number does not fit {self!r}: {error}", hint="name a wider type") from None


@cache
def _rewritten(columns: tuple[tuple[str, pl.DataType], ...]) -> list[pl.Expr]:
    """The columns that Polars' JSON writer would not write as this format does, as it would."""
    for name, dtype in columns:
        if isinstance(dtype, pl.Object):
            raise DefinitionError(
                f"column {name!r} holds Python objects, which JSON cannot", hint="turn it into text first"
            )
    return [fields.written(pl.col(name), dtype).alias(name) for name, dtype in columns if fields.rewritten(dtype)]


def _widens(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Does a cast keep each value, as near as the wanted type comes to it, or else fail?"""
    if isinstance(given, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return given.time_zone is not None
    numbers = given.is_integer() and wanted.is_numeric()
    return given == wanted or given == pl.Null() or numbers or (given.is_float() and wanted == pl.Float64())
