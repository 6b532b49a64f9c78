"""Exchanges bring the rows of a key together. This is the batch form of an operator that needs several rows at once.

task of a piece or bucket                              task of a bucket
rows ──sent──▶ pile ──condensed──▶ parcels ──sort──▶ received ──▶ rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.circuit import Slice
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import Key

MOST = 200_000
"""Rows that wait in a pile before it is condensed, or sent."""


class Exchange(Protocol):
    """The exchange of one operator."""

    key: Key
    """Rows that must meet have equal bytes."""

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        """The part of the rows that is sent to the buckets of their keys. The schema does not depend on the rows. `port` is
        the number of the operator's input, for operators that need it. Raises UserCodeError."""
        ...

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """The sent rows as one frame. It may have fewer rows, if the receiver gets the same result. Raises UserCodeError."""
        ...

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        """The operator's result for everything that was sent to one bucket, in the order of places. No row is a
        retraction, and the rows fit into memory. Raises UserCodeError."""
        ...


def together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one schema as one contiguous frame."""
    return pl.concat(frames, rechunk=True) if len(frames) > 1 else frames[0]


class SendsRows:
    """An exchange of unchanged rows: it condenses nothing."""

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return together(frames)


class Pile:
    """Frames on their way through an exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.frames: list[pl.DataFrame] = []
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Add a frame."""
        self.frames.append(frame)
        self.rows += frame.height

    def condense(self) -> None:
        """Condense the pile as far as possible."""
        frame = self.exchange.condensed(self.frames)
        self.frames, self.rows = [frame], frame.height

    def take(self) -> pl.DataFrame:
        """Remove and return all rows, condensed."""
        self.condense()
        (frame,) = self.frames
        self.frames, self.rows = [], 0
        return frame


def piled(exchange: Exchange, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> pl.DataFrame:
    """What came to a bucket, condensed as it comes."""
    pile, most = Pile(exchange), MOST
    for _, frame in parcels:
        pile.add(frame)
        if pile.rows > most:
            pile.condense()
            most = max(MOST, 2 * pile.rows)
    return pile.take()


@dataclass(slots=True)
class BucketRun(StepRun):
    """The run of one bucket. Its rows do not know their records, but they know their pieces: origins are indexes into
    `places`."""

    topics: Sequence[str] = ()
    """By number of the source."""
    places: list[Place] = field(default_factory=list)

    def record(self, origin: int | None) -> tuple[Slice, int] | None:
        """Not known."""
        return None

    def address(self, origin: int) -> str:
        """The origin of a row; "" if it comes from several records."""
        place = self.places[origin]
        if place.level:
            return ""
        return f"topic {self.topics[place.number]}, partition {place.part}, from offset {place.start} on"
