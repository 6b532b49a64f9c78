"""Flows as their users write them, computed by Spark and checked with Polars over what each epoch says that it read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession
from tests.connectors.spark.topics import Found, Topic
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs, catch_up
from falkirk.checkpoint.publishing import Outcome
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.runtime.app.app import prepare
from falkirk.runtime.epochs.driver import Driver
from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.runtime.host.settings import Settings

pytestmark = pytest.mark.kafka

BID = {"auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}
JSON = fk.Json()


class Highest(fk.Process):
    """Says of each bid that is higher than all before it in its auction by how much."""

    state = {"best": int}  # noqa: RUF012
    returns = {"auction": int, "by": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        best = (key.get() or {"best": 0})["best"]
        if row["price"] > best:
            key.put({"best": row["price"]})
            yield {"auction": row["auction"], "by": row["price"] - best}


NAMELESS = 12


def named(bid: dict[str, Any]) -> dict[str, Any]:
    if bid["bidder"] == NAMELESS:
        raise ValueError("a bidder without a name")
    return {"name": f"bidder {bid['bidder']}", "price": bid["price"]}


class Recorded:
    """A computation, and what became of the result partitions each time."""

    def __init__(self, compute: SparkCompute) -> None:
        self.compute, self.computed, self.ui = compute, list[list[Outcome]](), ""

    def __call__(self, *given: Any) -> list[Outcome]:
        self.computed.append(self.compute(*given))
        return self.computed[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compute, name)


@dataclass
class Stand:
    """A flow with sinks of each kind, its topics, and a driver for it."""

    spark: SparkSession
    topic: Callable[..., Topic]
    folder: Path

    def __post_init__(self) -> None:
        self.bids, self.sinks = self.topic("bids", 3), {n: self.topic(n, 2) for n in ("stats", "raises", "both")}
        self.letters = self.topic("letters", 1)
        self.settings = Settings(self.bids.brokers, str(self.folder))
        topics = Topics(self.settings.cluster())
        app = prepare(self.flow(f"{self.bids.name}-app").plan(), self.settings, topics)
        (self.batch,) = app.batches
        self.compute = Recorded(SparkCompute(app, self.settings))
        self.computed = self.compute.computed
        self.drivers = lambda: Driver(
            app.name, self.batch, self.settings.cluster(), topics, self.compute, lambda _: None, until_end=True
        )

    def flow(self, name: str) -> fk.Flow:
        flow = fk.Flow(name, regime=fk.Batch())
        bids = flow.source("bids", topic=self.bids.name, key="auction", value=fk.Json(BID))
        stats = (
            bids.filter(fk.col("price") >= 100)
            .group_by("auction", id="stats")
            .agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"), least=fk.min("price"), mean=fk.mean("price"))
            .filter(fk.col("n") % 3 != 0)
        )
        stats.sink("stats", topic=self.sinks["stats"].name, key="auction", value=JSON)
        raises = bids.key_by("auction").process(Highest(), id="highest")
        raises.sink("raises", topic=self.sinks["raises"].name, key="auction", value=JSON)
        bidders = bids.map(
            named, returns={"name": fk.String, "price": fk.Int64}, on_error=fk.DeadLetter(self.letters.name)
        ).group_by("name", id="bidders")
        auctions = stats.map(
            lambda row: {"name": f"auction {row['auction'] % 5}", "price": row["total"]},
            returns={"name": fk.String, "price": fk.Int64},
        ).group_by("name", id="auctions")
        both = bidders.agg(n=fk.len(), sum=fk.sum("price")).concat(auctions.agg(n=fk.len(), sum=fk.sum("price")))
        both.sink("both", topic=self.sinks["both"].name, key="name", value=JSON)
        return flow

    def append(self, first: int, count: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bids.brokers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        for n in range(first, first + count):
            bid = {"auction": n * n % 97, "bidder": n % 13, "price": n * 7919 % 1000}
            producer.produce(self.bids.name, json.dumps(bid), str(bid["auction"]))
        assert producer.flush(PATIENCE_S) == 0

    def epoch(self) -> Epochs:
        """One that reads all there is."""
        with closing(self.drivers()) as driver:
            driver.drive(lambda: False)
        epochs = Epochs()
        with closing(KafkaEpochLog(self.settings.cluster())) as log:
            run(catch_up(log, self.batch.openings, epochs))
        assert not epochs.open
        return epochs

    def read(self, epochs: Epochs) -> pl.DataFrame:
        """The division that the newest epoch has recorded, by a plain consumer."""
        assert epochs.complete is not None
        settings = {"bootstrap.servers": self.bids.brokers, "group.id": "witness", "isolation.level": "read_committed"}
        consumer, bids = Consumer(settings), []
        for read in epochs.complete.division:
            consumer.assign([KafkaPartition(read.partition.topic, read.partition.partition, read.start)])
            bids += [m.value() for m in consumer.consume(read.end - read.start, 30)]
        consumer.close()
        return pl.DataFrame([json.loads(bid) for bid in bids])

    def check(self, epochs: Epochs, before: dict[str, list[Found]]) -> None:
        """Every record that the epoch wrote, and no other."""
        bids = self.read(epochs)
        for name, wanted in expected(bids).items():
            old = before.get(name, [])
            wrote = [f for f in self.sinks[name].committed() if f not in old]
            rows = Counter((f.key, json.dumps(json.loads(f.value))) for f in wrote if f.value is not None)
            assert rows == wanted, name
            gone = {f.key for f in table(old)} - {key for key, _ in wanted}
            assert Counter(f.key for f in wrote if f.value is None) == Counter(gone), name
        letters = [json.loads(f.value or b"") for f in self.letters.committed()]
        nameless = bids.filter(pl.col("bidder") == NAMELESS).height
        assert len({(v["partition"], v["offset"]) for v in letters}) == nameless
        earlier = sum(n % 13 == NAMELESS for n in range(2_000)) if before else 0
        assert len(letters) == nameless + earlier, "each epoch has its own"

    def written(self) -> dict[str, list[Found]]:
        return {name: topic.committed() for name, topic in self.sinks.items()}


def table(found: list[Found]) -> list[Found]:
    """The last record of each key, where it is none that buries it."""
    return [f for f in {f.key: f for f in found}.values() if f.value is not None]


def expected(bids: pl.DataFrame) -> dict[str, Counter[tuple[bytes | None, str]]]:
    """What each sink is to get, as (key, value)."""
    dear, price = bids.filter(pl.col("price") >= 100), pl.col("price")
    stats = dear.group_by("auction").agg(
        n=pl.len(), top=price.max(), total=price.sum(), least=price.min(), mean=price.mean()
    )
    stats = stats.filter(pl.col("n") % 3 != 0)
    best = pl.col("price").cum_max().shift(fill_value=0).over("auction")
    raises = bids.with_columns(by=pl.col("price") - best).filter(pl.col("by") > 0).select("auction", "by")
    bidders = (
        bids.filter(pl.col("bidder") != NAMELESS)
        .group_by(name=pl.format("bidder {}", "bidder"))
        .agg(n=pl.len(), sum=price.sum())
    )
    auctions = stats.group_by(name=pl.format("auction {}", pl.col("auction") % 5)).agg(
        n=pl.len(), sum=pl.col("total").sum()
    )
    found = {
        "stats": (stats, "auction"),
        "raises": (raises, "auction"),
        "both": (pl.concat([bidders, auctions]), "name"),
    }
    return {
        name: Counter((str(row[key]).encode(), json.dumps(row)) for row in frame.rows(named=True))
        for name, (frame, key) in found.items()
    }


@pytest.fixture
def stand(spark: SparkSession, topic: Callable[..., Topic], tmp_path: Path) -> Stand:
    return Stand(spark, topic, tmp_path)


@pytest.mark.slow
def test_epochs_write_what_polars_makes_of_their_divisions(stand: Stand) -> None:
    stand.append(0, 2_000)
    first = stand.epoch()
    stand.check(first, {})
    written = stand.written()
    stand.append(2_000, 1_300)
    second = stand.epoch()
    assert second.complete is not None
    assert second.complete.epoch == 1
    stand.check(second, written)
    assert any(f.value is None for f in stand.sinks["stats"].committed()), "some keys ought to be gone"
    assert stand.computed == [[Outcome.PUBLISHED] * stand.batch.result_partitions] * 2
    stand.epoch()
    assert len(stand.computed) == 2, "what is complete is not computed again"
