"""`falkirk driver` on a cluster, as a process of its own, and what its epochs ought to write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.connectors.spark.cluster.standalone import executor_flags, line, until
from tests.connectors.spark.topics import Found, Topic
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.epochs import Epochs
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.spark.executors import PATIENCE
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.epochs import BatchPart, EpochStatus
from falkirk.stream.definition.names import PREFIX, epochs_topic

FLOW = Path(__file__).with_name("flow.py")
PARTITIONS = 4
STAGE = "bidders"
FALKIRK = """
from falkirk.connectors.spark import executors
from falkirk.__main__ import main
executors.PATIENCE = {patience}
main()
"""


@dataclass
class Driving:
    """The flow's topics, a driver for it, and its epochs."""

    topic: Callable[..., Topic]
    folder: Path
    master: str
    patience: float = PATIENCE
    """Seconds that it bears to have no executor."""

    def __post_init__(self) -> None:
        self.bids, self.totals = self.topic("bids", PARTITIONS), self.topic("totals", 2)
        self.prefix = self.bids.name.removesuffix("bids")
        self.settings = Settings(self.bids.brokers, str(self.folder))
        self.log = self.folder / "driver.log"
        self.written: list[Found] = []
        self.start()

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-c", FALKIRK.format(patience=self.patience)]
        command += ["driver", f"{FLOW}:flow", "--brokers", self.bids.brokers]
        command += ["--state-dir", str(self.folder / "state"), "--spark", self.master, "--session-timeout", "1s"]
        memory = "spark.executor.memory=512m", "spark.driver.memory=512m"
        for setting in (*memory, "spark.ui.enabled=false", executor_flags()):
            command += ["--spark-set", setting]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "TOPICS": self.prefix},
            )

    def jvm(self) -> psutil.Process:
        """Spark's, of the driver."""
        children = lambda: psutil.Process(self.process.pid).children()  # noqa: E731
        return until(lambda: next((c for c in children() if "org.apache.spark" in " ".join(line(c))), None), "a JVM")

    def said(self) -> str:
        """All that it has said so far."""
        return self.log.read_text()

    def leave(self) -> None:
        """End it as a supervisor would, however it is."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def append(self, first: int, count: int) -> None:
        """Bids, the same for the same numbers."""
        producer = Producer(
            {"bootstrap.servers": self.bids.brokers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        for n in range(first, first + count):
            bid = {"auction": n * n % 97, "bidder": n * n % 61, "price": n * 7919 % 1000}
            producer.produce(self.bids.name, json.dumps(bid), str(bid["auction"]))
        assert producer.flush(PATIENCE_S) == 0

    def part(self) -> BatchPart:
        """The batch part, as the log shows it."""
        name = epochs_topic(PREFIX, f"{self.prefix}app", STAGE)
        topics = Topics(self.settings.cluster())
        info = until(lambda: topics.describe([name]).get(name), "the driver has made its topics")
        return BatchPart(STAGE, name, info.partitions, self.settings)

    def ask(self) -> None:
        """For an epoch, that reads what is there."""
        with closing(self.part()) as part:
            part.ask("open")

    def completed(self, number: int) -> None:
        """Wait for an epoch's end, and check every record that it wrote."""
        with closing(self.part()) as part:

            def look() -> EpochStatus | None:
                assert self.process.poll() is None, self.said()
                now = part.look()
                return now if now.epoch == number and now.state != "open" else None

            assert until(look, f"epoch {number} has ended").state == "complete"
            self._check(part.epochs)

    def _check(self, epochs: Epochs) -> None:
        found = self.totals.committed()
        new = [f for f in found if f not in self.written]
        wanted = expected(self._read(epochs))
        assert Counter((f.key, f.value) for f in new if f.value is not None) == Counter(wanted.items())
        before = {f.key for f in {f.key: f for f in self.written}.values() if f.value is not None}
        assert Counter(f.key for f in new if f.value is None) == Counter(before - wanted.keys())
        self.written = found

    def _read(self, epochs: Epochs) -> pl.DataFrame:
        """The newest epoch's division, by a plain consumer."""
        assert epochs.complete is not None
        settings = {"bootstrap.servers": self.bids.brokers, "group.id": "witness", "isolation.level": "read_committed"}
        consumer, bids = Consumer(settings), list[bytes]()
        for read in epochs.complete.division:
            consumer.assign([KafkaPartition(self.bids.name, read.partition.partition, read.start)])
            bids += [m.value() or b"" for m in consumer.consume(read.end - read.start, 30)]
        consumer.close()
        return pl.DataFrame([json.loads(bid) for bid in bids])


def expected(bids: pl.DataFrame) -> dict[bytes | None, bytes]:
    """What is to be in the sink."""
    price, name = pl.col("price"), pl.format("bidder {}", "bidder")
    totals = bids.group_by(name=name).agg(n=pl.len(), total=price.sum(), top=price.max())
    rows = totals.filter(pl.col("n") % 3 != 0).rows(named=True)
    return {row["name"].encode(): json.dumps(row, separators=(",", ":")).encode() for row in rows}
