"""The app's control topic: small records outside any transaction, read back whole.

partition 0    the layout          few records, each of its own key: none is ever compacted away
               what is asked       one key a thing that people ask of the app: a pause, say
partition 1    what is reported   one key a worker, written again every few seconds, compacted
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.clients import client
from falkirk.connectors.kafka.config import Cluster, logger
from falkirk.connectors.kafka.errors import translate
from falkirk.connectors.kafka.reader import BoundedReader
from falkirk.errors import UnreachableError

LAYOUT, REPORTS = 0, 1
PARTITIONS = 2

CONTROL: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(2 << 20),
    "max.compaction.lag.ms": str(3600 * 1000),
    # A worker that left says so by a tombstone; who has not asked for an hour needs none.
    "delete.retention.ms": str(3600 * 1000),
}
"""Reports come for as long as the app runs: small segments, so that little more than the last of each is there to read."""

PATIENCE = 15.0
"""Seconds within which a record must be acknowledged."""


class ControlTopic:
    """One app's control topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._reader = BoundedReader(cluster, [False])

    def read(self, partition: int) -> list[LogRecord]:
        """Every record of a partition that is there now, in log order."""
        return Tail(self._cluster, TopicPartition(self._topic, partition), self._reader).look()

    def append(self, partition: int, key: bytes, value: bytes | None) -> Offset:
        """Write one record, and wait until it is acknowledged. Raises ClusterError."""
        return append(self._cluster, TopicPartition(self._topic, partition), key, value)

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()


class Tail:
    """What there is in a partition, and then, look by look, what has been added."""

    def __init__(self, cluster: Cluster, place: TopicPartition, reader: BoundedReader | None = None) -> None:
        self._place, self._reader = place, reader or BoundedReader(cluster, [False])
        self._at: Offset | None = None

    def skip(self) -> None:
        """Pass over what there is. Blocks while the cluster cannot be reached."""
        self._at = self._reader.watermarks([self._place], end=True)[self._place]

    def look(self) -> list[LogRecord]:
        """In log order. Blocks while the cluster cannot be reached."""
        at = self._reader.watermarks([self._place], end=False)[self._place] if self._at is None else self._at
        end = self._reader.watermarks([self._place], end=True)[self._place]
        records: list[LogRecord] = []
        while at < end:
            read = self._reader.read({self._place: (at, end)}, committed=False)[self._place]
            records += read.records
            at = read.position
        self._at = at
        return records

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()


def append(cluster: Cluster, place: TopicPartition, key: bytes | None, value: bytes | None) -> Offset:
    """Write one record outside any transaction, and wait until it is acknowledged. Raises ClusterError: after a time-out the
    record may be there, or come yet."""
    failure: list[KafkaError] = []
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failure.append(error)
        else:
            offsets.append(message.offset() or 0)

    settings = {**cluster.settings(), "enable.idempotence": True, "message.timeout.ms": int(PATIENCE * 1000)}
    producer = client(Producer, settings)
    producer.produce(place.topic, value, key, place.partition, on_delivery=delivered)
    producer.flush(PATIENCE + 1)
    if offsets:
        return Offset(offsets[0])
    cause = failure[0] if failure else KafkaError(KafkaError._MSG_TIMED_OUT)
    raise translate(cause, f"topic {place.topic}") or UnreachableError(
        f"a record could not be written: {cause.str()}",
        where=f"topic {place.topic}",
        hint="are enough replicas in sync, and may the app's user write the topic?",
    )


class Announcer:
    """Writes reports, at best effort: librdkafka sends them in a thread of its own, and what it cannot send is dropped."""

    EVERY = 5.0
    """Seconds between two reports of one key."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic, self._said = topic, 0.0
        self._producer = client(Producer, {**cluster.settings(), "message.timeout.ms": 5000, "log_level": 2})

    def due(self) -> bool:
        """Whether it is time to report."""
        return time.monotonic() - self._said >= self.EVERY

    def announce(self, reports: Mapping[str, bytes | None]) -> None:
        """Queue a record for each key; None: it is over."""
        self._said = time.monotonic()
        for key, report in reports.items():
            try:
                self._producer.produce(self._topic, report, key, REPORTS)
            except (BufferError, KafkaException) as error:
                logger.debug("a report is dropped: %s", error)
        self._producer.poll(0)

    def close(self) -> None:
        """Wait a moment for what is queued."""
        self._producer.flush(2)
