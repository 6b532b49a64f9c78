"""JSON objects, one a record.

decode:  values ──join with newlines──> one read of the whole batch ──> convert text columns ──> frame
                                          └ refused: set the certain ones aside, halve the rest until each is found
encode:  frame ──> convert ──> one write of the whole batch, a row to a cell
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache, cached_property
from typing import Generic, Literal, get_args, overload

import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import DefinitionError
from falkirk.stream.formats import fields, ndjson
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.names import Names
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import schema_of, type_name

Extra = Literal["ignore", "refuse"]
Missing = Literal["null", "refuse"]


class Json(Generic[RowT_co]):
    """JSON objects in UTF-8, one for each record; columns are fields.

    >>> bids = Json({"auction": int, "price": int})
    >>> bids.decode([b'{"auction": 1, "price": 5}', b'{"price": 1.5}']).bad
    [(1, "field 'price': cannot read 1.5 as Int64")]
    >>> exact = Json({"auction": int, "price": int}, extra="refuse", missing="refuse")
    >>> exact.decode([b'{"auction": 1, "price": null}', b'{"price": 5}', b'{"auction": 1, "price": 5, "prize": 1}']).bad
    [(1, "field 'auction': it is missing"), (2, "field 'prize': the schema has none")]
    >>> Json().encode(pl.DataFrame({"auction": [1], "top": [None]}))
    [b'{"auction":1,"top":null}']

    A missing field is null, and a field that the schema lacks is ignored, unless `missing` and `extra` say otherwise.
    If a field occurs twice, the first counts. Types are strict: a record with a value that does not fit is bad.
    """

    @overload
    def __init__(
        self: Json[TypedRow], schema: type[TypedRow], *, extra: Extra = "ignore", missing: Missing = "null"
    ) -> None: ...
    @overload
    def __init__(
        self: Json[Row], schema: Untyped | None = None, *, extra: Extra = "ignore", missing: Missing = "null"
    ) -> None: ...
    def __init__(self, schema: SchemaLike | None = None, *, extra: Extra = "ignore", missing: Missing = "null") -> None:
        """`schema` is a dict of types, a dataclass or a TypedDict. Without one the format is only for sinks.

        With `extra="refuse"`, a record is bad if it has a field that the schema lacks; with `missing="refuse"`, if it
        lacks a field of the schema. A null is not missing. This holds at every level, and whichever columns the flow
        uses. Raises DefinitionError for other values, and for "refuse" without a schema.
        """
        _check("extra", extra, get_args(Extra), schema)
        _check("missing", missing, get_args(Missing), schema)
        self.schema = None if schema is None else schema_of(schema)
        self.extra, self.missing = extra, missing
        self._names: Names | None = None
        if self.schema is not None and "refuse" in (extra, missing):
            self._names = Names(self.schema, extra=extra == "refuse", missing=missing == "refuse")

    def __repr__(self) -> str:
        columns = [f"{name!r}: {type_name(dtype)}" for name, dtype in (self.schema or {}).items()]
        words = ["{" + ", ".join(columns) + "}"] if columns else []
        words += [f"extra={self.extra!r}"] if self.extra != "ignore" else []
        words += [f"missing={self.missing!r}"] if self.missing != "null" else []
        return f"Json({', '.join(words)})"

    def project(self, columns: Sequence[str]) -> Json:
        """The same format with only these columns, but at least one. `extra` and `missing` still compare all fields.

        Raises DefinitionError for a column that does not exist.

        >>> Json({"a": int, "b": str}).project(["b"])
        Json({'b': String})
        """
        schema = self._schema()
        if unknown := [c for c in columns if c not in schema]:
            raise DefinitionError(f"no column {unknown[0]!r} in {self!r}", hint=f"it has {', '.join(schema)}")
        names = [name for name in schema if name in columns] or list(schema)[:1]
        projected = copy(self)
        vars(projected).pop("_reader", None)
        projected.schema = pl.Schema({name: schema[name] for name in names})
        return projected

    def decode(self, values: Sequence[bytes | None]) -> Decoded[RowT_co]:
        """Rows from JSON objects, and for each bad record its index and the reason. Raises DefinitionError without a
        schema.

        >>> Json({"a": int}).decode([b'{"a":1}', None, b'{"a":}']).bad
        [(1, 'null value'), (2, 'not JSON: Expecting value at character 5')]
        """
        decoded = self._reader.read(values)
        return decoded if self._names is None else without(decoded, _flaws(self._names, values, decoded))

    def encode(self, frame: pl.DataFrame) -> list[bytes]:
        """A JSON object for each row, with fields in the order of columns. Nulls are written; NaN and infinity become
        null.

        Raises DefinitionError if the frame's columns are not the schema's, or JSON cannot hold them.

        >>> Json().encode(pl.DataFrame({"id": [7], "share": [float("nan")]}))
        [b'{"id":7,"share":null}']
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
            raise DefinitionError(
                f"a number does not fit {self!r}: {in_brief(error)}", hint="name a wider type"
            ) from None


def _check(option: str, given: str, known: Sequence[str], schema: SchemaLike | None) -> None:
    if given not in known:
        raise DefinitionError(f"{option}={given!r} is none of {', '.join(map(repr, known))}", where="fk.Json")
    if given == "refuse" and schema is None:
        raise DefinitionError(
            f"{option}='refuse' compares a record's fields with a schema, and there is none",
            where="fk.Json",
            hint='name the columns: fk.Json({"id": fk.Int64})',
        )


def _flaws(names: Names, values: Sequence[bytes | None], decoded: Decoded) -> dict[int, str]:
    """By number of record, why those are bad that were good so far."""
    bad = {i for i, _ in decoded.bad}
    return {
        i: flaw
        for i, value in enumerate(values)
        if i not in bad and value is not None and (flaw := names.flaw(value)) is not None
    }


def without(decoded: Decoded, flaws: dict[int, str]) -> Decoded:
    """What was decoded, less those records."""
    if not flaws:
        return decoded
    bad = {i for i, _ in decoded.bad}
    good = (i for i in range(decoded.frame.height + len(bad)) if i not in bad)
    kept = pl.Series([i not in flaws for i in good], dtype=pl.Boolean)
    return Decoded(decoded.frame.filter(kept).rechunk(), sorted([*decoded.bad, *flaws.items()]))


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
