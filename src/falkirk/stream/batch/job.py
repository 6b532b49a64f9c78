"""One epoch's work, cut into tasks that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from falkirk.stream.batch.parcels import Piece
from falkirk.stream.formats import Format
from falkirk.stream.operators import Operator, Source
from falkirk.stream.records import Records


@dataclass(frozen=True, eq=False)
class Job:
    """What each task of an epoch runs. For one division, pieces of one size and one clock, its results are the same bytes,
    on however many cores and in whatever order tasks run."""

    app: str
    stage: str
    operators: tuple[Operator, ...]
    sources: tuple[tuple[Source, Format], ...]
    dead_letters: str
    bury_from: Mapping[tuple[str, int], int]
    clock: int
    """Milliseconds."""
    buckets: int
    result_partitions: int

    @property
    def levels(self) -> int:
        """How often rows are brought together by key on the longest way to a sink."""
        raise NotImplementedError

    def head(self, piece: Piece, chunks: Iterator[Records]) -> Iterator[pl.DataFrame]:
        """What becomes of a piece's records, which come in the order of offsets: frames of PARCELS. Raises UserCodeError,
        or SourceError."""
        raise NotImplementedError

    def level(self, n: int, parcels: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """What becomes of the parcels of one Spark partition, sorted, from level `n` on; frames may be cut anywhere. Rows
        of later levels pass through. Raises UserCodeError."""
        raise NotImplementedError
