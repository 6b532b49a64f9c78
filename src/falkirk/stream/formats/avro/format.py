"""Avro records, one a record of the topic: plain, or as a schema registry's clients write them.

    plain         datum
    registered    0 · id of the writer's schema (4 bytes, big-endian) · datum

decode:  values ──by writer's schema──> all of them at once, column by column ──> frame
encode:  frame ──> rows of scalars all at once; others row by row, by fastavro
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeGuard, overload

import numpy as np
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro.cursor import Cursor, Rows
from falkirk.stream.formats.avro.nodes import Record
from falkirk.stream.formats.avro.resolve import Unresolvable, resolve
from falkirk.stream.formats.avro.schemas import AvroSchema, WantedField, avro_of, checked, schema_from, wanted_as
from falkirk.stream.formats.avro.write import Writer
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.registering import HEAD, SUBJECT, Registering
from falkirk.stream.formats.registry import Registered, SchemaRegistry
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import schema_of, type_name

_LARGEST = 1 << 30
"""Bytes that are read at once: a view says in 31 bits where its text begins."""


class Avro(Registering, Generic[RowT_co]):
    """Avro records, one for each record of the topic; columns are fields.

    >>> fields = [{"name": "auction", "type": "long"}, {"name": "by", "type": "string"}]
    >>> bids = Avro({"type": "record", "name": "Bid", "fields": fields})
    >>> bids.decode([b"\\x0e\\x06ann", b"\\x0e\\x08ann", None]).bad
    [(1, "field 'by': ends too early"), (2, 'null value')]
    >>> bids.encode(pl.DataFrame({"auction": [7], "by": ["ann"]}))
    [b'\\x0e\\x06ann']
    """

    kind = "AVRO"

    @overload
    def __init__(
        self: Avro[TypedRow],
        schema: type[TypedRow],
        *,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        name: str | None = None,
        register: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: Avro[Row],
        schema: str | Path | Untyped | None = None,
        *,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        name: str | None = None,
        register: bool = True,
    ) -> None: ...
    def __init__(
        self,
        schema: str | Path | SchemaLike | None = None,
        *,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        name: str | None = None,
        register: bool = True,
    ) -> None:
        """`schema` is an Avro schema: the path of an .avsc file, its text, or the dict in it. With a registry it may
        also be columns with types, as for `fk.Json`; a field that the writer's schema lacks is then null. Without a
        schema the format is only for sinks: their columns make the schema.

        A sink registers its schema under `subject`, in which {topic} and {record} stand for their names. `name`
        is the record's name, if only columns are given. With `register=False` the schema must be registered already.
        Raises DefinitionError.
        """
        super().__init__(registry, subject, register)
        self.name = name
        self._given: AvroSchema | None = None
        self._columns: Mapping[str, WantedField] | None = None
        if schema is not None and _is_columns(schema):
            if registry is None:
                raise DefinitionError(
                    "columns do not say how plain Avro was written",
                    hint='give the schema: fk.Avro("bid.avsc"), or registry=fk.Registry("http://…")',
                )
            self._columns = {n: WantedField(wanted_as(dtype)) for n, dtype in schema_of(schema).items()}
        elif schema is not None:
            self._given = schema_from(schema)
            self._columns = self._given.columns
            self._check_plain()
        elif registry is None:
            raise DefinitionError("Avro needs a schema, or a registry", hint='fk.Avro("bid.avsc")')

    def __repr__(self) -> str:
        if self._given is not None:
            words = [repr(json.dumps(json.loads(self._given.text)))]
        else:
            words = (
                ["{" + ", ".join(f"{n!r}: {type_name(d)}" for n, d in self.schema.items()) + "}"] if self.schema else []
            )
        words += [f"registry={self.registry!r}"] if self.registry else []
        words += [f"subject={self.subject!r}"] if self.subject != SUBJECT else []
        return f"Avro({', '.join(words)})"

    @property
    def schema(self) -> pl.Schema | None:
        """The columns; None when the format is only for sinks."""
        return None if self._columns is None else pl.Schema({n: f.wanted.dtype for n, f in self._columns.items()})

    def project(self, columns: Sequence[str]) -> Avro:
        """The same format with only these columns, but at least one. Raises DefinitionError for a column that does not
        exist.

        >>> fields = [{"name": "auction", "type": "long"}, {"name": "by", "type": "string"}]
        >>> Avro({"type": "record", "name": "Bid", "fields": fields}).project(["by"]).schema.names()
        ['by']
        """
        known = self._known()
        if unknown := [c for c in columns if c not in known]:
            raise DefinitionError(f"no column {unknown[0]!r} in {self!r}", hint=f"it has {', '.join(known)}")
        names = [name for name in known if name in columns] or list(known)[:1]
        return self._with(_columns={name: known[name] for name in names})

    def for_sink(self, topic: str, columns: pl.Schema) -> Avro:
        """The format that writes these columns to this topic. Raises DefinitionError for columns that Avro cannot
        hold.

        >>> from falkirk.connectors.registry import Registry
        >>> totals = Avro(registry=Registry("http://registry:8081"))
        >>> totals.for_sink("totals", pl.Schema({"n": pl.Int64})).schema.names()
        ['n']
        """
        if self._given is not None:
            return self._with(_topic=topic)
        name = self.name or re.sub(r"\W|^(?=\d)", "_", topic, flags=re.ASCII)
        written = schema_from(avro_of(self.schema or columns, name))
        return self._with(_topic=topic, _given=written, _columns=written.columns)

    def decode(self, values: Sequence[bytes | None]) -> Decoded[RowT_co]:
        """Rows from records, and for each bad record its index and the reason.

        Raises DefinitionError without a schema. With a registry, raises UnreachableError if it does not answer, and
        ConfigError if it refuses.

        >>> bids = Avro({"type": "record", "name": "Bid", "fields": [{"name": "auction", "type": "long"}]})
        >>> bids.decode([b"\\x0e", None]).bad
        [(1, 'null value')]
        """
        there = [i for i, value in enumerate(values) if value is not None] if None in values else None
        present: Sequence[bytes] = values if there is None else [values[i] for i in there]  # type: ignore[assignment, misc]
        if len(values) > 1 and sum(map(len, present)) > _LARGEST:
            return self._halved(values)
        cursor = Cursor(present)
        parts = [(rows, reader.frame(cursor, rows)) for rows, reader in self._groups(cursor)]
        cursor.finish()
        frame = _in_order(parts) if parts else pl.DataFrame(schema=self.schema)
        if cursor.bad:
            read = np.sort(np.concatenate([rows for rows, _ in parts])) if parts else cursor.all[:0]
            frame = frame.filter(pl.Series([row not in cursor.bad for row in read.tolist()], dtype=pl.Boolean))
        frame = frame if set(frame.n_chunks("all")) <= {1} else frame.rechunk()
        if there is None:
            return Decoded(frame, sorted(cursor.bad.items()))
        bad = {there[row]: why for row, why in cursor.bad.items()}
        bad |= {i: "null value" for i, value in enumerate(values) if value is None}
        return Decoded(frame, sorted(bad.items()))

    def encode(self, frame: pl.DataFrame) -> list[bytes]:
        """The record of each row. Raises DefinitionError if the columns, their types or their nulls do not fit the
        schema.

        >>> bids = Avro({"type": "record", "name": "Bid", "fields": [{"name": "auction", "type": "long"}]})
        >>> bids.encode(pl.DataFrame({"auction": [7]}))
        [b'\\x0e']
        """
        if self._given is None:
            raise DefinitionError("columns become Avro where they are written to a topic: in a sink")
        return self._writer.write(frame, self._head() if frame.height else b"")

    def _check_plain(self) -> None:
        """Raises DefinitionError for a schema that cannot be read by, where it is the writers' too."""
        if self.registry is None and self._given is not None:
            try:
                self._readers[0] = resolve(self._given, self._known())
            except Unresolvable as error:
                raise DefinitionError(f"the Avro schema cannot be read by: {error}") from None

    def _known(self) -> Mapping[str, WantedField]:
        if self._columns is None:
            raise DefinitionError(
                "an Avro format without a schema cannot decode", hint="name the columns, or give the reader's schema"
            )
        return self._columns

    @cached_property
    def _writer(self) -> Writer:
        assert self._given is not None
        return Writer(self._given)

    def _registered_as(self) -> tuple[str, str]:
        assert self._given is not None
        return self._given.root["name"], self._given.text

    def _groups(self, cursor: Cursor) -> Iterator[tuple[Rows, Record]]:
        """The datums by the schema that they were written by. Those of which it is not known are bad."""
        if self.registry is None:
            if 0 not in self._readers:
                self._check_plain()
            groups = {0: cursor.all}
        else:
            groups = _by_id(cursor)
            self._meet(groups)
        for number, rows in groups.items():
            reader = self._readers.get(number, f"the registry has no schema {number}")
            if isinstance(reader, str):
                cursor.fail(rows, np.ones(len(rows), np.bool_), "", reader)
            else:
                yield rows, reader

    def _meet(self, ids: Collection[int]) -> None:
        """Learn how to read what was written by schemas that are new here."""
        new = [number for number in ids if number not in self._readers]
        if new and self.registry is not None:
            columns = self._known()
            for number, found in self.registry.schemas(new).items():
                if found is not None:
                    self._readers[number] = _reader(number, found, columns)

    def _halved(self, values: Sequence[bytes | None]) -> Decoded:
        middle = len(values) // 2
        first, second = self.decode(values[:middle]), self.decode(values[middle:])
        bad = first.bad + [(i + middle, why) for i, why in second.bad]
        return Decoded(pl.concat([first.frame, second.frame], rechunk=True), bad)


