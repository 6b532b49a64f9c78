"""One epoch's work, cut into tasks that know nothing of each other.

head(piece)       records ──decode──▶ rows ──segment──▶ parcels, result rows
level n           parcels ──by bucket──▶ operator ──▶ rows ──segment──▶ parcels of later levels, result rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import polars as pl

from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.stream.batch.parcels import Piece
from falkirk.stream.batch.sending import Sending
from falkirk.stream.batch.wiring import Wiring
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.exchange import BucketRun
from falkirk.stream.dataflow.failures import Failures
from falkirk.stream.dataflow.handling import Handling
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.packing import unpacked
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Accepts
from falkirk.stream.formats import Format
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.operators.sources.source import Source, SourceReader

_Row = tuple[int, int, bytes, bytes]
"""Exchange, bucket, order, payload."""


@dataclass(frozen=True, eq=False)
class Job:
    """What each task of an epoch runs. For one division, pieces of one size and one clock, its results are the same bytes,
    on however many cores and in whatever order tasks run.

    Frames are of PARCELS. A task's frames are sorted, with those of all others, by (level, exchange, bucket, order), before
    a task of level n has all parcels of the buckets that are its own.

    >>> import falkirk as fk
    >>> flow = fk.Flow("words", regime=fk.Batch())
    >>> flow.source("words", value=fk.Text()).group_by("value").agg(n=fk.len()).sink("counts", key="value", value=fk.Json())
    >>> job = flow.plan().batches[0].job(clock=0, records=3, result_partitions=1, dead_letters_from={})
    >>> words = Records(offsets=[0, 1, 2], keys=[None] * 3, values=[b"to", b"be", b"to"], times=[5, 6, 7])
    >>> parcels = pl.concat(job.head(Piece(0, "words", 0, 0, 3), [words])).sort("level", "exchange", "bucket", "order")
    >>> sorted(value for frame in job.level(1, [parcels]) for value in frame["value"])
    [b'{"value":"be","n":1}', b'{"value":"to","n":2}']
    """

    app: str
    stage: str
    operators: tuple[Operator, ...]
    sources: tuple[tuple[Source, Format], ...]
    """Of each topic that is read, by its number: that which reads it."""
    topics: tuple[str, ...]
    """Those topics."""
    dead_letters: str
    """The flow's topic of them; an operator may have another."""
    letters: tuple[str, ...]
    """All these topics, in the order of their numbers, which are after those of sinks."""
    handled: Mapping[Operator, Handling]
    dead_letters_from: Mapping[tuple[str, int], int]
    clock: int
    """Milliseconds: the only time that operators see."""
    buckets: int
    result_partitions: int
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """What topics accept, as far as a broker has been asked."""

    @property
    def levels(self) -> int:
        """How often rows are brought together on the longest way to a sink. Result rows have the level after it."""
        return self._wiring.last

    def head(self, piece: Piece, chunks: Iterable[Records]) -> Iterator[pl.DataFrame]:
        """What becomes of a piece's records, which come in the order of offsets. Raises UserCodeError, or SourceError for
        keys that are not what the flow says."""
        source = self.sources[piece.source][0]
        reader = self._readers[piece.source]
        sending = self._sending(Place(0, piece.source, piece.partition, piece.start))
        for records in chunks:
            step = StepInput(self.clock, [Slice(source.id, piece.topic, piece.partition, records)])
            run = StepRun(step, Overlay(EmptyReader()), self._failures)
            batch = reader.read(run)
            if batch is not None and len(batch):
                yield from sending.take(source, run, batch)
            yield from map(sending.letters, run.emitted)
        yield from sending.close()

    def level(self, n: int, parcels: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """What becomes of the rows of one task, sorted; frames may be cut anywhere. Rows of later levels pass through.
        Raises UserCodeError."""
        frames = iter(parcels)
        later: list[pl.DataFrame] = []
        for (exchange, bucket), rows in groupby(of_level(n, frames, later), key=itemgetter(0, 1)):
            yield from self._bucket(n, exchange, bucket, rows)
        yield from later
        yield from frames

    def _bucket(self, n: int, exchange: int, bucket: int, rows: Iterator[_Row]) -> Iterator[pl.DataFrame]:
        operator = self._wiring.numbered[exchange]
        sending = self._sending(Place(n, exchange, bucket, 0))
        run = BucketRun(StepInput(self.clock, []), Overlay(EmptyReader()), self._failures, topics=self.topics)
        where = f"level {n} of {self.stage}, {operator.where}"
        sent = ((Place.of(order), unpacked(payload, where)) for _, _, order, payload in rows)
        for batch in self._wiring.exchanges[operator].received(run, sent):
            if isinstance(operator, Sink):
                yield sending.records(operator, run, batch)
            else:
                yield from sending.take(operator, run, batch)
        yield from map(sending.letters, run.emitted)
        yield from sending.close()

    def _sending(self, place: Place) -> Sending:
        return Sending(self._wiring, place, self.buckets, self.result_partitions, self.letters, self.accepts)

    @cached_property
    def _wiring(self) -> Wiring:
        return Wiring([source for source, _ in self.sources], self.operators)

    @cached_property
    def _readers(self) -> list[SourceReader]:
        return [source.reader(value) for source, value in self.sources]

    @cached_property
    def _failures(self) -> Failures:
        # What share of an epoch fails is known when it is computed, and then it may as well be published.
        return Failures(
            self.app,
            self.stage,
            self.handled,
            {},
            dead_letters=self.dead_letters,
            dead_letters_from=self.dead_letters_from,
            shares=False,
            accepts=self.accepts,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without what each process makes for itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def of_level(n: int, frames: Iterator[pl.DataFrame], later: list[pl.DataFrame]) -> Iterator[_Row]:
    """The rows of level n; of the last frame that holds any, the others are put into `later`."""
    for frame in frames:
        ours = frame["level"] == n
        if not ours.all():
            later.append(frame.filter(~ours))
            frame = frame.filter(ours)
        yield from frame.select("exchange", "bucket", "order", "payload").iter_rows()
        if later:
            return
