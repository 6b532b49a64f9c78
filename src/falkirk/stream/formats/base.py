"""What a format is: the bytes of records on one side, a frame of typed columns on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol

import polars as pl

from falkirk.stream.formats.rows import RowT_co


@dataclass(frozen=True, slots=True)
class Decoded(Generic[RowT_co]):
    """A batch, decoded: a row for each good record, in order, and why the others have none.

    frame.height + len(bad) = number of records
    """

    frame: pl.DataFrame
    bad: list[tuple[int, str]] = field(default_factory=list)
    """(index of the record in the batch, reason), in the order of indexes."""


class Format(Protocol[RowT_co]):
    """How the values of a topic's records are written.

    1. What becomes of a record depends on the record alone: decode(a + b) = decode(a) + decode(b). Steps cut a topic
       wherever they please, and a record that was good in one batch and bad in another would make output depend on it.
    2. decode(encode(frame)) = frame, but for what the format says that it changes.
    """

    @property
    def schema(self) -> pl.Schema | None:
        """The columns that decoding gives; None when the format is only for sinks."""
        ...

    def decode(self, values: Sequence[bytes | None]) -> Decoded[RowT_co]:
        """Rows from the values of records. A value of None is a bad record."""
        ...

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes | None]:
        """One value a row, in order. Raises DefinitionError when the columns do not fit the format."""
        ...

    def project(self, columns: Sequence[str]) -> Format:
        """The format that decodes these columns alone, in the schema's order. What is not decoded is not checked."""
        ...
