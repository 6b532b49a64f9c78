"""A partition that a client has stopped reading is read on by another client, and one that is only quiet is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.reading import division as division_module
from falkirk.connectors.kafka.reading import reader as reader_module
from falkirk.connectors.kafka.reading import stalls
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.connectors.kafka.reading.peek import TopicPeek
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.reading.source import SourceReader
from falkirk.connectors.kafka.reading.stalls import StallWatch
from falkirk.errors import SourceError

ONE, OTHER = TopicPartition("bids", 0), TopicPartition("bids", 1)
AT = Offset(7)


class Stand:
    """A watch under a clock of its own. Another client finds `more`."""

    def __init__(self) -> None:
        self.now, self.more, self.asked = (
            0.0,
            set[TopicPartition](),
            list[tuple[float, Mapping[TopicPartition, Offset]]](),
        )
        self.stalled = set[TopicPartition]()
        self.held: list[Callable[[], None]] | None = None
        """Looks of the other client that are to end later."""
        self.watch = StallWatch(self._has_more, lambda: self.now, self._run)

    def _has_more(self, positions: Mapping[TopicPartition, Offset]) -> set[TopicPartition]:
        self.asked.append((self.now, positions))
        return self.more & positions.keys()

    def _run(self, work: Callable[[], None]) -> None:
        if self.held is None:
            work()
        else:
            self.held.append(work)

    def look(self, seconds: float, positions: Mapping[TopicPartition, Offset], *, drained: bool = True) -> list[float]:
        """Look twice a second; when each of the looks has found something stalled."""
        found = []
        end = self.now + seconds
        while self.now < end:
            self.now += stalls.LOOK
            assert self.watch.due()
            if places := self.watch.stalled(positions, drained=drained):
                self.stalled.update(places)
                found.append(self.now)
        return found


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_quiet_partition_is_looked_into_after_longer_and_longer_times(stand: Stand) -> None:
    assert stand.look(300, {ONE: AT, OTHER: AT}) == []
    assert all(positions == {ONE: AT, OTHER: AT} for _, positions in stand.asked)
    times = [at for at, _ in stand.asked]
    assert times == [3.5, 9.5, 21.5, 45.5, 93.5, 153.5, 213.5, 273.5]


def test_it_is_stalled_if_another_client_reads_more_and_this_one_does_not_give_it(stand: Stand) -> None:
    stand.more = {ONE}
    first, *_ = stand.look(10, {ONE: AT, OTHER: AT})
    assert stalls.FIRST + stalls.GRACE <= first <= stalls.FIRST + stalls.GRACE + 3 * stalls.LOOK
    assert stand.stalled == {ONE}


def test_each_new_client_has_more_time_than_the_one_before(stand: Stand) -> None:
    stand.more = {ONE}
    times = []
    for _ in range(7):
        begun = stand.now
        while not stand.look(stalls.LOOK, {ONE: AT}):
            pass
        stand.watch.renewed()
        times.append(stand.now - begun)
    both, looks = stalls.FIRST + stalls.GRACE, 4 * stalls.LOOK
    for doublings, took in enumerate(times):
        assert min(2**doublings, stalls.SLOWEST) * both <= took <= min(2**doublings, stalls.SLOWEST) * both + looks
    assert stand.look(stalls.CALM + 1, {}) == []  # nothing is read
    begun = stand.now
    (first, *_) = stand.look(10, {ONE: AT})
    assert first - begun <= both + looks


def test_it_was_slow_if_a_record_comes_after_all(stand: Stand) -> None:
    stand.more = {ONE}
    assert stand.look(stalls.FIRST + stalls.GRACE, {ONE: AT}) == []
    assert stand.look(2, {ONE: Offset(AT + 1)}) == []


def test_what_was_found_behind_another_position_does_not_count(stand: Stand) -> None:
    stand.held = []
    stand.look(4, {ONE: AT})
    (look,) = stand.held
    stand.more = {ONE}
    assert stand.look(2, {ONE: Offset(AT + 1)}) == []
    look()
    assert stand.look(2, {ONE: Offset(AT + 1)}) == []


def test_one_look_at_a_time(stand: Stand) -> None:
    stand.held = []
    stand.look(600, {ONE: AT})
    assert len(stand.held) == 1


def test_a_client_that_has_more_to_give_has_more_time(stand: Stand) -> None:
    stand.more = {ONE}
    first, *_ = stand.look(100, {ONE: AT}, drained=False)
    assert stalls.FIRST + stalls.BUSY <= first <= stalls.FIRST + stalls.BUSY + 3 * stalls.LOOK


def test_a_partition_that_is_not_read_is_not_watched(stand: Stand) -> None:
    stand.more = {ONE}
    stand.look(stalls.FIRST, {ONE: AT})
    assert stand.look(20, {}) == []  # paused
    assert stand.look(stalls.FIRST, {ONE: AT}) == []  # its time begins again
    assert stand.look(5, {ONE: AT})


def test_after_a_new_client_time_begins_again(stand: Stand) -> None:
    stand.more = {ONE}
    assert stand.look(10, {ONE: AT})
    stand.watch.renewed()
    assert stand.look(stalls.FIRST, {ONE: AT}) == []


def test_an_error_of_the_other_client_says_nothing(stand: Stand) -> None:
    def away(positions: Mapping[TopicPartition, Offset]) -> set[TopicPartition]:
        raise SourceError("gone")

    watch = StallWatch(away, lambda: stand.now, lambda work: work())
    for _ in range(100):
        stand.now += stalls.LOOK
        assert watch.stalled({ONE: AT}, drained=True) == []


# -- on a broker -------------------------------------------------------------------------------------------------------


class Numbers:
    """A topic of two partitions, written in transactions."""

    def __init__(self, kafka: str, prefix: str) -> None:
        self.topic, self.cluster = f"{prefix}numbers", Cluster(kafka)
        self.places = [TopicPartition(self.topic, p) for p in range(2)]
        Topics(self.cluster).create(self.topic, 2, 1, {})
        self.producer = Producer({"bootstrap.servers": kafka, "transactional.id": self.topic})
        self.producer.init_transactions(PATIENCE_S)

    def send(self, partition: int, *values: str, commit: bool = True) -> None:
        """Records of one transaction."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(self.topic, value, partition=partition)
        if commit:
            self.producer.commit_transaction(PATIENCE_S)
        else:
            self.producer.flush(PATIENCE_S)
            self.producer.abort_transaction(PATIENCE_S)

    def stop(self, consumer: Consumer, partition: int = 1) -> None:
        """Let a client read a partition no more, without a word to the reader that it belongs to."""
        consumer.pause([KafkaPartition(self.topic, partition)])


