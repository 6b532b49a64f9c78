"""The app's control topic: small records outside any transaction, all read back.

partition 0    the layout         few records, each with its own key: none is ever compacted away
               requests           one key for each request to the app, for example a pause
partition 1    reports            one key a worker, written again every few seconds, compacted
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import LARGEST, Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.client.errors import UNPLACED, translate
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import ClockError, UnreachableError

LAYOUT, REPORTS = 0, 1
PARTITIONS = 2

PATIENCE = 15.0
"""Seconds within which a record must be acknowledged."""


class ControlTopic:
    """One app's control topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._reader = BoundedReader(cluster, [False])

    def read(self, partition: int) -> list[LogRecord]:
        """Every present record of a partition, in log order."""
        return Tail(self._cluster, TopicPartition(self._topic, partition), self._reader).look()

    def append(self, partition: int, key: bytes, value: bytes | None) -> Offset:
        """Write one record, and wait until it is acknowledged. Raises ClusterError."""
        return append(self._cluster, TopicPartition(self._topic, partition), key, value)

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()


class Tail:
    """The records of a partition, and then, look by look, the new ones."""

    def __init__(self, cluster: Cluster, place: TopicPartition, reader: BoundedReader | None = None) -> None:
        self._place, self._reader = place, reader or BoundedReader(cluster, [False])
        self._at: Offset | None = None

    def skip(self) -> None:
        """Skip present records. Blocks while the cluster cannot be reached."""
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
    return deliver(cluster, place, key, value).offset


@dataclass(frozen=True, slots=True)
class Delivery:
    """An acknowledged record. Times are milliseconds since 1970: by this host's clock, and by the broker's."""

    offset: Offset
    sent: int
    dated: int | None
    """By the broker; None if the topic takes its writers' dates."""
    acknowledged: int


def deliver(
    cluster: Cluster,
    place: TopicPartition,
    key: bytes | None,
    value: bytes | None,
    *,
    idempotent: bool = True,
    patience: float = PATIENCE,
) -> Delivery:
    """As `append`, with all details. If a second copy is harmless, a producer that is not idempotent writes in
    a hundredth of a second: an idempotent one waits half a second for its id. `patience`: seconds until it gives up."""
    failure: list[KafkaError] = []
    deliveries: list[Delivery] = []
    sent = 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None:
            failure.append(error or UNPLACED)
        else:
            by, millis = message.timestamp()
            dated = millis if by == TIMESTAMP_LOG_APPEND_TIME else None
            deliveries.append(Delivery(Offset(offset), sent, dated, time.time_ns() // 1_000_000))

    settings = {
        **cluster.settings(),
        "enable.idempotence": idempotent,
        "message.timeout.ms": int(patience * 1000),
        "message.max.bytes": LARGEST,
    }
    producer = client(Producer, settings)
    sent = time.time_ns() // 1_000_000
    try:
        producer.produce(place.topic, value, key, place.partition, on_delivery=delivered)
    except KafkaException as error:  # it is too large
        failure.append(error.args[0])
    producer.flush(patience + 1)
    if deliveries:
        return deliveries[0]
    cause = failure[0] if failure else KafkaError(KafkaError._MSG_TIMED_OUT)
    if cause.code() == KafkaError.INVALID_TIMESTAMP:
        raise ClockError(
            f"the broker refuses what this host writes, for its clock is ahead: {cause.str()}",
            where=f"topic {place.topic}",
            hint="set this host's clock (is its NTP service running?), or the broker's if it is wrong",
        )
    raise translate(cause, f"topic {place.topic}") or UnreachableError(
        f"a record could not be written: {cause.str()}",
        where=f"topic {place.topic}",
        hint="are enough replicas in sync, and may the app's user write the topic?",
    )


class Announcer:
    """Writes reports, at best effort: librdkafka sends them in its own thread, and drops what it cannot send."""

    EVERY = 5.0
    """Seconds between two reports of a key."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic, self._said = topic, 0.0
        self._settings = {**cluster.settings(), "message.timeout.ms": 5000, "log_level": 2}
        self._producer = client(Producer, self._settings)
        self._contact = Contact()

    def due(self) -> bool:
        """Whether it is time to report."""
        return time.monotonic() - self._said >= self.EVERY

    def announce(self, reports: Mapping[str, bytes | None]) -> None:
        """Queue a record for each key; None: it is over."""
        self._said = time.monotonic()
        if self._contact.lost(self._producer, self._topic):
            self._producer = client(Producer, self._settings)
        for key, report in reports.items():
            try:
                self._producer.produce(self._topic, report, key, REPORTS)
            except (BufferError, KafkaException) as error:
                logger.debug("a report is dropped: %s", error)
        self._producer.poll(0)

    def close(self) -> None:
        """Wait briefly for what is queued."""
        self._producer.flush(2)
