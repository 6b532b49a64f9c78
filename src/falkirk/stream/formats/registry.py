"""What a format asks of a schema registry: a port, for a format does no I/O of its own.

`falkirk.connectors.registry.Registry` asks a real one; `fk.Registry` is that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema under an id. An id means one schema for ever."""

    text: str
    kind: str = "AVRO"
    """Its language, in the registry's words."""
    references: tuple[tuple[str, str], ...] = ()
    """The schemas of what it names and does not define, by what it names, each before those that name it."""


class SchemaRegistry(Protocol):
    """A registry.

    1. What cannot be answered is an error, never an answer: UnreachableError where the registry is away, which passes;
       ConfigError where it refuses, or is none.
    2. "There is no such schema" is the registry's own word.
    """

    def schemas(self, ids: Collection[int]) -> Mapping[int, Registered | None]:
        """What is registered under each id; None: nothing."""
        ...

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema, of this language, under a subject, put there if it is not. Raises ConfigError where the
        registry refuses it."""
        ...

    def registered(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema that is there. Raises ConfigError if it is not."""
        ...

    def check(self) -> None:
        """Raises UnreachableError or ConfigError if the registry cannot be asked."""
        ...
