"""What a separate consumer finds in topics: the witness of most tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

SETTINGS = {
    "group.id": "witness",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # A look begins at offset 0: to ask where a partition begins takes half a second, as the client is not connected yet.
    "auto.offset.reset": "earliest",
    # An end is told by an empty fetch, which waits this long at the broker: half a second, if nothing is said.
    "fetch.wait.max.ms": 10,
}


def read_topics(brokers: str, *topics: str, whole: bool = False) -> Iterator[Message]:
    """Every record that a read_committed reader finds now, each partition in order. Raises AssertionError; with `whole`
    also if the first records have been deleted."""
    settings = SETTINGS | ({"auto.offset.reset": "error"} if whole else {})
    with closing(Consumer({"bootstrap.servers": brokers, "isolation.level": "read_committed", **settings})) as consumer:
        counts = {topic: len(consumer.list_topics(topic, 10).topics[topic].partitions) for topic in topics}
        left = sum(counts.values())
        consumer.assign([TopicPartition(topic, p, 0) for topic, count in counts.items() for p in range(count)])
        while left:
            message = consumer.poll(30)
            assert message is not None, "the broker says nothing"
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
