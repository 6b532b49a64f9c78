"""Rows of a table as a source's records, on their way to the tasks that read it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from falkirk.errors import ConfigError
from falkirk.state.shards import murmur2, murmur2_partition
from falkirk.stream.access.producing import columns_of, encoded
from falkirk.stream.backfill.history import payload
from falkirk.stream.dataflow.place import Place
from falkirk.stream.operators.sources.source import Source, millis_of

CAST = "cast the column in a view of Spark's catalog, and name the view: SOURCE=table:NAME"


def columns_read(source: Source, there: Sequence[str], where: str) -> list[str]:
    """Which columns of a table are read for a source; what else there is, is left alone. Raises ConfigError where one is
    missing; the timestamp's may be."""
    wanted = columns_of(source)
    timestamps = {c for c, what in source.metadata.items() if what == "timestamp"}
    if missing := [c for c in wanted if c not in there and c not in timestamps]:
        raise ConfigError(
            f"the history of source {source.id!r} has no column {missing[0]!r}",
            where=f"{where}, which has {', '.join(there)}",
            hint="give it the columns of the source: a view of Spark's catalog may rename them",
        )
    return [c for c in wanted if c in there]


class HistoryRows(NamedTuple):
    """Rows of a history as a job's parcels have them."""

    partitions: Sequence[int]
    payloads: list[bytes]
    times: list[int]

    @classmethod
    def of(cls, source: Source, rows: pl.DataFrame, partitions: int, clock: int) -> HistoryRows:
        """What a source would have read for these rows, each at the time that it says itself, or else at the clock's. Raises
        ConfigError where one does not fit the source."""
        try:
            sent = encoded(source, rows, clock)
        except ConfigError as error:
            raise ConfigError(error.what, where=error.where, hint=CAST) from error
        times = _times(source, rows, clock) or [s.millis for s in sent]
        payloads = [payload(s.key, s.value, time) for s, time in zip(sent, times, strict=True)]
        # Without a key any partition will do; but it is the same one, should the row be read again.
        placed = [s.key if s.key is not None else p for s, p in zip(sent, payloads, strict=True)]
        return cls(murmur2_partition(murmur2(placed), partitions).tolist(), payloads, times)

    def orders(self, number: int) -> list[bytes]:
        """By which they are sorted within a partition: by time, and rows of one time by what is in them, so that it is the
        same order whenever they are computed. `number` is that of what a task reads."""
        begin: dict[int, bytes] = {}
        for time in self.times:
            if time not in begin:
                begin[time] = Place(number, 0, 0, max(time, 0)).orders(0, 1)[0]
        return [
            begin[t] + hashlib.blake2b(p, digest_size=16).digest()
            for t, p in zip(self.times, self.payloads, strict=True)
        ]


def _times(source: Source, rows: pl.DataFrame, clock: int) -> list[int] | None:
    """By the column of `time=`, where no column of its own says what the records' timestamps were."""
    if source.time is None or "timestamp" in source.metadata.values():
        return None
    return millis_of(rows[source.time]).fill_null(clock).to_list()