@pytest.fixture
def numbers(kafka: str, topic_prefix: str) -> Numbers:
    return Numbers(kafka, topic_prefix)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "FIRST", 0.5)
    monkeypatch.setattr(stalls, "GRACE", 0.3)
    monkeypatch.setattr(stalls, "LOOK", 0.1)


@pytest.mark.kafka
@pytest.mark.usefixtures("quick")
def test_an_input_is_read_on(numbers: Numbers, caplog: pytest.LogCaptureFixture) -> None:
    got: list[tuple[int, bytes | None]] = []
    with closing(SourceReader(numbers.cluster)) as reader:

        def read(count: int) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while len(got) < count:
                assert time.monotonic() < deadline, got
                got.extend((p.partition, m.value()) for p, run in reader.poll(0.05)[0] for m in run)

        reader.add(dict.fromkeys(numbers.places, Offset(0)))
        numbers.send(0, "0")
        numbers.send(1, "1", "2")
        read(3)
        first = reader._consumer
        numbers.stop(first)
        numbers.send(1, "3", "4")
        numbers.send(0, "5")
        read(6)
        assert reader._consumer is not first
        numbers.send(1, "6")
        read(7)
    assert [value for partition, value in got if partition] == [b"1", b"2", b"3", b"4", b"6"]
    assert [value for partition, value in got if not partition] == [b"0", b"5"]
    assert f"reading {numbers.topic}[1] at offset 2: the client has stopped there" in caplog.text


