from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import OffsetSpec
from tests.faults.faults import IGNORE
from tests.faults.frames import Api
from tests.faults.proxy import Proxy
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.reading import division as division_module
from falkirk.connectors.kafka.reading import reader as reader_module
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.connectors.kafka.reading.lag import Counts, Remaining, lag
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import ClusterError, UnreachableError
from falkirk.state.store import Changes

pytestmark = pytest.mark.kafka


@pytest.fixture
def place(kafka: str, topic_prefix: str) -> TopicPartition:
    """Ten records: offsets 0 to 9."""
    topic = f"{topic_prefix}numbers"
    Topics(Cluster(kafka)).create(topic, 1, 1, {})
    producer = Producer({"bootstrap.servers": kafka})
    for i in range(10):
        producer.produce(topic, str(i))
    producer.flush()
    return TopicPartition(topic, 0)


@pytest.fixture
def proxy(kafka: str) -> Iterator[Proxy]:
    with Proxy(kafka) as one:
        yield one


def test_a_range_whose_begin_is_trimmed_is_read_from_where_the_log_begins_now(
    kafka: str, place: TopicPartition
) -> None:
    Topics(Cluster(kafka)).trim({place: Offset(5)})
    reader = BoundedReader(Cluster(kafka))
    try:
        read = reader.read({place: (Offset(0), Offset(8))}, committed=True)[place]
    finally:
        reader.close()
    assert [r.value for r in read.records] == [b"5", b"6", b"7"]
    assert read.position == 8


def test_a_changelog_is_read_in_chunks_whatever_else_is_read_in_between(
    kafka: str, place: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "CHANGES", 2)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": place.topic})
    other = TopicPartition(f"{place.topic}-log", 0)
    Topics(Cluster(kafka)).create(other.topic, 1, 1, {})
    producer.init_transactions()
    producer.begin_transaction()
    for i in range(10):
        producer.produce(other.topic, key=b"%d" % i, value=b"%d" % (i * i))
    producer.commit_transaction()
    end = Offset(11)  # with the transaction's marker
    with closing(BoundedReader(Cluster(kafka))) as reader:

        def chunk(start: Offset) -> tuple[Changes, Offset]:
            changes, position = reader.read_changes(other, start, end)
            assert len(changes) < 4
            assert list(changes) == [b"%d" % i for i in range(start, min(position, 10))]
            return changes, position

        found, position = chunk(Offset(0))
        more, position = chunk(position)
        reader.read({place: (Offset(0), Offset(8))}, committed=True)
        found = {**found, **more, **chunk(position)[0]}
        position = Offset(0)
        while position < end:
            time.sleep(0.2)  # for the last record and the end to be told at once
            more, position = chunk(position)
            found = {**found, **more}
    assert found == {b"%d" % i: b"%d" % (i * i) for i in range(10)}


