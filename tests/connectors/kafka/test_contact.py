"""Clients that a broker has told that there are no brokers find the cluster again, though librdkafka does not."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.faults.proxy import Proxy
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin import topics as topics_module
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import REPORTS, Announcer
from falkirk.connectors.kafka.client import contact
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.contact import connected
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.client.pending_answer import PendingAnswer
from falkirk.connectors.kafka.group.group import Membership
from falkirk.connectors.kafka.reading import peek as peek_module
from falkirk.connectors.kafka.reading import reader as reader_module
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.connectors.kafka.reading.peek import TopicPeek
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.reading.source import SourceReader
from falkirk.errors import FalkirkError, SourceError, UnreachableError

pytestmark = [pytest.mark.kafka]

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
"""A client of librdkafka that finds no broker: it takes many attempts until a broker makes one of it that is no consumer."""


@pytest.fixture
def proxy(kafka: str) -> Iterator[Proxy]:
    with Proxy(kafka) as one:
        yield one


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for as long as a broker may take to start."""
    monkeypatch.setattr(contact, "EVERY", 0.2)
    monkeypatch.setattr(reader_module, "ANSWER", 0.5)
    monkeypatch.setattr(topics_module, "AGAIN", 0.2)


class Stand:
    """A topic of two partitions behind a proxy."""

    def __init__(self, kafka: str, proxy: Proxy, prefix: str) -> None:
        self.topic, self.cluster, self._proxy = f"{prefix}numbers", Cluster(proxy.address), proxy
        self.places = [TopicPartition(self.topic, p) for p in range(2)]
        self._producer = Producer({"bootstrap.servers": kafka})
        Topics(Cluster(kafka)).create(self.topic, 2, 1, {})

    def send(self, *values: str, partition: int = 0) -> None:
        """Records without keys."""
        for value in values:
            self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(PATIENCE_S) == 0

    def cut_off(self, consumer: Consumer) -> None:
        """Let a broker tell a consumer that there are none, until librdkafka does not find it by itself any more. It does if
        something of the client still holds the broker when it is forgotten."""
        for _ in range(50):
            self._proxy.brokerless = True
            with suppress(KafkaException):
                for _ in range(20):
                    consumer.list_topics(self.topic, timeout=0.1)
            self._proxy.brokerless = False
            if not any(connected(consumer, self.topic) or time.sleep(0.02) for _ in range(25)):
                return
        raise AssertionError("librdkafka always finds its brokers again")


@pytest.fixture
def stand(kafka: str, proxy: Proxy, topic_prefix: str) -> Stand:
    return Stand(kafka, proxy, topic_prefix)


def until(done: Callable[[], object]) -> None:
    while not done():
        time.sleep(0.01)


def test_sources_are_read_on_from_where_they_were(stand: Stand) -> None:
    stand.send("0", "1")
    got: list[bytes | None] = []

    def poll() -> None:
        got.extend(m.value() for _, messages in reader.poll(0.05)[0] for m in messages)

    with closing(SourceReader(stand.cluster)) as reader:
        reader.add({place: Offset(0) for place in stand.places})
        until(lambda: poll() or len(got) == 2)
        stand.cut_off(reader._consumer)
        stand.send("2", "3")
        until(lambda: poll() or len(got) == 4)
    assert got == [b"0", b"1", b"2", b"3"]


def test_partitions_that_are_paused_stay_paused(stand: Stand) -> None:
    one, other = stand.places
    got: list[tuple[TopicPartition, bytes | None]] = []

    def poll() -> None:
        got.extend((place, m.value()) for place, messages in reader.poll(0.05)[0] for m in messages)

    with closing(SourceReader(stand.cluster)) as reader:
        reader.add(dict.fromkeys(stand.places, Offset(0)))
        reader.pause([other])
        before = reader._consumer
        stand.cut_off(before)
        stand.send("0", partition=1)
        stand.send("1")
        until(lambda: poll() or got)
        for _ in range(10):
            poll()
        assert (got, reader._consumer is before) == ([(one, b"1")], False)
        reader.resume([other])
        until(lambda: poll() or len(got) == 2)
    assert got == [(one, b"1"), (other, b"0")]


def test_a_recorded_division_is_read_on(stand: Stand) -> None:
    stand.send("0", "1")
    place = stand.places[0]
    with closing(DivisionReader(stand.cluster, Words(SourceError, "gone", ""))) as reader:
        reader.read({place: (Offset(0), Offset(1))})
        stand.cut_off(reader._consumer)
        stand.send("2", "3")
        assert [m.value() for m in reader.read({place: (Offset(1), Offset(4))})[place]] == [b"1", b"2", b"3"]