@pytest.mark.kafka
@pytest.mark.usefixtures("quick")
def test_markers_and_aborted_records_are_nothing_to_read(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "GRACE", 3.0)  # on a busy machine, the news of an end may take a while
    with closing(SourceReader(numbers.cluster)) as reader:
        reader.add(dict.fromkeys(numbers.places, Offset(0)))
        numbers.send(0, "0")
        numbers.send(1, "1")
        got: list[bytes | None] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(got) < 2 and time.monotonic() < deadline:
            got += [m.value() for _, run in reader.poll(0.05)[0] for m in run]
        assert sorted(map(str, got)) == ["b'0'", "b'1'"]
        numbers.send(0, "2", commit=False)
        numbers.send(1, "3", commit=False)
        first, until = reader._consumer, time.monotonic() + 5
        while time.monotonic() < until:
            assert not any(run for _, run in reader.poll(0.05)[0])
        assert reader._consumer is first


@pytest.mark.kafka
@pytest.mark.usefixtures("quick")
def test_a_partition_that_is_paused_is_not_read_on(numbers: Numbers) -> None:
    with closing(SourceReader(numbers.cluster)) as reader:
        reader.add(dict.fromkeys(numbers.places, Offset(0)))
        reader.pause([numbers.places[1]])
        numbers.send(1, "0")
        first, until = reader._consumer, time.monotonic() + 3
        while time.monotonic() < until:
            assert reader.poll(0.05) == ([], 0)
        assert reader._consumer is first


@pytest.mark.kafka
@pytest.mark.usefixtures("quick")
def test_a_topic_that_somebody_follows_is_read_on(numbers: Numbers) -> None:
    topics = Topics(numbers.cluster)
    numbers.send(1, "0")
    with closing(TopicPeek(numbers.cluster, topics, topics.describe([numbers.topic])[numbers.topic])) as peek:
        assert [m.value() for m in peek.last(5)] == [b"0"]
        coming, got = peek.coming(), list[bytes | None]()

        def read(count: int) -> None:
            deadline = time.monotonic() + PATIENCE_S
            while len(got) < count:
                assert time.monotonic() < deadline, got
                got.extend(m.value() for m in next(coming))

        numbers.send(1, "1")
        read(1)
        first = peek._consumer
        numbers.stop(first)
        numbers.send(1, "2", "3")
        numbers.send(0, "4")
        read(4)
        assert peek._consumer is not first
    assert sorted(got) == [b"1", b"2", b"3", b"4"]


@pytest.mark.kafka
def test_a_recorded_division_is_read_on(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division_module, "STALLED", 0.5)
    place = numbers.places[1]
    numbers.send(1, "0")
    numbers.send(1, "1", "2")
    with closing(DivisionReader(numbers.cluster, Words(SourceError, "gone", ""))) as reader:
        assert len(reader.read({place: (Offset(0), Offset(1))})[place]) == 1
        reader._ahead[place].clear()
        reader._position[place] = Offset(1)
        numbers.stop(reader._consumer)
        numbers.send(1, "3")
        assert [m.value() for m in reader.read({place: (Offset(1), Offset(6))})[place]] == [b"1", b"2", b"3"]


@pytest.mark.kafka
def test_the_next_read_of_a_range_has_another_client(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "ANSWER", 0.5)
    place = numbers.places[1]
    numbers.send(1, "0")
    with closing(BoundedReader(numbers.cluster, [True])) as reader:
        read = reader.read({place: (Offset(0), Offset(1))}, committed=True)
        assert [one.value for one in read[place].records] == [b"0"]
        (lent,) = reader._idle[True]
        numbers.stop(lent.consumer)
        tries = 0
        while not (read := reader.read({place: (Offset(0), Offset(1))}, committed=True))[place].records:
            tries += 1
            assert tries < 5
        assert reader._idle[True][0] is not lent
