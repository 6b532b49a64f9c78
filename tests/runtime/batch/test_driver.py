"""Drivers on a real Kafka, with computations that need no Spark: what is opened, published, completed and abandoned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import LogRecord, Writes
from falkirk.checkpoint.publishing import HEADER, Outcome, publish
from falkirk.connectors.kafka.epochs import KafkaEpochLog, pause, publisher, publisher_log
from falkirk.connectors.kafka.reader import BoundedReader
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import ConfigError, DivergenceError, StateError
from falkirk.runtime.app import App, prepare
from falkirk.runtime.batch.asking import batch_part
from falkirk.runtime.batch.binding import BoundBatch
from falkirk.runtime.batch.driver import Driver
from falkirk.runtime.protocol import EpochReport
from falkirk.runtime.settings import Settings
from falkirk.runtime.status import read_status
from falkirk.stream.batch import Job

PARTITIONS = 2


class Counts:
    """A computation whose result is, for each result partition, how many offsets the epoch reads, in so many records."""

    def __init__(self, brokers: str, slices: int = 3) -> None:
        self.settings = Settings(brokers, "")
        self.slices, self.runs = slices, 0
        self.salt = ""
        self.at_slice: Callable[[int], object] = lambda _: None

    def __call__(
        self, batch: BoundBatch, epochs: Epochs, job: Job, on_progress: Callable[[str, int, int], None]
    ) -> Sequence[Outcome]:
        self.runs += 1
        on_progress("count", 0, 1)
        outcomes = []
        for number, part in enumerate(batch.parts(epochs)):
            assert epochs.opened is not None
            reads = sum(r.end - r.start for r in epochs.opened.division)
            owner = publisher(batch.stage.app, batch.stage.id, number)
            with closing(publisher_log(self.settings.cluster(), owner, 60_000, 1_000_000)) as log:
                result = Numbers(self, batch.outputs[0].name, number, part.epoch, reads)
                outcomes.append(run(publish(log, part, result, pause)))
        return outcomes


class Numbers:
    """`falkirk.checkpoint.publishing.Result`."""

    def __init__(self, counts: Counts, topic: str, partition: int, epoch: int, reads: int) -> None:
        self.counts, self.topic, self.partition, self.epoch, self.reads = counts, topic, partition, epoch, reads

    def slices(self) -> Iterator[Sequence[Writes]]:
        for i in range(self.counts.slices):
            self.counts.at_slice(i)
            value = f"{self.reads} {i}{self.counts.salt}".encode()
            header = [[(HEADER, str(self.epoch).encode())]]
            yield [Writes(self.topic, [self.partition], [b"k"], [value], headers=header)]


class Stand:
    """An app with one batch part, and what drives it."""

    def __init__(
        self, brokers: str, prefix: str, folder: Path, every: str | int | None = None, history: str = "whole"
    ) -> None:
        self.settings = Settings(brokers, str(folder))
        self.topics = Topics(self.settings.cluster())
        self.source, self.sink = f"{prefix}bids", f"{prefix}totals"
        self.every, self.history = every, history
        self.topics.create(self.source, PARTITIONS, 1, {})
        self.app_name = f"{prefix}app"
        self.compute = Counts(brokers)
        self.said: list[EpochReport] = []
        self.app = self.prepared()

    def prepared(self, least: int = 0) -> App:
        flow = fk.Flow(self.app_name, regime=fk.Batch(every=self.every, history=self.history))  # type: ignore[arg-type]
        bids = flow.source(self.source, value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
        totals = bids.filter(fk.col("price") > least).group_by("auction", id="totals").agg(n=fk.len())
        totals.sink(self.sink, key="auction", value=fk.Json())
        return prepare(flow.plan(), self.settings, self.topics)

    def append(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.settings.brokers})
        for i in range(count):
            producer.produce(self.source, b'{"auction":1,"price":1}', partition=i % PARTITIONS)
        producer.flush(10)

    def driver(self, *, until_end: bool = True, app: App | None = None) -> Driver:
        (batch,) = (app or self.app).batches
        return Driver(
            self.app_name,
            batch,
            self.settings.cluster(),
            self.topics,
            self.compute,
            self.said.append,
            until_end=until_end,
        )

    def drive(self) -> None:
        """Until an epoch has read all there is."""
        with closing(self.driver()) as driver:
            driver.drive(lambda: False)
            assert driver.done

    def values(self) -> list[bytes | None]:
        return [r.value for r in self.read(self.sink, PARTITIONS)]

    def read(self, topic: str, partitions: int) -> list[LogRecord]:
        with closing(BoundedReader(self.settings.cluster())) as reader:
            places = [TopicPartition(topic, p) for p in range(partitions)]
            first, end = reader.watermarks(places, end=False), reader.watermarks(places, end=True)
            found = []
            for place in places:
                at = first[place]
                while at < end[place]:
                    read = reader.read({place: (at, end[place])}, committed=True)[place]
                    found += read.records
                    at = read.position
            return found


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Stand:
    return Stand(kafka, topic_prefix, tmp_path)


def test_an_epoch_reads_what_was_there_when_it_was_opened_and_is_published_once(stand: Stand) -> None:
    stand.append(10)
    stand.drive()
    stand.drive()
    assert stand.values() == [b"10 0", b"10 1", b"10 2"] * PARTITIONS
    assert stand.compute.runs == 1, "what is complete is not computed again"
    assert [r.state for r in stand.said] == ["opened", "running", "complete"]


def test_the_next_epoch_reads_the_whole_or_what_is_new(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    for history, second in (("whole", b"14"), ("new", b"4")):
        stand = Stand(kafka, f"{topic_prefix}{history}-", tmp_path / history, history=history)
        for count in (10, 4):
            stand.append(count)
            stand.drive()
        reads = [b"10 0", b"10 1", b"10 2", *(second + b" %d" % i for i in range(3))]
        assert stand.values() == reads * PARTITIONS


def test_a_driver_that_dies_at_any_slice_is_followed_by_one_that_publishes_the_rest(stand: Stand) -> None:
    stand.append(6)

    class Died(BaseException):
        pass

    def die(_: int) -> None:
        stand.compute.at_slice = lambda _: None
        raise Died

    for slice_ in range(3):
        stand.compute.at_slice = lambda i, at=slice_: die(i) if i == at else None  # type: ignore[misc]
        with pytest.raises(Died), closing(stand.driver()) as driver:
            driver.drive(lambda: False)
    stand.append(3)
    stand.drive()
    assert stand.values() == [b"6 0", b"6 1", b"6 2", b"9 0", b"9 1", b"9 2"] * PARTITIONS


def test_other_rows_than_those_published_are_refused(stand: Stand) -> None:
    stand.append(2)

    def die(i: int) -> None:
        if i == 2:
            raise RuntimeError

    stand.compute.at_slice = die
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    stand.compute.at_slice = lambda _: None
    stand.compute.salt = " again"
    with pytest.raises(DivergenceError, match="epoch 0 computes other rows"), closing(stand.driver()) as driver:
        driver.drive(lambda: False)


def test_an_epoch_that_is_abandoned_publishes_no_more(stand: Stand) -> None:
    stand.append(4)

    def abandon(i: int) -> None:
        if i == 1:
            stand.compute.at_slice = lambda _: None
            with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
                part.ask("abandon")
            raise RuntimeError

    stand.compute.at_slice = abandon
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    before = stand.values()
    stand.drive()  # closes epoch 0, then opens epoch 1
    after = stand.values()
    assert before == [b"4 0"] if len(before) == 1 else not before, "one slice at most was published"
    assert sorted(after, key=str) == sorted([*before, *[b"4 0", b"4 1", b"4 2"] * PARTITIONS], key=str)
    assert [r.state for r in stand.said][-4:] == ["abandoned", "opened", "running", "complete"] or stand.said


def test_two_drivers_at_once_do_no_harm(stand: Stand) -> None:
    stop, drivers = Event(), [stand.driver(until_end=False) for _ in range(2)]
    threads = [Thread(target=d.drive, args=(stop.is_set,)) for d in drivers]
    with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
        for thread in threads:
            thread.start()
        for epoch in range(3):
            stand.append(2)
            part.ask("open")
            while (now := part.look()).complete != epoch:
                assert now.epoch in (None, epoch - 1, epoch)
    stop.set()
    for thread, driver in zip(threads, drivers, strict=True):
        thread.join()
        driver.close()
    assert stand.values() == [b"%d %d" % (n, i) for n in (2, 4, 6) for i in range(3)] * PARTITIONS


def test_epochs_are_opened_when_so_many_records_are_new(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    stand = Stand(kafka, topic_prefix, tmp_path, every=5)
    stop, driver = Event(), stand.driver(until_end=False)
    thread = Thread(target=driver.drive, args=(stop.is_set,))
    thread.start()
    with batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part:
        stand.append(4)
        assert part.look().epoch is None
        stand.append(1)
        while part.look().complete is None:
            pass
    stop.set()
    thread.join()
    driver.close()
    assert set(stand.values()) == {b"5 0", b"5 1", b"5 2"}


def test_another_definition_does_not_go_on_with_an_open_epoch(stand: Stand) -> None:
    stand.append(2)
    stand.compute.at_slice = lambda _: (_ for _ in ()).throw(RuntimeError)
    with pytest.raises(RuntimeError), closing(stand.driver()) as driver:
        driver.drive(lambda: False)
    with (
        pytest.raises(StateError, match="epoch 0 was opened by another definition of 'totals'"),
        closing(stand.driver(app=stand.prepared(least=7))) as driver,
    ):
        driver.drive(lambda: False)


def test_the_log_of_epochs_stays_small(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.checkpoint.epochs.KEPT", 2)
    for _ in range(4):
        stand.append(1)
        stand.drive()
    epochs = stand.app.batches[0].epochs
    assert len(stand.read(epochs, 1)) == 4, "the openings and ends of two epochs"
    assert len(stand.read(epochs, 1 + PARTITIONS)) == 4 + PARTITIONS


def test_status_tells_how_epochs_are(stand: Stand) -> None:
    stand.append(3)
    stand.drive()
    (found,) = read_status(stand.app_name, stand.settings, stand.topics).batches
    assert (found.stage, found.epoch, found.state, found.records, found.rows) == ("totals", 0, "complete", 3, 6)
    assert (found.published, found.partitions, found.complete) == (2, 2, 0)
    assert msgspec.json.encode(found)


def test_asking_for_what_is_not_there(stand: Stand) -> None:
    with (
        pytest.raises(ConfigError, match="no batch part 'total' on this cluster") as caught,
        batch_part(stand.app_name, "total", stand.settings, stand.topics),
    ):
        pass
    assert "totals" in caught.value.hint
    with (
        pytest.raises(ConfigError, match="no epoch of 'totals' is open"),
        batch_part(stand.app_name, "totals", stand.settings, stand.topics) as part,
    ):
        part.ask("abandon")


def test_what_is_replaced_lies_between_two_openings(stand: Stand) -> None:
    stand.append(2)
    stand.drive()
    (batch,) = stand.app.batches
    with closing(KafkaEpochLog(stand.settings.cluster())) as log, closing(stand.driver(until_end=False)) as driver:
        epochs = Epochs()
        driver._catch_up(epochs)
        driver._open(epochs)
        replaced = list(batch.replaced(epochs))
        assert run(log.end([TopicPartition(stand.sink, 0)]))
    # A slice is a record and the marker of its transaction.
    assert replaced == [(0, TopicPartition(stand.sink, p), Offset(0), Offset(6)) for p in range(PARTITIONS)]