def _is_columns(schema: Any) -> TypeGuard[SchemaLike]:
    """Whether it describes columns, rather than being Avro's."""
    return not isinstance(schema, str | Path) and not (
        isinstance(schema, Mapping) and isinstance(schema.get("type"), str)
    )


def _by_id(cursor: Cursor) -> dict[int, Rows]:
    """The datums behind their heads, by the id that it names. Those without a head are bad."""
    sizes = cursor.end - cursor.pos
    cursor.fail(cursor.all, sizes < HEAD, "", lambda i: f"{sizes[i]} bytes: too few for a magic byte and a schema's id")
    rows = cursor.all[sizes >= HEAD]
    magic = cursor.words(rows, 1, "")
    wrong = magic != 0
    cursor.fail(rows, wrong, "", lambda i: f"begins with byte {magic[i]}, where registered Avro has 0")
    rows = rows[~wrong]
    ids = cursor.words(rows, 4, "").astype(np.uint32).byteswap()
    found = np.unique(ids).tolist()
    return {number: rows if len(found) == 1 else rows[ids == number] for number in found}


def _reader(number: int, found: Registered, columns: Mapping[str, WantedField]) -> Record | str:
    """How to read what was written by a registered schema, or why it cannot be."""
    if found.kind != "AVRO":
        return f"schema {number} is {found.kind}, not Avro"
    try:
        return resolve(checked(AvroSchema(found.text, tuple(text for _, text in found.references))), columns)
    except DefinitionError as error:
        return f"schema {number}: {error.what}"
    except Unresolvable as error:
        return f"schema {number}: {error}"


def _in_order(parts: Sequence[tuple[Rows, pl.DataFrame]]) -> pl.DataFrame:
    """The frames' rows by their numbers."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
    return pl.concat([frame for _, frame in parts])[order]
