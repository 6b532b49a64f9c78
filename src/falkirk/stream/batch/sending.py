"""What leaves a task: rows for later levels, packed by bucket, and the records of sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.shards import murmur2
from falkirk.stream import operators as op
from falkirk.stream.batch.parcels import parcels, results
from falkirk.stream.batch.wiring import Wiring
from falkirk.stream.circuit.edges import packed_for
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.circuit import Emitted
from falkirk.stream.dataflow.exchange import MOST, Pile
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Accepts
from falkirk.stream.operators.sinks.sink import Written, accepted, partitions_of, written

_ROWS = 20_000
"""Of one parcel, at most."""


class Sending:
    """What comes of one place. It is sent before the next begins, or what is made of it would depend on who gets which."""

    def __init__(
        self,
        wiring: Wiring,
        place: Place,
        buckets: int,
        result_partitions: int,
        letters: Sequence[str],
        accepts: Mapping[str, Accepts],
    ) -> None:
        self.wiring, self.place = wiring, place
        self.buckets, self.result_partitions = buckets, result_partitions
        self.topics, self.accepts = letters, accepts
        self.piles: dict[op.Operator, Pile] = {}
        self.sent: Counter[tuple[bool, int]] = Counter()

    def take(self, start: op.Operator, run: StepRun, batch: Batch) -> Iterator[pl.DataFrame]:
        """Rows that `start` gave. Raises UserCodeError."""
        for end, port, rows in self.wiring.segments[start].run(run, batch):
            exchange = self.wiring.exchanges.get(end)
            if exchange is None:
                yield self.records(end, run, rows)
                continue
            pile = self.piles.get(end)
            if pile is None:
                pile = self.piles[end] = Pile(exchange)
            pile.add(exchange.sent(run, rows, port))
            if pile.rows > MOST:
                pile.condense()
                if pile.rows > MOST // 2:
                    yield self._parcels(end, pile)

    def records(self, sink: op.Operator, run: StepRun, batch: Batch) -> pl.DataFrame:
        """Rows that have reached a sink, as its records, as far as its format and topic accept them. Raises UserCodeError."""
        assert isinstance(sink, op.Sink)
        records, _ = accepted(sink, self.accepts.get(sink.topic), run, batch, written(sink, batch))
        partitions = partitions_of(sink.key, records, self.result_partitions)
        return self._results(self.wiring.sinks.index(sink), partitions, records)

    def letters(self, emitted: Emitted) -> pl.DataFrame:
        """Dead letters, which are without a key here."""
        nothing = [None] * len(emitted.values)
        records = Written(nothing, emitted.values, pl.Series(emitted.timestamps, dtype=pl.Int64))
        number = len(self.wiring.sinks) + self.topics.index(emitted.topic)
        return self._results(number, partitions_of(None, records, self.result_partitions), records)

    def close(self) -> Iterator[pl.DataFrame]:
        """What is left."""
        for end, pile in self.piles.items():
            if pile.rows:
                yield self._parcels(end, pile)

    def _parcels(self, end: op.Operator, pile: Pile) -> pl.DataFrame:
        frame = pile.take()
        hashes = murmur2(pile.exchange.key.encode(frame))
        sent = packed_for(frame, (hashes % np.uint32(self.buckets)).astype(np.int64), _ROWS)
        buckets, payloads = [bucket for bucket, _, _ in sent], [data for _, data, _ in sent]
        end_number = self.wiring.numbered.index(end)
        orders = self._orders((True, end_number), len(payloads))
        return parcels(self.wiring.levels[end], end_number, buckets, orders, payloads)

    def _results(self, sink: int, partitions: npt.NDArray[np.int64], records: Written) -> pl.DataFrame:
        return results(self.wiring.last + 1, sink, partitions, self._orders((False, sink), len(partitions)), records)

    def _orders(self, to: tuple[bool, int], count: int) -> list[bytes]:
        """Of the next so many that go to an exchange, or to a sink."""
        first = self.sent[to]
        self.sent[to] += count
        return self.place.orders(first, count)
