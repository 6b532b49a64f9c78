"""The topic that holds the epochs of one batch part.

partition 0        openings and ends, appended by anyone: few records, trimmed below the last complete epoch
partition 1 + p    how far result partition p is published, in the transactions that publish it
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from falkirk.cadence import Cadence
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import EpochRecord, encode
from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Ranges, Read, Unknown
from falkirk.checkpoint.publishing import Outcome, Part, PartitionProgress, close, last_progress
from falkirk.connectors.kafka.app_topics.control import append
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.transactions.log import KafkaLog
from falkirk.errors import UnreachableError

PAUSE = 0.25
"""Seconds between two looks at what a copy does."""

SAY = 10.0
"""Seconds until a task's wait is logged, and between two such logs."""


class KafkaEpochLog:
    """`falkirk.checkpoint.epochs.EpochLog` on a Kafka cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._reader = cluster, BoundedReader(cluster)

    async def append(self, partition: TopicPartition, record: EpochRecord) -> None:
        """Add a record."""
        try:
            append(self._cluster, partition, None, encode(record))
        except UnreachableError as error:
            raise Unknown(str(error)) from error

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The first offset still kept in each partition. Blocks while the cluster cannot be reached."""
        return self._reader.watermarks(partitions, end=False)

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks. Blocks while the cluster cannot be reached."""
        return self._reader.watermarks(partitions, end=True)

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """What is committed in the ranges."""
        return self._reader.read(ranges, committed=True)

    def progress_by_part(
        self, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[PartitionProgress | None, Offset]]:
        """The decided progress of result partitions, each with the offset of its record."""
        at = self._reader.watermarks(places, end=False)
        marks = self._reader.watermarks(places, end=True)
        found: dict[TopicPartition, tuple[PartitionProgress | None, Offset]] = dict.fromkeys(places, (None, Offset(0)))
        while behind := {p: (at[p], marks[p]) for p in at if at[p] < marks[p]}:
            for place, read in self._reader.read(behind, committed=True).items():
                if (progress := last_progress(read)) is not None:
                    found[place] = progress, max(record.offset for record in read.records if record.value is not None)
                if read.position == at[place]:
                    del at[place]  # an open transaction is in the way: its progress is not decided
                else:
                    at[place] = read.position
        return found

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()


def publisher(app: str, stage: str, partition: int) -> OwnerId:
    """The transactional id that publishes a result partition."""
    return OwnerId(f"{app}.{stage}.p{partition}")


def publisher_log(cluster: Cluster, owner: OwnerId, transaction_timeout_ms: int, batch_bytes: int) -> KafkaLog:
    """The log under a result partition's transactional id. Its transactions carry no offsets, so it needs no group."""
    return KafkaLog(
        cluster, owner, lambda: None, transaction_timeout_ms=transaction_timeout_ms, batch_bytes=batch_bytes
    )


def close_part(cluster: Cluster, owner: OwnerId, part: Part, transaction_timeout_ms: int) -> Outcome:
    """Make sure that nothing more of an epoch is published in a result partition. Blocks while the cluster is away."""
    log = publisher_log(cluster, owner, transaction_timeout_ms, 1_000_000)
    try:
        return run(close(log, part, Waiting()))
    finally:
        log.close()


class Waiting:
    """Pauses of one task; it logs what it waits for, and for how long."""

    def __init__(self) -> None:
        self._since, self._log = time.monotonic(), Cadence(SAY, SAY)

    async def __call__(self, words: str) -> None:
        """Wait a little."""
        now = time.monotonic()
        if self._log.due(now, self._since):
            logger.warning("%s (for %.0f s)", words, now - self._since)
        time.sleep(PAUSE)
