"""The port of an edge, as a worker uses it: each kind of edge gives the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pytest
from confluent_kafka import Producer
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster as KafkaCluster
from falkirk.connectors.kafka.reading.sources import SourceReaders
from falkirk.runtime.worker.reading.edges import EdgeReader
from falkirk.testing.cluster import Cluster
from falkirk.testing.edges import MemoryEdges


class Edge(Protocol):
    """A kind of edge, with a topic of two partitions."""

    topic: str

    def append(self, partition: int, *values: bytes) -> None: ...

    def reader(self) -> EdgeReader: ...


@dataclass
class Memory:
    topic: str = "numbers"

    def __post_init__(self) -> None:
        flow = fk.Flow("copy")
        flow.source(self.topic, value=fk.Json({"n": int})).sink("copies", value=fk.Json())
        self._cluster = Cluster(flow.plan(), {self.topic: 2})

    def append(self, partition: int, *values: bytes) -> None:
        for value in values:
            self._cluster.broker[TopicPartition(self.topic, partition)].append(None, value, 0, None)

    def reader(self) -> EdgeReader:
        return MemoryEdges(self._cluster)


@dataclass
class Kafka:
    brokers: str
    topic: str

    def __post_init__(self) -> None:
        Topics(KafkaCluster(self.brokers)).create(self.topic, 2, 1, {})
        self._producer = Producer({"bootstrap.servers": self.brokers, "enable.idempotence": True})

    def append(self, partition: int, *values: bytes) -> None:
        for value in values:
            self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0

    def reader(self) -> EdgeReader:
        return SourceReaders(KafkaCluster(self.brokers), ends=True)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def edge(request: pytest.FixtureRequest) -> Edge:
    if request.param == "memory":
        return Memory()
    return Kafka(request.getfixturevalue("kafka"), f"{request.getfixturevalue('topic_prefix')}numbers")


@pytest.fixture
def reader(edge: Edge) -> Iterator[EdgeReader]:
    one = edge.reader()
    yield one
    one.close()


def polled(reader: EdgeReader, *until: TopicPartition, seconds: float = PATIENCE_S) -> dict[int, list[bytes | None]]:
    """What comes until the ends of these partitions are reached, or time is up."""
    found: dict[int, list[bytes | None]] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        runs, count = reader.poll(0.05)
        assert count >= sum(len(run) for _, run in runs)  # ends may be counted, too
        for place, run in runs:
            found.setdefault(place.partition, []).extend(m.value() for m in run)
        if until and reader.at_end(until):
            break
    return found


def received(reader: EdgeReader, count: int) -> dict[int, list[bytes | None]]:
    """What comes until so many records have come."""
    found: dict[int, list[bytes | None]] = {}
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for partition, values in polled(reader, seconds=0.1).items():
            found.setdefault(partition, []).extend(values)
    return found


def test_partitions_are_read_from_their_positions_in_order(edge: Edge, reader: EdgeReader) -> None:
    zero, one = (TopicPartition(edge.topic, p) for p in range(2))
    edge.append(0, b"0", b"1", b"2")
    edge.append(1, b"10", b"11")
    assert not reader.at_end([zero])
    reader.add({zero: Offset(1), one: Offset(0)})
    assert polled(reader, zero, one) == {0: [b"1", b"2"], 1: [b"10", b"11"]}
    assert reader.ends == {zero: 3, one: 2}
    assert reader.marks([zero, one]) == {zero: 3, one: 2}
    assert reader.unreadable == {}


def test_what_comes_later_follows(edge: Edge, reader: EdgeReader) -> None:
    zero = TopicPartition(edge.topic, 0)
    reader.add({zero: Offset(0)})
    assert polled(reader, zero) == {}
    edge.append(0, b"0", b"1")
    assert received(reader, 2) == {0: [b"0", b"1"]}
    assert reader.at_end([zero])


def test_a_paused_partition_goes_on_where_it_stopped(edge: Edge, reader: EdgeReader) -> None:
    zero, one = (TopicPartition(edge.topic, p) for p in range(2))
    edge.append(0, b"0")
    reader.add({zero: Offset(0), one: Offset(0)})
    assert polled(reader, zero, one) == {0: [b"0"]}
    reader.pause([zero])
    edge.append(0, b"1")
    edge.append(1, b"10")
    assert received(reader, 1) == {1: [b"10"]}
    assert polled(reader, seconds=0.5) == {}
    reader.resume([zero])
    assert received(reader, 1) == {0: [b"1"]}


def test_a_partition_that_is_read_again_begins_at_the_position_given(edge: Edge, reader: EdgeReader) -> None:
    zero = TopicPartition(edge.topic, 0)
    edge.append(0, b"0", b"1", b"2")
    reader.add({zero: Offset(0)})
    assert polled(reader, zero) == {0: [b"0", b"1", b"2"]}
    reader.remove([zero])
    assert polled(reader, seconds=0.3) == {}
    reader.add({zero: Offset(2)})
    assert not reader.at_end([zero])
    assert polled(reader, zero) == {0: [b"2"]}
