"""What a separate reader finds in a topic."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


class Found(NamedTuple):
    """A record."""

    offset: int
    key: bytes
    value: bytes


def read_committed(brokers: str, topic: str) -> dict[int, list[Found]]:
    """The committed records of each partition that has some, in their order."""
    settings = {"bootstrap.servers": brokers, "group.id": "oracle", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    left = set(consumer.list_topics(topic).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
    found: dict[int, list[Found]] = {p: [] for p in left}
    while left:
        for m in consumer.consume(1000, 0.2):
            if m.error() is None:
                found[m.partition()].append(Found(m.offset(), m.key(), m.value()))
            else:
                assert m.error().code() == KafkaError._PARTITION_EOF
                left.discard(m.partition())
    consumer.close()
    return {p: records for p, records in found.items() if records}
