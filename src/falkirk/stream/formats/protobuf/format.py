"""Protobuf messages, one a record: plain, or as a schema registry's clients write them.

    plain         message
    registered    0 · id of the writer's schema (4 bytes, big-endian) · which message of it · message

decode:  values ──by writer's schema──> messages, one by one ──> columns ──> frame
encode:  frame ──> messages, row by row
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, overload

import numpy as np
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.protobuf.columns import Column, columns_of, wanted_as
from falkirk.stream.formats.protobuf.read import Reader, Unresolvable
from falkirk.stream.formats.protobuf.schemas import ProtoSchema, registered, schema_from
from falkirk.stream.formats.protobuf.write import Writer
from falkirk.stream.formats.registering import HEAD, SUBJECT, Registering
from falkirk.stream.formats.registry import Registered, SchemaRegistry
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import schema_of, type_name

_Writer = tuple[int, tuple[int, ...]]
"""The id of a schema, and which of its messages."""
_PLAIN: _Writer = (0, ())
_DEEPEST = 100
"""Messages within messages, at most: what the library reads."""


class IsMessage(Protocol):
    """A generated class."""

    DESCRIPTOR: ClassVar[Any]


class Protobuf(Registering, Generic[RowT_co]):
    """Protobuf messages, one for each record; columns are fields.

    >>> bids = Protobuf('syntax = "proto3"; message Bid { int64 auction = 1; optional string by = 2; }')
    >>> bids.decode([b"\\x08\\x07\\x12\\x03ann", b"\\x12\\x03", None]).bad
    [(1, 'not a Bid: Wire format was corrupt'), (2, 'null value')]
    >>> bids.encode(pl.DataFrame({"auction": [7], "by": ["ann"]}))
    [b'\\x08\\x07\\x12\\x03ann']
    """

    kind = "PROTOBUF"

    @overload
    def __init__(
        self: Protobuf[TypedRow],
        schema: type[TypedRow],
        *,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        register: bool = True,
    ) -> None: ...
    @overload
    def __init__(
        self: Protobuf[Row],
        schema: type[IsMessage] | str | Path | Untyped | None = None,
        *,
        message: str | None = None,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        register: bool = True,
    ) -> None: ...
    def __init__(
        self,
        schema: type[IsMessage] | str | Path | SchemaLike | None = None,
        *,
        message: str | None = None,
        registry: SchemaRegistry | None = None,
        subject: str = SUBJECT,
        register: bool = True,
    ) -> None:
        """`schema` is a generated class, the path of a .proto file, or its text; `message` names one of several
        messages in it. With a registry it may also be columns with types, as for `fk.Json`: fields are then found by
        name, one that the writer's schema lacks is null, and the format is only for sources.

        A sink registers its schema under `subject`, in which {topic} and {record} stand for the names of the topic and
        the message. With `register=False` the schema must be registered already. Raises DefinitionError.
        """
        super().__init__(registry, subject, register)
        self._given: ProtoSchema | None = None
        if schema is None:
            raise DefinitionError("Protobuf needs a schema", hint='fk.Protobuf("bid.proto"), or a generated class')
        if isinstance(schema, Mapping) or (isinstance(schema, type) and not hasattr(schema, "DESCRIPTOR")):
            if registry is None:
                raise DefinitionError(
                    "columns do not say how plain Protobuf was written",
                    hint='give the schema: fk.Protobuf("bid.proto"), or registry=fk.Registry("http://…")',
                )
            self._columns: Mapping[str, Column] = {n: wanted_as(dtype) for n, dtype in schema_of(schema).items()}
        else:
            self._given = schema_from(schema, message)
            self._columns = columns_of(self._given.descriptor)
            if not self._columns:
                raise DefinitionError(f"message {self._given.message} has no field that can be a column")

    def __repr__(self) -> str:
        words = [repr(self._given)]
        if self._given is None:
            words = ["{" + ", ".join(f"{n!r}: {type_name(d)}" for n, d in self.schema.items()) + "}"]
        words += [f"registry={self.registry!r}"] if self.registry else []
        words += [f"subject={self.subject!r}"] if self.subject != SUBJECT else []
        return f"Protobuf({', '.join(words)})"

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return pl.Schema({name: column.dtype for name, column in self._columns.items()})

    def project(self, columns: Sequence[str]) -> Protobuf:
        """The same format with only these columns, but at least one. Raises DefinitionError for a column that does not
        exist.

        >>> bids = Protobuf('syntax = "proto3"; message Bid { int64 auction = 1; string by = 2; }')
        >>> bids.project(["by"]).schema.names()
        ['by']
        """
        known = self._columns
        if unknown := [c for c in columns if c not in known]:
            raise DefinitionError(f"no column {unknown[0]!r} in {self!r}", hint=f"it has {', '.join(known)}")
        names = [name for name in known if name in columns] or list(known)[:1]
        return self._with(_columns={name: known[name] for name in names})

    def for_sink(self, topic: str, columns: pl.Schema) -> Protobuf:
        """The format that writes to this topic. Raises DefinitionError if only columns are given: they have no field
        numbers.

        >>> bids = Protobuf('syntax = "proto3"; message Bid { int64 auction = 1; }')
        >>> bids.for_sink("bids", bids.schema).writes
        True
        """
        if self._given is None:
            raise DefinitionError(
                "columns have no numbers, by which Protobuf tells fields apart: they can be read, and not written",
                hint='give a .proto, or a generated class: fk.Protobuf("total.proto", registry=…)',
            )
        if self.registry is not None and self._given.imports:
            raise DefinitionError(
                f"the schema imports {self._given.imports[0]}, which would have to be registered apart",
                hint="define all of its messages in one file",
            )
        return self._with(_topic=topic)

    def decode(self, values: Sequence[bytes | None]) -> Decoded[RowT_co]:
        """Rows from messages, and for each bad record its index and the reason.

        With a registry, raises UnreachableError if it does not answer, and ConfigError if it refuses.

        >>> bids = Protobuf('syntax = "proto3"; message Bid { int64 auction = 1; }')
        >>> bids.decode([b"\\x08\\x07", None]).bad
        [(1, 'null value')]
        """
        bad: dict[int, str] = {}
        frames, rows = [pl.DataFrame(schema=self.schema)], list[int]()
        for reader, places, messages in self._groups(values, bad):
            wrong: dict[int, str] = {}
            frame = reader.read(messages, wrong)
            if wrong:
                bad |= {places[i]: why for i, why in wrong.items()}
                frame = frame.filter(pl.Series([i not in wrong for i in range(len(places))], dtype=pl.Boolean))
                places = [place for i, place in enumerate(places) if i not in wrong]
            frames.append(frame)
            rows += places
        frame = pl.concat(frames, rechunk=True)
        if len(frames) > 2:
            frame = frame[np.argsort(rows, kind="stable")].rechunk()
        return Decoded(frame, sorted(bad.items()))

    def encode(self, frame: pl.DataFrame) -> list[bytes]:
        """The message of each row. Raises DefinitionError if the columns, their types or their nulls do not fit the
        message.

        >>> bids = Protobuf('syntax = "proto3"; message Bid { int64 auction = 1; }')
        >>> bids.encode(pl.DataFrame({"auction": [7]}))
        [b'\\x08\\x07']
        """
        if self._given is None:
            raise DefinitionError("columns alone are not written as Protobuf", hint="give the schema")
        head = self._head() + _numbered(self._given.path) if self.registry is not None and frame.height else b""
        return self._writer.write(frame, head)

    @cached_property
    def _writer(self) -> Writer:
        assert self._given is not None
        return Writer(self._given)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_writer"}

    def _registered_as(self) -> tuple[str, str]:
        assert self._given is not None
        return self._given.message, self._given.text

    def _groups(
        self, values: Sequence[bytes | None], bad: dict[int, str]
    ) -> Iterator[tuple[Reader, list[int], list[bytes]]]:
        """The messages by the schema that they were written by, with their numbers. Others are bad."""
        bad |= {i: "null value" for i, value in enumerate(values) if value is None}
        groups: dict[_Writer, tuple[list[int], list[bytes]]] = {}
        if self.registry is None and len(bad) < len(values):
            places = [i for i, value in enumerate(values) if value is not None]
            groups[_PLAIN] = (places, [value for value in values if value is not None])
        for i, value in enumerate(values if self.registry is not None else ()):
            if value is not None:
                try:
                    writer, start = _writer_of(value)
                except ValueError as error:
                    bad[i] = str(error)
                    continue
                places, messages = groups.setdefault(writer, ([], []))
                places.append(i)
                messages.append(value[start:])
        for writer, reader in self._met(groups).items():
            places, messages = groups[writer]
            if isinstance(reader, str):
                bad |= dict.fromkeys(places, reader)
            else:
                yield reader, places, messages

    def _met(self, writers: Collection[_Writer]) -> Mapping[_Writer, Reader | str]:
        """How to read what each wrote, or why it cannot be read. That alone is not kept, for records can name any writer."""
        known: dict[_Writer, Reader] = self._readers
        if self.registry is None:
            if not known:
                assert self._given is not None
                known[_PLAIN] = Reader(self._given, self._columns)
            return {writer: known[writer] for writer in writers}
        found: dict[_Writer, Reader | str] = {writer: known[writer] for writer in writers if writer in known}
        new = [writer for writer in writers if writer not in known]
        schemas = self.registry.schemas({number for number, _ in new}) if new else {}
        for writer in new:
            schema = schemas[writer[0]]
            found[writer] = (
                f"the registry has no schema {writer[0]}" if schema is None else _reader(writer, schema, self._columns)
            )
        known |= {writer: reader for writer, reader in found.items() if isinstance(reader, Reader)}
        return found


def _reader(writer: _Writer, found: Registered, columns: Mapping[str, Column]) -> Reader | str:
    """How to read what was written by a registered schema, or why it cannot be."""
    number, path = writer
    if found.kind != Protobuf.kind:
        return f"schema {number} is {found.kind}, not Protobuf"
    try:
        return Reader(registered(found, path), columns)
    except DefinitionError as error:
        return f"schema {number}: {error.what}"
    except Unresolvable as error:
        return f"schema {number}: {error}"


def _numbered(path: Sequence[int]) -> bytes:
    """Which message of a file, as clients of the registry write it: how many numbers, and these, zigzag.

    >>> _numbered((0,)), _numbered((2, 70))
    (b'\\x00', b'\\x04\\x04\\x8c\\x01')
    """
    return b"\0" if tuple(path) == (0,) else b"".join(map(_varint, (len(path), *path)))


def _varint(number: int) -> bytes:
    found, rest = [], number << 1
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _writer_of(value: bytes) -> tuple[_Writer, int]:
    """Which message of which schema a record is of, and where it begins. Raises ValueError where that is not said.

    >>> _writer_of(b"\\0\\0\\0\\0\\7\\0rest"), _writer_of(b"\\0\\0\\0\\0\\7\\x04\\x04\\x8c\\x01rest")
    (((7, (0,)), 6), ((7, (2, 70)), 9))
    """
    if len(value) <= HEAD:
        raise ValueError(f"{len(value)} bytes: too few for a magic byte, a schema's id and a message's number")
    if value[0] != 0:
        raise ValueError(f"begins with byte {value[0]}, where registered Protobuf has 0")
    number = int.from_bytes(value[1:HEAD], "big")
    if value[HEAD] == 0:
        return (number, (0,)), HEAD + 1
    count, at = _number_at(value, HEAD)
    if count > _DEEPEST:
        raise ValueError(f"names a message {count} deep")
    path = []
    for _ in range(count):
        which, at = _number_at(value, at)
        path.append(which)
    return (number, tuple(path)), at


def _number_at(value: bytes, at: int) -> tuple[int, int]:
    """A number that is not negative, zigzag, and where it ends."""
    number = shift = 0
    for end in range(at, min(at + 5, len(value))):
        number |= (value[end] & 0x7F) << shift
        shift += 7
        if value[end] < 0x80:
            if number & 1:
                raise ValueError("names its message by a negative number")
            return number >> 1, end + 1
    raise ValueError("ends within the number of its message")
