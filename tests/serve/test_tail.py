"""The reader of answers, on a broker: it hears what has committed, once, and goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.gateway.answers import Answer
from falkirk.runtime.gateway.table import Heard, Table
from falkirk.runtime.gateway.tail import Tail

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEEP = 3_600_000
DIGEST = b'{"digest":"d","rows":[%d]}'


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Answers:
    """A topic of answers, and who reads it."""

    def __init__(self, kafka: str, topic: str, folder: Path) -> None:
        self.cluster, self.topic, self.folder = Cluster(kafka), topic, folder
        self.topics = Topics(self.cluster)
        self.topics.create(topic, 2, 1, {"message.timestamp.type": "LogAppendTime"})
        self.producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic, "partitioner": "murmur2"})
        self.producer.init_transactions()

    def write(self, *keys: str, commit: bool = True, number: int = 1) -> None:
        """A transaction."""
        self.producer.begin_transaction()
        for key in keys:
            self.producer.produce(self.topic, DIGEST % number, key)
        self.producer.flush()
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)()

    @contextmanager
    def tail(self) -> Iterator[tuple[Tail, Table, list[Heard]]]:
        heard: list[Heard] = []
        failed: list[Exception] = []
        table = Table(self.folder / "t.db", self.topics.describe([self.topic])[self.topic].id, KEEP)
        tail = Tail(self.cluster, self.topic, 2, table, KEEP, heard.extend, failed.append)
        tail.start()
        try:
            yield tail, table, heard
        finally:
            tail.close()
            table.close()
        assert not failed


@pytest.fixture
def answers(kafka: str, topic_prefix: str, tmp_path: Path) -> Answers:
    return Answers(kafka, f"{topic_prefix}answers", tmp_path)


def test_an_answer_of_a_step_that_was_aborted_is_never_heard(answers: Answers) -> None:
    answers.write("a", "b", "c", commit=False)
    with answers.tail() as (tail, table, heard):
        until(lambda: tail.ready)
        assert not heard
        answers.producer.begin_transaction()
        for key in ("a", "b", "c"):
            answers.producer.produce(answers.topic, DIGEST % 1, key)
        answers.producer.flush()
        time.sleep(0.5)  # they can be read at read_uncommitted
        assert not heard
        answers.producer.abort_transaction()
        answers.write("a", "b", "c", number=2)
        until(lambda: len(heard) == 3)
        assert {one.rows for one in heard} == {b"[2]"}
        for key in "abc":
            found = table.get(key)
            assert found is not None
            assert found.rows == b"[2]"


def test_it_goes_on_where_its_table_is_and_made_up_names_are_not_kept(answers: Answers) -> None:
    answers.write("a", "~made-up")
    with answers.tail() as (tail, table, heard):
        until(lambda: tail.ready)
        assert {one.key for one in heard} == {"a", "~made-up"}
        assert table.get("~made-up") is None
    answers.write("b")
    with answers.tail() as (tail, table, heard):
        until(lambda: tail.ready)
        assert [one.key for one in heard] == ["b"]
        found = table.get("a")
        assert isinstance(found, Answer)
        assert found.rows == b"[1]"


def test_what_the_topic_no_longer_has_is_not_waited_for(answers: Answers) -> None:
    answers.write("a")
    with answers.tail() as (tail, _, heard):
        until(lambda: tail.ready)
        assert len(heard) == 1
    answers.write(*[f"k{n}" for n in range(20)])
    ends = answers.topics.offsets([TopicPartition(answers.topic, p) for p in (0, 1)], "latest")
    answers.topics.trim({place: Offset(end) for place, end in ends.items()})
    answers.write("b")
    with answers.tail() as (tail, _, heard):
        until(lambda: tail.ready)
        assert [one.key for one in heard] == ["b"]
