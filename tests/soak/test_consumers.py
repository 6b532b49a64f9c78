"""The soak's reader goes on with another client, and reads each record once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.soak import consumers
from tests.soak.check.seen import Tp
from tests.soak.consumers import Ahead, Cluster
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}numbers"
    admin = AdminClient({"bootstrap.servers": kafka})  # by name: the answers of a client that is gone never come
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def send(kafka: str, topic: str, *values: str) -> None:
    """To both partitions."""
    producer = Producer({"bootstrap.servers": kafka})
    for value in values:
        for partition in range(2):
            producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def read(more: Callable[[], list[Message]], count: int) -> list[tuple[int | None, bytes | None]]:
    got: list[tuple[int | None, bytes | None]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count:
        assert time.monotonic() < deadline, got
        got += [(m.partition(), m.value()) for m in more() if m.error() is None]
    return sorted(got)


def renewed(ahead: Ahead) -> None:
    first, deadline = ahead._followed.consumer, time.monotonic() + PATIENCE_S
    ahead.renew()
    while ahead._followed.consumer is first:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_partition_that_the_client_reads_no_more_is_read_by_the_next(kafka: str, topic: str) -> None:
    cluster = Cluster(kafka)
    cluster.read([Tp(topic, 0), Tp(topic, 1)])
    send(kafka, topic, "0")
    assert read(lambda: cluster.followed.consume(10, 0.1), 2) == [(0, b"0"), (1, b"0")]
    cluster.followed.consumer.pause([TopicPartition(topic, 1)])
    send(kafka, topic, "1", "2")
    assert read(lambda: cluster.followed.consume(10, 0.1), 2) == [(0, b"1"), (0, b"2")]
    cluster.followed.renew()
    assert read(lambda: cluster.followed.consume(10, 0.1), 2) == [(1, b"1"), (1, b"2")]
    cluster.followed.consumer.close()


def test_what_the_app_trims_is_read_on_with_another_client_when_one_stands_still(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(Consumer):
        def assign(self, partitions: list[TopicPartition]) -> None:
            super().assign([p for p in partitions if p.partition != 1])

    made: list[Consumer] = []

    def make(brokers: str) -> Consumer:
        deaf = {"bootstrap.servers": brokers, "group.id": "deaf", "enable.partition.eof": True}
        made.append(usual(brokers) if made else Deaf(deaf))
        return made[-1]

    usual = consumers._consumer
    monkeypatch.setattr(consumers, "_consumer", make)
    monkeypatch.setattr(consumers, "STANDSTILL_S", 0.5)
    send(kafka, topic, "0", "1")
    ahead = Ahead(kafka, [Tp(topic, 0), Tp(topic, 1)])
    assert read(ahead.taken, 4) == [(0, b"0"), (0, b"1"), (1, b"0"), (1, b"1")]
    clients = len(made)
    assert clients > 1
    time.sleep(2)
    assert len(made) == clients, "a client that stands at the ends is replaced too"
    ahead.close()


def test_a_partition_of_which_a_client_read_nothing_is_read_on_by_the_next_but_one(kafka: str, topic: str) -> None:
    cluster, ahead = Cluster(kafka), Ahead(kafka, [Tp(topic, 0), Tp(topic, 1)])
    cluster.read([Tp(topic, 0), Tp(topic, 1)])
    send(kafka, topic, "0")
    for more in (lambda: cluster.followed.consume(10, 0.1), ahead.taken):
        assert read(more, 2) == [(0, b"0"), (1, b"0")]
    for _ in range(2):
        cluster.followed.renew()
        renewed(ahead)
    send(kafka, topic, "1")
    for more in (lambda: cluster.followed.consume(10, 0.1), ahead.taken):
        assert read(more, 2) == [(0, b"1"), (1, b"1")]
    cluster.followed.consumer.close()
    ahead.close()


def test_what_is_read_ahead_is_read_once(kafka: str, topic: str) -> None:
    ahead = Ahead(kafka, [Tp(topic, 0), Tp(topic, 1)])
    send(kafka, topic, "0")
    assert read(ahead.taken, 2) == [(0, b"0"), (1, b"0")]
    send(kafka, topic, "1")
    renewed(ahead)
    send(kafka, topic, "2")
    assert read(ahead.taken, 4) == [(0, b"1"), (0, b"2"), (1, b"1"), (1, b"2")]
    ahead.close()
    assert all(m.error() is not None for m in ahead.taken())
