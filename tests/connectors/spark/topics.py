"""Topics with transactions in them, and what an independent reader finds there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark import reading
from falkirk.errors import ClusterError


class Found(NamedTuple):
    """A record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class Topic:
    """A topic to write to as one likes."""

    brokers: str
    name: str
    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    producers: int = 0

    def __post_init__(self) -> None:
        self.topics = Topics(Cluster(self.brokers))
        self.make()

    def make(self) -> None:
        """Make it, and wait until its partitions have leaders: that comes a moment after the cluster shows it."""
        # Records of 1970 are to be there still when the broker first looks for old ones, after half a minute.
        self.topics.create(self.name, self.partitions, 1, {"retention.ms": "-1", **self.config})
        while True:
            with suppress(ClusterError):
                self.ends()
                return
            time.sleep(0.02)

    def send(self, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Records outside any transaction."""
        producer = Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True})
        _produce(producer, self.name, partition, values, more)
        assert producer.flush(PATIENCE_S) == 0

    def transaction(self, values: Mapping[int, Sequence[Any]], *, commit: bool = True, **more: Any) -> None:
        """A transaction that ends, with its values by partition."""
        producer = self.open(values, **more)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        self.settled()

    def open(self, values: Mapping[int, Sequence[Any]], **more: Any) -> Producer:
        """A transaction that does not end by itself."""
        self.producers += 1
        producer = Producer({"bootstrap.servers": self.brokers, "transactional.id": f"{self.name}-{self.producers}"})
        producer.init_transactions()
        producer.begin_transaction()
        for partition, some in values.items():
            _produce(producer, self.name, partition, some, more)
        assert producer.flush(PATIENCE_S) == 0
        return producer

    def settled(self) -> None:
        """Wait until the markers of what has ended are written: they follow a moment after the call returns."""
        ends = self.ends()
        while True:
            time.sleep(0.05)
            if (now := self.ends()) == ends:
                return
            ends = now

    def ends(self) -> dict[int, int]:
        places = [TopicPartition(self.name, p) for p in range(self.partitions)]
        return {p.partition: int(offset) for p, offset in self.topics.offsets(places, "latest").items()}

    def trim(self, partition: int, below: int) -> None:
        self.topics.trim({TopicPartition(self.name, partition): Offset(below)})

    def again(self) -> None:
        """Delete it, and make it again."""
        self.topics._admin.delete_topics([self.name])[self.name].result()
        while self.topics.describe([self.name]):
            time.sleep(0.02)
        self.make()

    def committed(self) -> list[Found]:
        """What a plain consumer reads at read_committed, up to the ends: a commit's markers may be about to be written."""
        ends = self.ends()
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers,
                "group.id": f"{self.name}-witness",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([KafkaPartition(self.name, p, 0) for p in range(self.partitions)])
        found, left = list[Found](), set(range(self.partitions))
        while left:
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    at = message.partition() or 0, message.offset() or 0
                    found.append(Found(*at, message.key(), message.value(), message.timestamp()[1]))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    left -= (
                        {message.partition()} if (message.offset() or 0) >= ends[message.partition() or 0] else set()
                    )
        consumer.close()
        return sorted(found)


def read(brokers: str, topic: str, **given: object) -> list[dict[str, Any]]:
    """What Spark's tasks give for these options, in the order of partitions and offsets, without a Spark."""
    options = {"brokers": brokers, "topic": topic, **{name: str(value) for name, value in given.items()}}
    division = reading.fix(options)
    rows: list[dict[str, Any]] = []
    for piece in sorted(reading.plan(options, division, 2)):
        for batch in reading.read(options, division, piece):
            rows += batch.to_pylist()
    return rows


def _produce(producer: Producer, topic: str, partition: int, values: Iterable[Any], more: Mapping[str, Any]) -> None:
    for value in values:
        key, data = value if isinstance(value, tuple) else (None, value)
        producer.produce(topic, data if data is None or isinstance(data, bytes) else str(data), key, partition, **more)
        producer.poll(0)