def test_a_topic_that_is_followed_is_read_on(stand: Stand) -> None:
    stand.send("0", "1")
    topics = Topics(stand.cluster)
    with closing(TopicPeek(stand.cluster, topics, topics.there(stand.topic, ""))) as peek:
        got = [m.value() for m in peek.last(1)]
        coming = peek.coming()
        stand.send("2")
        until(lambda: got.extend(m.value() for m in next(coming)) or len(got) == 2)
        stand.cut_off(peek._consumer)
        stand.send("3", "4")
        until(lambda: got.extend(m.value() for m in next(coming)) or len(got) == 4)
    assert got == [b"1", b"2", b"3", b"4"]


def test_who_looks_at_a_topic_hears_that_no_broker_answers(
    stand: Stand, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peek_module, "SILENT", 1.0)
    monkeypatch.setattr(peek_module, "PATIENCE", 2.0)
    stand.send("0", "1")
    topics = Topics(stand.cluster)
    with closing(TopicPeek(stand.cluster, topics, topics.there(stand.topic, ""))) as peek:
        assert [m.value() for m in peek.last(2)] == [b"0", b"1"]
        bounds = peek._bounds()
        monkeypatch.setattr(peek, "_bounds", lambda: bounds)  # the brokers go away behind this answer
        proxy.close()
        with pytest.raises(UnreachableError, match="nothing was read for 2 s"):
            peek.first(2)
        coming = peek.coming()
        until(lambda: next(coming) or "no broker has answered for 1 s" in caplog.text)


@pytest.mark.parametrize("changes", [False, True])
def test_a_bounded_read_that_is_repeated_succeeds(stand: Stand, changes: bool) -> None:
    stand.send("0", "1")
    place, end = stand.places[0], Offset(2)

    def position() -> Offset:
        if changes:
            return reader.read_changes(place, Offset(0), end)[1]
        return reader.read({place: (Offset(0), end)}, committed=True)[place].position

    with closing(BoundedReader(stand.cluster, [True])) as reader:
        until(lambda: position() == end)
        stand.cut_off(reader._idle[True][0].consumer)
        until(lambda: position() == end)
        assert reader._made_of == {True: 1}


def test_a_member_loses_its_tasks_and_has_them_again(stand: Stand) -> None:
    owned, lost = set[int](), list[int]()

    def lose(partitions: list[int]) -> None:
        owned.difference_update(partitions)
        lost.extend(partitions)

    member = Membership(
        stand.cluster,
        group=stand.topic,
        instance="a",
        topic=stand.topic,
        session_timeout_ms=1000,
        on_assigned=owned.update,
        on_revoked=owned.difference_update,
        on_lost=lose,
    )
    member.join()
    try:
        until(lambda: member.poll() or owned == {0, 1})
        stand.cut_off(member._consumer)
        until(lambda: member.poll() or lost)
        until(lambda: member.poll() or owned == {0, 1})
    finally:
        member.close()
    assert sorted(lost) == [0, 1]


def test_topics_are_described_again(stand: Stand) -> None:
    topics = Topics(stand.cluster)
    topics._admin = AdminClient(NOWHERE)

    def described() -> bool:
        try:
            return topics.ask([stand.topic], 0.5).result().keys() == {stand.topic}
        except UnreachableError:
            return False

    until(described)


@pytest.mark.parametrize("ask", [lambda topics: topics.ask_group("g", 0.2), Topics.ask_names])
def test_a_client_that_is_replaced_ends_without_a_search_for_garbage(
    ask: Callable[[Topics], PendingAnswer[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker, which looks for garbage rarely, has more and more clients while its cluster is away."""
    topics = Topics(Cluster("127.0.0.1:1"))
    listed = AdminClient.list_topics
    monkeypatch.setattr(AdminClient, "list_topics", lambda admin, timeout: listed(admin, timeout=0.2))
    replaced = weakref.ref(topics._admin)
    gc.disable()
    try:
        asked = ask(topics)
        until(asked.done)
        with pytest.raises(FalkirkError):
            asked.result()
        topics._admin = AdminClient(NOWHERE)
        until(lambda: replaced() is None)
    finally:
        gc.enable()


def test_reports_arrive_again(stand: Stand) -> None:
    announcer = Announcer(stand.cluster, stand.topic)
    announcer._producer = Producer(NOWHERE)
    place = TopicPartition(stand.topic, REPORTS)
    with closing(BoundedReader(stand.cluster, [False])) as reader:

        def arrived() -> bool:
            announcer.announce({"worker": b"alive"})
            end = reader.watermarks([place], end=True)[place]
            return end > 0

        until(arrived)
    announcer.close()
