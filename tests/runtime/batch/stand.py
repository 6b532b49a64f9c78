"""An app with one batch part on a real Kafka, and a computation of it that needs no Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import LogRecord, Writes
from falkirk.checkpoint.publishing import HEADER, Outcome, publish
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import Waiting, publisher, publisher_log
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.app.batch_part import BoundBatch
from falkirk.runtime.epochs.driver import Driver
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.protocol import EpochReport
from falkirk.stream.batch import Job

PARTITIONS = 2


class Counts:
    """A computation whose result is, for each result partition, how many offsets the epoch reads, in so many records."""

    ui = ""

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
                outcomes.append(run(publish(log, part, result, Waiting())))
        return outcomes


class Numbers:
    """`falkirk.checkpoint.publishing.Result`."""

    def __init__(self, counts: Counts, topic: str, partition: int, epoch: int, reads: int) -> None:
        self.counts, self.topic, self.partition, self.epoch, self.reads = counts, topic, partition, epoch, reads

    @property
    def slices(self) -> int:
        return self.counts.slices

    async def slice(self, number: int) -> Sequence[Writes]:
        self.counts.at_slice(number)
        value = f"{self.reads} {number}{self.counts.salt}".encode()
        header = [[(HEADER, str(self.epoch).encode())]]
        return [Writes(self.topic, [self.partition], [b"k"], [value], headers=header)]


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

    def prepared(self, least: int = 0, added: str = "") -> App:
        """`added`: another topic that is read, from its second record on."""
        flow = fk.Flow(self.app_name, regime=fk.Batch(every=self.every, history=self.history))  # type: ignore[arg-type]
        bid = fk.Json({"auction": fk.Int64, "price": fk.Int64})
        bids = flow.source(self.source, value=bid)
        if added:
            bids = bids.concat(flow.source(added, value=bid, start={0: 1}))
        totals = bids.filter(fk.col("price") > least).group_by("auction", id="totals").agg(n=fk.len())
        totals.sink(self.sink, key="auction", value=fk.Json())
        return prepare(flow.plan(), self.settings, self.topics)

    def append(self, count: int, topic: str = "") -> None:
        producer = Producer({"bootstrap.servers": self.settings.brokers, "enable.idempotence": True})
        for i in range(count):
            place = (topic, 0) if topic else (self.source, i % PARTITIONS)
            producer.produce(place[0], b'{"auction":1,"price":1}', partition=place[1])
        producer.flush(PATIENCE_S)

    def driver(self, *, until_end: bool = True, app: App | None = None) -> Driver:
        app = app or self.app
        (batch,) = app.batches
        return Driver(
            self.app_name,
            batch,
            self.settings.cluster(),
            self.topics,
            self.compute,
            self.said.append,
            until_end=until_end,
            known=app.recorded,
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
