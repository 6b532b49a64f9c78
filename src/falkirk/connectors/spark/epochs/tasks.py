"""What the tasks of an epoch do, in Spark's Python workers.

Spark runs a failed task again and, if it speculates, a task twice at once. All that is done here is the same each time,
and publishing works with several copies.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path

import polars as pl
import pyarrow as pa
from confluent_kafka import Message

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.publishing import HEADER, publish
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import Waiting, publisher_log
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.spark.columns import frame_in_utc
from falkirk.connectors.spark.epochs.bases import Bases
from falkirk.connectors.spark.epochs.results import Spooled, by_partition, lasts, records
from falkirk.connectors.spark.epochs.work import (
    GHOST,
    LAST,
    MARK,
    Published,
    ReplacedRange,
    Share,
    TombstoneRange,
    Work,
    table,
)
from falkirk.connectors.spark.ranges import chunks, headers
from falkirk.errors import SourceError
from falkirk.state.shards import murmur2, murmur2_partition
from falkirk.stream.backfill import BackfillJob, HistoryTask
from falkirk.stream.batch import PARCELS, Piece
from falkirk.stream.dataflow.records import Records

Batches = Iterator[pa.RecordBatch]

PATIENCE = 120.0
"""Seconds that a task waits for the next record: an open transaction in its range may be about to end."""

LOST = Words(
    "records that the epoch is to read were deleted",
    'let the topic\'s retention outlast an epoch, from its opening to its end; then abandon this one. With history="new", '
    "leave out afterwards what is lost: falkirk epoch APP STAGE --skip-deleted",
    SourceError,
)
RECREATED = "abandon the epoch, and give the flow another name: it then starts from scratch, with the new topic"
TRIMMED = Words(
    "records that an earlier epoch wrote were deleted while they were read", "they are no longer needed", SourceError
)

OUTCOME = pa.schema(
    [("result_partition", pa.int32()), ("outcome", pa.string()), ("records", pa.int64()), ("tombstones", pa.int64())]
)


def head(data: bytes, numbers: Batches) -> Batches:
    """Run the shares of these numbers: from offsets to parcels, result rows."""
    work = _loaded(data)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _batches(_share(work, work.shares[number]))


def past(data: bytes, source: str, rows: Batches) -> Batches:
    """Take rows of a table in place of a source's beginnings: from its columns to parcels."""
    job = _loaded(data).job
    assert isinstance(job, BackfillJob)
    for batch in rows:
        if batch.num_rows:
            yield from _batches(job.past(source, frame_in_utc(batch)))


def level(data: bytes, number: int, parcels: Batches) -> Batches:
    """Take the parcels of some buckets, sorted, through one level."""
    work = _loaded(data)
    frames = map(_frame, parcels)
    if isinstance(work.job, BackfillJob):
        return _batches(work.job.level(number, frames, partial(_records, work), _keeper(work)))
    return _batches(work.job.level(number, frames))


def publication(data: bytes, rows: Batches) -> Batches:
    """Publish result partitions one after the other; their rows come sorted."""
    work = _loaded(data)
    for number, own in by_partition(map(_frame, rows)):
        published = _publish(work, number, own)
        found = {**published._asdict(), "outcome": published.outcome.value}
        yield pa.RecordBatch.from_pylist([found], schema=OUTCOME)


@lru_cache(1)
def _loaded(data: bytes) -> Work:
    """A worker runs many tasks of an epoch, but should build a job's parts only once."""
    work: Work = pickle.loads(data)
    return work


def _frame(batch: pa.RecordBatch) -> pl.DataFrame:
    return pl.DataFrame(batch, schema=PARCELS)


def _batches(frames: Iterable[pl.DataFrame]) -> Batches:
    for frame in frames:
        if frame.height:
            yield from table(frame)


# -- the head --------------------------------------------------------------------------------------------------------------


def _share(work: Work, share: Share) -> Iterator[pl.DataFrame]:
    match share:
        case Piece():
            assert not isinstance(work.job, BackfillJob)
            return work.job.head(share, _records(work, share))
        case HistoryTask():
            assert isinstance(work.job, BackfillJob)
            return work.job.head(share, partial(_records, work), _keeper(work))
        case ReplacedRange():
            return _ghosts(work, share, lambda m: m.value() is not None and bool(headers(m, HEADER)))
        case TombstoneRange():
            own = [str(work.publishing.epoch).encode()]
            everything = ReplacedRange(*share, end=Offset(2**63 - 1))
            return _ghosts(work, everything, lambda m: m.value() is None and headers(m, HEADER) == own)
        case None:
            return _marks(work)


def _keeper(work: Work) -> Bases:
    return Bases(_folder(), work.checkpoints)


def _records(work: Work, piece: Piece) -> Iterator[Records]:
    place, topic_id = TopicPartition(piece.topic, piece.partition), work.topic_ids[piece.topic]
    for messages in chunks(
        work.cluster, place, topic_id, piece.start, piece.end, lost=LOST, patience=PATIENCE, recreated=RECREATED
    ):
        yield Records.of(messages, headers=work.headers[piece.source])  # type: ignore[arg-type]


def _ghosts(work: Work, ghosts: ReplacedRange, is_one: Callable[[Message], bool]) -> Iterator[pl.DataFrame]:
    """The keys of the ghosts in a range, as far as it still exists."""
    topics, place = Topics(work.cluster), TopicPartition(ghosts.topic, ghosts.partition)
    info = topics.describe([ghosts.topic]).get(ghosts.topic)
    if info is None or info.partitions <= ghosts.partition:
        return
    start = max(ghosts.start, topics.offsets([place], "earliest")[place])
    end = min(ghosts.end, topics.offsets([place], "latest")[place])
    for messages in chunks(work.cluster, place, info.id, start, end, lost=TRIMMED, patience=PATIENCE):
        found = (m.key() for m in messages if is_one(m))
        yield _rows(work, ghosts.sink, [key for key in found if key is not None])


def _rows(work: Work, sink: int, keys: list[bytes]) -> pl.DataFrame:
    buckets = murmur2_partition(murmur2(keys), work.job.result_partitions)
    return _result_rows(work, exchange=sink, bucket=buckets, order=LAST, payload=GHOST, key=keys)


def _marks(work: Work) -> Iterator[pl.DataFrame]:
    yield _result_rows(work, exchange=MARK, bucket=range(work.job.result_partitions))
    if isinstance(work.job, BackfillJob):
        yield work.job.marks()


def _result_rows(work: Work, **columns: object) -> pl.DataFrame:
    empty = dict.fromkeys(PARCELS)
    return pl.DataFrame({**empty, "level": work.job.levels + 1, **columns}, schema=PARCELS)


# -- publishing ------------------------------------------------------------------------------------------------------------


def _publish(work: Work, number: int, rows: Iterator[pl.DataFrame]) -> Published:
    names = work.publishing
    with closing(Spooled(_folder(), number, names.epoch, names.targets)) as result:
        counting = {n for n, target in enumerate(names.targets) if target.last}
        result.fill(records(lasts(rows, counting) if counting else rows, work.job.clock))
        log = publisher_log(work.cluster, names.owner(number), names.transaction_timeout_ms, names.batch_bytes)
        with closing(log):
            outcome = run(publish(log, names.part(number), result, Waiting()))
        return Published(number, outcome, result.records, result.tombstones)


def _folder() -> Path:
    """Spark's folder for workers' data that is too much for memory."""
    return Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0])
