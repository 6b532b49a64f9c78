"""What formats with a schema registry have in common: a sink's schema is registered, and its id is before each value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import polars as pl

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream.formats.registry import SchemaRegistry

HEAD = 5
"""Bytes before what a format writes: 0, and the id of the writer's schema, big-endian."""
SUBJECT = "{topic}-value"


class Registering(ABC):
    """A format that may have a registry."""

    kind: ClassVar[str]
    """The language of its schemas, in the registry's words."""

    def __init__(self, registry: SchemaRegistry | None, subject: str, register: bool) -> None:
        """Raises DefinitionError for a subject that is not a valid pattern, and for an address in place of a registry."""
        if isinstance(registry, str):
            raise DefinitionError(
                "registry= is an address, not a registry", where=user_line(), hint='registry=fk.Registry("http://…")'
            )
        self.registry, self.subject, self.registers = registry, subject, register
        self._topic = ""
        self._id: int | None = None
        self._readers: dict[Any, Any] = {}
        self.subject_of("", "")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_readers": {}}

    @property
    def writes(self) -> bool:
        """Whether it is a sink's."""
        return bool(self._topic)

    @abstractmethod
    def for_sink(self, topic: str, columns: pl.Schema) -> Self:
        """The format that writes these columns to this topic. Raises DefinitionError where they do not fit."""

    def begin(self) -> None:
        """Ask the registry, if there is one: a sink registers its schema; a source checks that the registry answers.

        Raises ConfigError if the registry refuses, UnreachableError if it does not answer.

        >>> from falkirk.stream.formats import Avro
        >>> Avro({"type": "record", "name": "Bid", "fields": [{"name": "auction", "type": "long"}]}).begin()
        """
        if self.registry is not None and self.writes:
            self._id = self._written_id()
        elif self.registry is not None:
            self.registry.check()

    def subject_of(self, topic: str, record: str) -> str:
        """The subject under which a sink's schema is registered. `record` is the name of its Avro record or Protobuf
        message.

        >>> from falkirk.stream.formats import Avro
        >>> bids = Avro({"type": "record", "name": "Bid", "fields": [{"name": "auction", "type": "long"}]})
        >>> bids.subject_of("bids", "Bid")
        'bids-value'
        """
        try:
            return self.subject.format(topic=topic, record=record)
        except (AttributeError, IndexError, KeyError, ValueError):
            raise DefinitionError(
                f"subject={self.subject!r} is not a valid pattern",
                hint='it may hold {topic} and {record}, as "{topic}-value" does',
            ) from None

    @abstractmethod
    def _registered_as(self) -> tuple[str, str]:
        """The name of the record, or message, that is written, and its schema's text."""

    def _head(self) -> bytes:
        """What stands before each value that is written; nothing without a registry."""
        if self.registry is None:
            return b""
        if self._id is None:
            self._id = self._written_id()
        return b"\0" + self._id.to_bytes(4, "big")

    def _written_id(self) -> int:
        assert self.registry is not None
        if not self.writes:
            raise DefinitionError("a registered schema belongs to a topic", hint="write it in a sink")
        name, text = self._registered_as()
        ask = self.registry.register if self.registers else self.registry.registered
        return ask(self.subject_of(self._topic, name), text, self.kind)

    def _with(self, **changed: Any) -> Self:
        """Another one. What this one has found out is not its."""
        other = copy(self)
        vars(other).update(changed, _readers={}, _id=None)
        vars(other).pop("_writer", None)
        return other
