"""What brings the rows of a key together: the batch form of an operator that looks at more rows than one.

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
    """One operator's."""

    key: Key
    """Rows that must meet have equal bytes."""

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        """What of the rows goes to the buckets of their keys; one schema, whatever the rows. `port` is the number of the
        operator's input, where that makes a difference. Raises UserCodeError."""
        ...

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """What was sent as one frame, and in fewer rows where that is the same to the receiver. Raises UserCodeError."""
        ...

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        """What the operator makes of all that was sent to one bucket, in the order of places: rows that only come, in a
        number that memory can hold. Raises UserCodeError."""
        ...


def together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one schema as one that is contiguous."""
    return pl.concat(frames, rechunk=True) if len(frames) > 1 else frames[0]


class SendsRows:
    """An exchange of rows as they are: there is nothing to condense."""

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return together(frames)


class Pile:
    """Frames on their way through an exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.frames: list[pl.DataFrame] = []
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Put one more on top."""
        self.frames.append(frame)
        self.rows += frame.height

    def condense(self) -> None:
        """Make it as small as it can be."""
        frame = self.exchange.condensed(self.frames)
        self.frames, self.rows = [frame], frame.height

    def take(self) -> pl.DataFrame:
        """All of it, condensed; the pile is empty then."""
        self.condense()
        (frame,) = self.frames
        self.frames, self.rows = [], 0
        return frame


@dataclass(slots=True)
class BucketRun(StepRun):
    """The run of one bucket. Its rows know of no record, but of the piece that they come from: origins number `places`."""

    topics: Sequence[str] = ()
    """By number of the source."""
    places: list[Place] = field(default_factory=list)

    def record(self, origin: int | None) -> tuple[Slice, int] | None:
        """It is not known."""
        return None

    def address(self, origin: int) -> str:
        """Where a row comes from; "" if it was made of several records."""
        place = self.places[origin]
        if place.level:
            return ""
        return f"topic {self.topics[place.number]}, partition {place.part}, from offset {place.start} on"
