"""Where a partition ends, by a record that its leader has acknowledged.

A broker that is the leader no more, and has not heard of it yet, answers a request for the high watermark with its own. That
one may lack what the new leader has acknowledged since. But it cannot acknowledge a record: the replicas in sync take none
from it. So the end of a log is asked for by a write.

    offset of every record acknowledged before `write` was called  <  what it returns
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import MARK
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.errors import UNPLACED, translate
from falkirk.connectors.kafka.client.producing import failure
from falkirk.connectors.kafka.reading.reader import AT_FIRST, SILENT, BoundedReader

LONGEST = 30.0
"""Seconds that a write is given at most. It is given twice as long each time."""

GRACE = 2.0
"""Seconds after its time-out until librdkafka has surely reported a record."""

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_SETTINGS: Mapping[str, str | int | float | bool] = {"acks": "all", "linger.ms": 0, "enable.idempotence": False}
"""A producer that is not idempotent need not wait for its id."""


class Marks:
    """Writes marks: records with the key `MARK` and no value, outside any transaction. A second copy is harmless."""

    def __init__(self, cluster: Cluster, reader: BoundedReader) -> None:
        self._cluster, self._reader = cluster, reader
        self._producer = self._made(AT_FIRST)

    def write(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Write one mark to each partition, and return their offsets. Blocks while the cluster cannot be reached, and logs
        that it does. Raises ClusterError if a topic is gone, or not to be written."""
        found: dict[TopicPartition, Offset] = {}
        began, patience, cadence = time.monotonic(), AT_FIRST, Cadence(SILENT, SILENT)
        while missing := [p for p in partitions if p not in found]:
            producer = self._producer
            if (cause := self._try(producer, missing, found, patience + GRACE)) is None:
                continue
            where = f"topic {missing[0].topic}"
            if cause.code() not in _MISSING and (known := translate(cause, where)):
                raise known
            if cadence.due(now := time.monotonic(), began):
                words = "no broker has acknowledged a record in %s for %.0f s; it is written again: %s"
                logger.warning(words, where, now - began, cause.str())
            self._reader.watermarks(missing, end=True)  # waits for the cluster, or says which topic is gone
            patience = min(2 * patience, LONGEST)
            if self._producer is producer:  # else another thread has replaced it
                self._producer = self._made(patience)
        return found

    def serve(self) -> None:
        """Take librdkafka's events while nothing is written. Unread, they would fill the memory while the cluster is away."""
        failure(self._producer.poll, 0)

    def _try(
        self, producer: Producer, partitions: Sequence[TopicPartition], found: dict[TopicPartition, Offset], wait: float
    ) -> KafkaError | None:
        """Write marks, note their offsets in `found`, and return why one could not be written."""
        refused: list[KafkaError] = []
        left = set(partitions)

        def delivered(error: KafkaError | None, message: Message) -> None:
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            left.discard(place)
            offset = message.offset()
            if error is None and offset is not None:
                found[place] = Offset(offset)
            else:
                refused.append(error or UNPLACED)

        try:
            for place in partitions:
                producer.produce(place.topic, None, MARK, place.partition, on_delivery=delivered)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        deadline = time.monotonic() + wait
        while left and time.monotonic() < deadline:
            failure(producer.poll, 0.02)
        return refused[0] if refused else KafkaError(KafkaError._MSG_TIMED_OUT) if left else None

    def _made(self, patience: float) -> Producer:
        return client(Producer, {**self._cluster.settings(), **_SETTINGS, "message.timeout.ms": int(1000 * patience)})
