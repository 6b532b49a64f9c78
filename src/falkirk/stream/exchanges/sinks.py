"""Sinks in a batch: a row is a record, placed by what it says.

    keyed       partition murmur2(key) mod P, as Java's producers place it; a null key is in partition 0
    not keyed   partition murmur2(value) mod P, for a round would depend on where it begins

A grouped result has one row a key. Where the flow does not say so by itself, rows are brought together by key and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.shards import murmur2, murmur2_partition
from falkirk.stream.engine.batch import TS, Batch
from falkirk.stream.engine.sinks import Written, check_once
from falkirk.stream.engine.step import StepRun
from falkirk.stream.exchanges.base import BucketRun, SendsRows, together
from falkirk.stream.exchanges.place import Place
from falkirk.stream.formats import Key
from falkirk.stream.operators import Sink


def is_checked(sink: Sink) -> bool:
    """Must its rows be brought together first?"""
    return sink.changes and sink.unique is None


def partitions_of(key: Key | None, records: Written, partitions: int) -> npt.NDArray[np.int64]:
    """The result partition of each record of a sink with this key."""
    if key is None:
        return murmur2_partition(murmur2([v or b"" for v in records.values]), partitions)
    places = murmur2_partition(murmur2([k or b"" for k in records.keys]), partitions)
    if None in records.keys:
        places[[k is None for k in records.keys]] = 0
    return places


class SinkExchange(SendsRows):
    """Sends rows."""

    def __init__(self, sink: Sink) -> None:
        assert sink.key is not None
        self.sink, self.key = sink, sink.key
        self.columns = list(sink.schema)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.columns).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        keys = whole.group_by(list(self.key.columns), maintain_order=True).len("__falkirk_rows")
        check_once(self.sink, keys.drop("__falkirk_rows"), keys["__falkirk_rows"])
        yield Batch(whole.select(self.columns), whole.select(TS))
