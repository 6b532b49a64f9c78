"""Rows as datums of a schema.

What a column is written as is checked by types, before any row is: an empty frame of the same columns fails as well.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro import flat
from falkirk.stream.formats.avro.schemas import NO_DEFAULT, AvroSchema, Wanted, fastavro, literal
from falkirk.stream.formats.types import fits, instance, type_name


class Writer:
    """Writes frames by one schema.

    >>> from falkirk.stream.formats.avro.schemas import schema_from
    >>> schema = schema_from({"type": "record", "name": "Bid", "fields": [{"name": "price", "type": "long"}]})
    >>> Writer(schema).write(pl.DataFrame({"price": [1, 64]}))
    [b'\\x02', b'\\x80\\x01']
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._columns = schema.columns
        self._flat = flat.is_flat(schema)
        self._others = [f["name"] for f in schema.root["fields"] if f["name"] not in schema.columns]
        self._absent = [
            pl.Series(name, [literal(field.default, field.wanted)], dtype=field.wanted.dtype)
            for name, field in self._columns.items()
            if field.default is not NO_DEFAULT
        ]
        self._defaults = {f["name"] for f in schema.root["fields"] if "default" in f}

    def write(self, frame: pl.DataFrame, head: bytes = b"") -> list[bytes]:
        """A datum a row, after `head`. Raises DefinitionError where columns, types or nulls are not the schema's."""
        frame = self._fitted(frame)
        if self._flat and set(frame.columns) == set(self._columns):
            return flat.write(self._schema, frame, head)
        write, parsed = fastavro().schemaless_writer, self._schema.root
        out, datums = io.BytesIO(), []
        frame = frame.cast({name: _numbers(dtype) for name, dtype in frame.schema.items()})
        fixes = [(name, fix) for name in frame.columns if (fix := _fix(self._columns[name].wanted)) is not None]
        for row in frame.iter_rows(named=True):
            out.seek(0)
            out.truncate()
            out.write(head)
            try:
                for name, fix in fixes:
                    row[name] = fix(row[name])
                write(out, parsed, row)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise DefinitionError(
                    f"a row does not fit the Avro schema: {in_brief(error)}",
                    where=f"row {str(row)[:200]}",
                    hint="change or filter it before the sink",
                ) from None
            datums.append(out.getvalue())
        return datums

    def _fitted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The schema's columns, of its types, without nulls where it has none."""
        if unknown := [c for c in frame.columns if c not in self._columns]:
            what = "is of a type that is not a column" if unknown[0] in self._others else "is not in the Avro schema"
            raise DefinitionError(
                f"column {unknown[0]!r} {what}", hint=f"select before the sink: {', '.join(self._columns)}"
            )
        fields = [f["name"] for f in self._schema.root["fields"]]
        if missing := [name for name in fields if name not in frame.columns and name not in self._defaults]:
            raise DefinitionError(
                f"no column for the Avro schema's field {missing[0]!r}, which has no default",
                hint=f"there are: {', '.join(frame.columns)}",
            )
        for name, dtype in frame.schema.items():
            wanted = self._columns[name].wanted
            if not fits(dtype, wanted.dtype):
                raise DefinitionError(
                    f"column {name!r} is {type_name(dtype)}, and the Avro schema's field {type_name(wanted.dtype)}",
                    hint="cast it before the sink",
                )
        try:
            frame = frame.cast({name: self._columns[name].wanted.dtype for name in frame.columns})
        except pl.exceptions.InvalidOperationError as error:
            raise DefinitionError(
                f"a value does not fit the Avro schema: {in_brief(error)}", hint="name a wider type"
            ) from None
        for column in frame.get_columns():
            _check_nulls(column, self._columns[column.name].wanted, column.name)
        absent = [default for default in self._absent if default.name not in frame.columns]
        return frame.with_columns(default.new_from_index(0, frame.height) for default in absent)


def _numbers(dtype: pl.DataType) -> pl.DataType:
    """The type, with times as the numbers that are written: Python has fewer years."""
    if isinstance(dtype, pl.List):
        return pl.List(_numbers(instance(dtype.inner)))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({f.name: _numbers(instance(f.dtype)) for f in dtype.fields})
    return pl.Int64() if isinstance(dtype, pl.Datetime) else pl.Int32() if dtype == pl.Date() else dtype


def _check_nulls(column: pl.Series, wanted: Wanted, where: str) -> None:
    """Raises DefinitionError for a null where the schema has none."""
    if not wanted.nullable and column.null_count():
        raise DefinitionError(
            f"column {where!r} is null, and the Avro schema allows no null there",
            hint='let its type be ["null", …], or filter the rows',
        )
    if wanted.item is not None:
        _check_nulls(column.drop_nulls().explode(keep_nulls=False, empty_as_null=False), wanted.item, f"{where}[]")
    elif wanted.fields:
        for name, each in wanted.fields.items():
            _check_nulls(column.drop_nulls().struct.field(name), each.wanted, f"{where}.{name}")


def _fix(wanted: Wanted) -> Callable[[Any], Any] | None:
    """What makes of a column's value what fastavro writes; None: nothing need be done."""
    if wanted.item is None and not wanted.fields:
        return None
    return lambda value: _plain(value, wanted)


def _plain(value: Any, wanted: Wanted) -> Any:
    if value is None:
        return None
    if wanted.item is not None:
        items = [_plain(each, wanted.item) for each in value]
        if not wanted.is_map:
            return items
        pairs = {pair["key"]: pair["value"] for pair in items}
        if len(pairs) < len(items):
            raise ValueError("a map has each key once")
        return pairs
    return {name: _plain(value[name], each.wanted) for name, each in wanted.fields.items()} if wanted.fields else value