def test_a_topic_that_is_gone_is_an_error_and_one_that_is_new_is_waited_for(
    kafka: str, place: TopicPartition, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else whoever asks for the offsets of an app that is being deleted waits for ever."""
    monkeypatch.setattr(reader_module, "SILENT", 0.3)
    topics, new = Topics(Cluster(kafka)), TopicPartition(f"{place.topic}-new", 0)
    with closing(BoundedReader(Cluster(kafka))) as reader, ThreadPoolExecutor(1) as aside:
        asked = aside.submit(reader.watermarks, [new], end=True)
        while f"told the offsets of topic {new.topic}" not in caplog.text:
            assert not asked.done()
        topics.create(new.topic, 1, 1, {})
        assert asked.result(PATIENCE_S) == {new: 0}
    topics.delete([new.topic])
    monkeypatch.setattr(reader_module, "GONE", 0.5)
    with closing(BoundedReader(Cluster(kafka))) as reader:  # a client that has known the topic is told at once
        with pytest.raises(ClusterError, match="a topic is missing") as gone:
            reader.watermarks([new], end=False)
        assert new.topic in gone.value.where


def test_a_short_way_to_the_end_is_counted_without_the_markers_on_it(kafka: str, place: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": place.topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(place.topic, b"10")
    producer.commit_transaction()
    topics, mark = Topics(Cluster(kafka)), Offset(0)
    while mark < 12:  # ten records, one more, and its marker, which is written soon after the commit has returned
        mark = topics.offsets([place], "latest")[place]

    counts = Counts(Cluster(kafka))
    try:
        before, done, far = (Remaining(place, Offset(at), mark) for at in (10, 11, 0))
        counted = counts.of([before, done, far])
        assert [lag(left, counted) for left in (before, done, far)] == [1, 0, 12]
    finally:
        counts.close()


def test_an_end_of_aborted_records_is_no_lag_once_nothing_moves(kafka: str, place: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": place.topic})
    producer.init_transactions()
    producer.begin_transaction()
    for i in range(20):
        producer.produce(place.topic, str(i))
    producer.flush()
    producer.abort_transaction()
    topics, mark = Topics(Cluster(kafka)), Offset(0)
    while mark < 31:  # ten records, twenty that were aborted, and the marker
        mark = topics.offsets([place], "latest")[place]

    end, behind = Remaining(place, Offset(10), mark), Remaining(place, Offset(9), mark)
    with closing(Counts(Cluster(kafka))) as counts:
        assert [lag(left, counts.of([end, behind])) for left in (end, behind)] == [21, 22]
        for _ in range(2):
            counted = counts.of([end, behind])
            assert [lag(left, counted) for left in (end, behind)] == [0, 22]


@pytest.mark.slow
def test_a_division_is_waited_for_while_no_broker_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(division_module, "SAY_AFTER", 0.1)
    division = DivisionReader(Cluster("127.0.0.1:1"), Words("gone", "bring it back"), patience=0.2)
    with closing(division), pytest.raises(UnreachableError, match="nothing was read for"):
        division.read({TopicPartition("bids", 0): (Offset(0), Offset(1))})
    assert "waiting for recorded input: nothing was read for 0 s (bids[0] at offset 0)" in caplog.text


def test_the_end_of_a_log_is_asked_for_until_a_broker_tells_it(
    place: TopicPartition, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka has an answer though nothing was answered; who believed it would take the log for one without records."""
    monkeypatch.setattr(reader_module, "ANSWER", 0.5)
    with closing(BoundedReader(Cluster(proxy.address))) as reader, ThreadPoolExecutor(1) as aside:
        assert reader.watermarks([place], end=True) == {place: 10}
        unanswered = proxy.add(IGNORE, Api.LIST_OFFSETS, times=None)
        asked = aside.submit(reader.watermarks, [place], end=True)
        time.sleep(2)
        assert not asked.done()
        proxy.rules.remove(unanswered)
        assert asked.result() == {place: 10}


def test_a_leader_that_has_just_died_is_not_waited_for_as_long_as_a_slow_one(
    place: TopicPartition, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client goes on to ask it until it learns who leads now. Another client learns it at once."""
    monkeypatch.setattr(reader_module, "ANSWER", 300.0)
    with closing(BoundedReader(Cluster(proxy.address))) as reader:
        assert reader.watermarks([place], end=True) == {place: 10}
        proxy.add(IGNORE, Api.LIST_OFFSETS)
        assert reader.watermarks([place], end=True) == {place: 10}


def test_who_waits_for_an_answer_gets_it_though_another_thread_replaces_the_client(
    place: TopicPartition, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of a client that is destroyed never come: a task that recovered beside another waited for ever."""
    monkeypatch.setattr(reader_module, "ANSWER", 0.5)
    with closing(BoundedReader(Cluster(proxy.address))) as reader, ThreadPoolExecutor(8) as aside:
        unanswered = proxy.add(IGNORE, Api.LIST_OFFSETS, times=None)
        asked = []
        for _ in range(24):  # each of a client that a thread before it replaces, half a second after that one began
            asked.append(aside.submit(reader.watermarks, [place], end=True))
            time.sleep(0.07)
        proxy.rules.remove(unanswered)
        assert [a.result(PATIENCE_S) for a in asked] == [{place: 10}] * len(asked)


def test_where_a_source_begins_is_unknown_while_no_broker_tells_it(place: TopicPartition, proxy: Proxy) -> None:
    """The answer that is none would be taken for "no record is that late", and the source be begun at its end."""
    topics = Topics(Cluster(proxy.address))
    assert topics.offsets([place], "earliest") == {place: 0}
    unanswered = proxy.add(IGNORE, Api.LIST_OFFSETS, times=None)
    with pytest.raises(UnreachableError, match="has not said where"):
        topics._offsets({place: OffsetSpec.earliest()}, timeout=0.5)
    proxy.rules.remove(unanswered)
    assert topics.offsets([place], "earliest") == {place: 0}


def test_who_asks_whether_anything_is_left_is_given_no_more_than_that(kafka: str, place: TopicPartition) -> None:
    with closing(BoundedReader(Cluster(kafka))) as reader:
        few = reader.read({place: (Offset(2), Offset(10))}, committed=True, most=1)[place]
        rest = reader.read({place: (few.position, Offset(10))}, committed=True)[place]
    assert 1 <= len(few.records) <= 2
    assert [r.offset for r in (*few.records, *rest.records)] == list(range(2, 10))


def test_several_changelogs_are_read_at_a_time_each_by_one_consumer_from_chunk_to_chunk(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for its changelog holds up no other; and none starts again what another has fetched."""
    monkeypatch.setattr(reader_module, "CHANGES", 2)
    topic = f"{topic_prefix}changes"
    Topics(Cluster(kafka)).create(topic, 3, 1, {})
    producer, held = (Producer({"bootstrap.servers": kafka, "transactional.id": f"{topic}-{i}"}) for i in range(2))
    for p in (producer, held):
        p.init_transactions()
        p.begin_transaction()
    held.produce(topic, b"open", b"held", partition=2)
    assert held.flush(PATIENCE_S) == 0
    for i in range(20):
        producer.produce(topic, b"%d" % i, b"%d" % i, partition=i % 2)
    producer.commit_transaction()

    with closing(BoundedReader(Cluster(kafka))) as reader, ThreadPoolExecutor(3) as threads:

        def all_of(partition: int) -> list[bytes]:
            place, position, found = TopicPartition(topic, partition), Offset(0), dict[bytes, bytes | None]()
            while position < 11:  # ten records and their marker
                changes, position = reader.read_changes(place, position, Offset(11))
                found |= changes
            return sorted(found)

        def waits() -> Offset:
            position = Offset(0)
            while position < 1:
                _, position = reader.read_changes(TopicPartition(topic, 2), position, Offset(1))
            return position

        waiting = threads.submit(waits)
        both = [threads.submit(all_of, p) for p in range(2)]
        assert [len(b.result(timeout=PATIENCE_S)) for b in both] == [10, 10]
        assert not waiting.done()
        held.commit_transaction()
        assert waiting.result(timeout=PATIENCE_S) == 1
