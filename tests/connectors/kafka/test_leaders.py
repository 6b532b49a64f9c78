"""librdkafka is asked about a partition only if it knows the leader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.console import Console
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.leaders import MISSING, delete_records, list_offsets

pytestmark = pytest.mark.kafka


class Watched(AdminClient):
    """Notes what librdkafka is asked about."""

    def __init__(self, brokers: str) -> None:
        super().__init__(Cluster(brokers).settings())
        self.asked: list[set[TopicPartition]] = []

    def list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec], **options: Any) -> Any:
        self.asked.append(set(specs))
        return super().list_offsets(dict(specs), **options)

    def delete_records(self, below: list[TopicPartition], **options: Any) -> Any:
        self.asked.append(set(below))
        return super().delete_records(below, **options)


@pytest.fixture
def places(kafka: str, topic_prefix: str) -> tuple[TopicPartition, TopicPartition, TopicPartition]:
    """One with three records, a partition that its topic has not, and one of a topic that is missing."""
    name = f"{topic_prefix}numbers"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    producer = Producer({"bootstrap.servers": kafka})
    for n in range(3):
        producer.produce(name, str(n), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return TopicPartition(name, 0), TopicPartition(name, 7), TopicPartition(f"{topic_prefix}none", 0)


def test_offsets_are_asked_of_known_leaders_alone(
    kafka: str, places: tuple[TopicPartition, TopicPartition, TopicPartition]
) -> None:
    there, *missing = places
    admin = Watched(kafka)
    answers = list_offsets(
        admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED, PATIENCE_S
    )
    assert answers[there].result().offset == 3
    for place in missing:
        with pytest.raises(KafkaException) as raised:
            answers[place].result()
        assert raised.value.args[0].code() == MISSING
        assert f"{place.topic}[{place.partition}]" in raised.value.args[0].str()
    assert admin.asked == [{there}]


def test_records_are_deleted_by_known_leaders_alone(
    kafka: str, places: tuple[TopicPartition, TopicPartition, TopicPartition]
) -> None:
    there, *missing = places
    below = [TopicPartition(place.topic, place.partition, 2) for place in places]
    admin = Watched(kafka)
    answers = delete_records(admin, below, PATIENCE_S)
    assert answers[there].result().low_watermark == 2
    assert all(answers[place].exception() is not None for place in missing)
    assert admin.asked == [{there}]


@pytest.mark.slow
def test_neither_a_question_about_a_missing_topic_nor_a_record_for_it_creates_it(tmp_path: Path) -> None:
    settings = {"auto.create.topics.enable": "true"}
    with EmbeddedKafka(tmp_path / "kafka", console=Console(quiet=True), settings=settings) as broker:
        place = TopicPartition("none", 0)
        admin = Watched(broker.bootstrap)
        (answer,) = list_offsets(
            admin, {place: OffsetSpec.latest()}, IsolationLevel.READ_UNCOMMITTED, PATIENCE_S
        ).values()
        assert answer.exception() is not None
        producer = Producer({**Cluster(broker.bootstrap).settings(), "message.timeout.ms": 1000})
        producer.produce("none", b"v")
        assert producer.flush(PATIENCE_S) == 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert "none" not in admin.list_topics(timeout=PATIENCE_S).topics
            time.sleep(0.1)


def test_nothing_is_asked_if_no_broker_answers() -> None:
    admin = Watched("127.0.0.1:1")
    places = [TopicPartition("a", 0), TopicPartition("b", 0)]
    answers = list_offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_UNCOMMITTED, 0.2)
    failed = [answers[place].exception() for place in places]
    assert [error.args[0].code() for error in failed if error is not None] == [KafkaError._TRANSPORT] * 2
    assert admin.asked == []
