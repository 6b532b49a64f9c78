"""Result rows of one result partition: in their final order, on disk, cut into slices.

    rows come sorted by (exchange, key, order), so a ghost follows the records of its key
    ghost         dropped, if the row before it has its key; else a tombstone
    slice         as many rows as fit, by number and by size: the cuts depend only on the rows

Publishing begins only when all rows are there: it may have to begin again, and Spark gives its rows only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from falkirk.checkpoint.ids import Epoch
from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.publishing import HEADER
from falkirk.connectors.spark.epochs.work import MARK, Target
from falkirk.state.shards import murmur2, murmur2_partition

ROWS = 20_000
"""Of a slice, at most."""
SIZE = 16 << 20
"""Bytes of a slice's keys and values, unless a single row has more."""

TASK = 8
"""Bytes of an `order` that identify a row's task."""

_RECORDS = pa.schema(
    [
        ("exchange", pa.int16()),
        ("place", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
    ]
)


def by_partition(frames: Iterable[pl.DataFrame]) -> Iterator[tuple[int, Iterator[pl.DataFrame]]]:
    """Each result partition with its rows. Take them before you ask for the next partition."""
    parts = (part for frame in frames for part in frame.partition_by("bucket", maintain_order=True))
    return groupby(parts, key=lambda part: part.item(0, "bucket"))


def records(rows: Iterable[pl.DataFrame], clock: int) -> Iterator[pl.DataFrame]:
    """Rows without marks, and without ghosts: if a ghost's key is gone, a tombstone of time `clock` replaces it.

    >>> rows = pl.DataFrame({
    ...     "exchange": [-1, 0, 0, 0],
    ...     "key": [None, b"a", b"a", b"b"],
    ...     "value": [None, b"1", None, None],
    ...     "payload": [None, None, b"ghost", b"ghost"],
    ...     "timestamp": [None, 7, None, None],
    ... })
    >>> rows = rows.cast({"exchange": pl.Int16, "key": pl.Binary})
    >>> pl.concat(records([rows], clock=9)).select("key", "value", "timestamp").rows()
    [(b'a', b'1', 7), (b'b', None, 9)]
    """
    last = pl.DataFrame({"exchange": [MARK], "key": [None]}, {"exchange": pl.Int16(), "key": pl.Binary()})
    for frame in rows:
        if not frame.height:  # all of its rows were taken back: the next frame follows the one before it
            continue
        own = frame.select(last.columns)
        before = pl.concat([last, own[:-1]])
        again = (own["exchange"] == before["exchange"]) & own["key"].eq_missing(before["key"])
        ghost, last = frame["payload"].is_not_null(), own[-1:]
        yield frame.with_columns(
            timestamp=pl.when(ghost).then(pl.lit(clock, pl.Int64())).otherwise("timestamp")
        ).filter((own["exchange"] != MARK) & ~(ghost & again))


def lasts(rows: Iterable[pl.DataFrame], exchanges: Set[int]) -> Iterator[pl.DataFrame]:
    """In these exchanges, only the last row of each key and task, without tombstones; in others, all rows.

    >>> rows = pl.DataFrame({
    ...     "exchange": [0, 0, 0, 1],
    ...     "order": [b"task one 1", b"task one 2", b"task one 3", b"task one 4"],
    ...     "key": [b"a", b"a", b"b", b"b"],
    ...     "value": [b"1", b"2", None, None],
    ...     "payload": [None, None, None, None],
    ... })
    >>> pl.concat(lasts([rows[:1], rows[1:]], {0})).select("exchange", "key", "value").rows()
    [(0, b'a', b'2'), (1, b'b', None)]
    """
    held: pl.DataFrame | None = None
    for frame in chain(rows, [None]):
        if held is not None:
            following = held[1:] if frame is None else pl.concat([held[1:], frame[:1]])
            again = pl.concat([_same(held[: following.height], following), pl.Series([False])])[: held.height]
            chosen = held["exchange"].is_in(list(exchanges)) & held["payload"].is_null()
            yield held.filter(~chosen | (~again & held["value"].is_not_null()))
        held = frame


def _same(rows: pl.DataFrame, following: pl.DataFrame) -> pl.Series:
    """Same key and task or not, row by row; a ghost has no task."""
    task = pl.col("order").bin.slice(0, TASK)
    a, b = rows.with_columns(task=task), following.with_columns(task=task)
    return (
        (a["exchange"] == b["exchange"])
        & a["key"].eq_missing(b["key"])
        & a["task"].eq_missing(b["task"])
        & b["payload"].is_null()
    ).alias("")


def slices(frames: Iterable[pl.DataFrame], rows: int = ROWS, size: int = SIZE) -> Iterator[pl.DataFrame]:
    """The same rows, cut again: a slice's end does not depend on the frames' ends.

    >>> frames = [pl.DataFrame({"key": [None, b"a"], "value": [b"12", b"3"]}), pl.DataFrame({"key": [b"b"], "value": [b"4"]})]
    >>> [s.height for s in slices(frames, rows=2)], [s.height for s in slices(frames, size=3)]
    ([2, 1], [1, 1, 1])
    """
    held: list[pl.DataFrame] = []
    count = total = 0
    for frame in frames:
        lengths = frame.select(
            pl.col("key").bin.size().fill_null(0).cast(pl.Int64) + pl.col("value").bin.size().fill_null(0)
        ).to_series()
        upto, at = np.cumsum(lengths.to_numpy()), 0
        while at < frame.height:
            before = int(upto[at - 1]) if at else 0
            fit = int(np.searchsorted(upto, before + size - total, side="right"))
            end = min(fit, at + rows - count)
            if end == at and not count:
                end += 1  # a row that is larger than a slice gets its own
            if end > at:
                held.append(frame[at:end])
                count, total = count + end - at, total + int(upto[end - 1]) - before
                at = end
            if at < frame.height:
                yield pl.concat(held)
                held, count, total = [], 0, 0
    if held:
        yield pl.concat(held)


class Spooled:
    """`falkirk.checkpoint.publishing.Result`, in a file deleted when it is closed, or its process ends."""

    def __init__(self, folder: Path, number: int, epoch: Epoch, targets: tuple[Target, ...]) -> None:
        self._number, self._targets = number, targets
        self._header = [(HEADER, str(epoch).encode())]
        self._file: Any = TemporaryFile(dir=folder, prefix="falkirk-results-")  # noqa: SIM115
        self.records = self.tombstones = 0

    def fill(self, frames: Iterable[pl.DataFrame]) -> None:
        """Take all records, each with its place in its topic."""
        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(self._file, _RECORDS, options=lz4) as out:
            for frame in slices(frames):
                self.records += frame.height
                self.tombstones += frame["value"].null_count()
                placed = pl.concat(map(self._placed, frame.partition_by("exchange", maintain_order=True)))
                out.write_table(placed.select(_RECORDS.names).to_arrow().cast(_RECORDS).combine_chunks())
        self._stored = pa.ipc.open_file(self._file)

    @property
    def slices(self) -> int:
        """How many there are. The last is empty: ghosts may vanish before an epoch is continued, so a slice that was not
        the last then must not be the last now."""
        return 1 + int(self._stored.num_record_batches)

    async def slice(self, number: int) -> list[Writes]:
        """Its records, by output."""
        if number == self._stored.num_record_batches:
            return []
        stored = pl.DataFrame(self._stored.get_batch(number))
        return [self._writes(part) for part in stored.partition_by("exchange", maintain_order=True)]

    def close(self) -> None:
        """Free the space."""
        self._file.close()

    def _writes(self, part: pl.DataFrame) -> Writes:
        return Writes(
            self._targets[part.item(0, "exchange")].topic,
            part["place"].to_list(),
            part["key"].to_list(),
            part["value"].to_list(),
            part["timestamp"].to_list(),
            [self._header] * part.height,
        )

    def _placed(self, part: pl.DataFrame) -> pl.DataFrame:
        """Records of one output, each with its partition in the output's topic."""
        target, keys = self._targets[part.item(0, "exchange")], part["key"].to_list()
        if not target.keyed:
            return part.with_columns(place=pl.lit(self._number % target.partitions, pl.Int32()))
        places = murmur2_partition(murmur2(keys), target.partitions)
        return part.with_columns(
            # Records with a null key go to one partition, or they would be out of order.
            place=pl.when(pl.col("key").is_null()).then(0).otherwise(pl.Series(places)).cast(pl.Int32)
        )
