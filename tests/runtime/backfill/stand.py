"""A flow, once backfilled and once streamed from the start, by the commands that people use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from confluent_kafka import Producer
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.publishing import progress_place
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.runtime.layout.layout import incarnation_of
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.engine import Engine, Memory
from falkirk.state.meta import META
from falkirk.state.objects import connect
from falkirk.state.store import Identity
from falkirk.stream.definition.names import backfill_topic, steps_topic
from falkirk.stream.flow.load import load_flow

PARTITIONS = 3

FLOW = """
import falkirk as fk

BID = {"auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}


class Highest(fk.Process):
    state = {"best": int}
    returns = {"auction": int, "by": int}

    def on_row(self, row, key):
        best = (key.get() or {"best": 0})["best"]
        if row["price"] > best:
            key.put({"best": row["price"]})
            yield {"auction": row["auction"], "by": row["price"] - best}


flow = fk.Flow("NAME", dead_letters="NAME-letters")
bids = flow.source("bids", topic="PREFIXbids", key="auction", value=fk.Json(BID))
top = bids.group_by("auction", id="top").agg(n=fk.len(), least=fk.min("price"), most=fk.max("price"))
top.filter(fk.col("n") % 3 != 0).sink("top", topic="NAME-top", key="auction", value=fk.Json())
top.group_by("n", id="spread").agg(auctions=fk.len(), most=fk.max("most")).sink(
    "spread", topic="NAME-spread", key="n", value=fk.Json()
)
lazily = bids.with_regime(fk.LazyCheckpoint(every="2s"), id="lazily")
lazily.group_by("bidder", id="bidders").agg(n=fk.len(), sum=fk.sum("price")).sink(
    "bidders", topic="NAME-bidders", key="bidder", value=fk.Json()
)
bids.key_by("auction").process(Highest(), id="highest").sink(
    "raises", topic="NAME-raises", key="auction", value=fk.Json()
)
bids.filter(fk.col("price") > 900).sink("dear", topic="NAME-dear", key="auction", value=fk.Json())
notes = flow.source("notes", topic=fk.Pattern("PREFIXnotes-.*"), value=fk.Json({"bidder": fk.Int64, "n": fk.Int64}))
notes.group_by("bidder", id="noted").agg(n=fk.len(), sum=fk.sum("n")).sink(
    "noted", topic="NAME-noted", key="bidder", value=fk.Json()
)
"""

TABLES, RECORDS = ("top", "spread", "bidders", "noted"), ("raises", "dear")
NOTES = {"notes-long": 3, "notes-short": 1}
"""Topics without keys, and their partitions."""


class Stand:
    """One broker's topics, and two apps on them."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder = brokers, prefix, folder
        self.topics = Topics(Cluster(brokers))
        for name, partitions in {"bids": PARTITIONS, **NOTES}.items():
            self.topics.create(prefix + name, partitions, 1, {})
        self.made = 0
        self.more = ""
        """What was added to the flow."""

    def app(self, name: str) -> str:
        """An app of this name in a file of its own."""
        path = self.folder / f"{name}.py"
        path.write_text((FLOW + self.more).replace("PREFIX", self.prefix).replace("NAME", f"{self.prefix}{name}"))
        return f"{path}:flow"

    def append(self, count: int) -> None:
        """More bids, some of which are none; and a tenth as many notes."""
        producer = Producer(
            {"bootstrap.servers": self.brokers, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        for n in range(self.made, self.made + count):
            bid = {"auction": n * n % 997, "bidder": n % 53, "price": n * 7919 % 1000}
            value = json.dumps(bid) if n % 500 else "no bid"
            while True:
                try:
                    producer.produce(f"{self.prefix}bids", value, str(bid["auction"]))
                    break
                except BufferError:
                    producer.poll(0.1)
            if n % 10 == 0:
                note = json.dumps({"bidder": bid["bidder"], "n": n})
                producer.produce(self.prefix + ("notes-short" if n % 50 else "notes-long"), note)
        assert producer.flush(PATIENCE_S) == 0
        self.made += count

    def start(self, command: str, name: str, *more: str, home: str = "") -> subprocess.Popen[str]:
        """A command of falkirk's on an app, with a state directory of the app's own."""
        state = self.folder / f"state-{home or name}"
        arguments = ["--brokers", self.brokers, "--state-dir", str(state), *more]
        if command == "backfill":
            arguments += ["--spark", "local[2]", "--spark-set", "spark.ui.enabled=false"]
        return subprocess.Popen(
            [sys.executable, "-m", "falkirk", command, self.app(name), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ.copy(),
        )  # fmt: skip

    def kill_backfill(self, name: str, word: str, *more: str) -> None:
        """Begin a backfill, and kill it when it says a word: surely before it is complete."""
        process = self.start("backfill", name, *more)
        assert process.stdout is not None
        with ExitStack() as stack:
            for line in process.stdout:
                if "backfill opened" in line:  # Spark is not there yet
                    stack.enter_context(self.unpublished(name))
                if word in line:
                    break
            assert process.poll() is None
            process.kill()
            process.communicate()

    @contextmanager
    def unpublished(self, name: str) -> Iterator[None]:
        """Nobody can publish result partition 0 of a backfill: an open transaction hides its progress."""
        place = progress_place(backfill_topic("falkirk", f"{self.prefix}{name}"), 0)
        settings = {
            "bootstrap.servers": self.brokers,
            "transactional.id": place.topic,
            "transaction.timeout.ms": 300_000,
        }
        producer = Producer(settings)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(place.topic, b"", partition=place.partition)
        assert producer.flush(PATIENCE_S) == 0
        yield
        producer.abort_transaction(PATIENCE_S)

    def run(self, command: str, name: str, *more: str, code: int = 0, home: str = "") -> str:
        """The same to its end; what it said."""
        process = self.start(command, name, *more, home=home)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, said
        return said

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """The committed records of a topic, partition by partition."""
        found = []
        info = self.topics.describe([topic])[topic]
        with closing(BoundedReader(Cluster(self.brokers))) as reader:
            for p in range(info.partitions):
                place = TopicPartition(topic, p)
                at, end = Offset(0), reader.watermarks([place], end=True)[place]
                while at < end:
                    read = reader.read({place: (at, end)}, committed=True)[place]
                    found += [(r.key, r.value) for r in read.records]
                    at = read.position
        return found

    def table(self, name: str, sink: str) -> dict[bytes | None, bytes]:
        """What a sink of a grouped result shows in the end."""
        last = dict(self.read(f"{self.prefix}{name}-{sink}"))
        return {key: value for key, value in last.items() if value is not None}

    def records(self, name: str, sink: str) -> Counter[tuple[bytes | None, bytes | None]]:
        """All that is in a sink that is appended to."""
        return Counter(self.read(f"{self.prefix}{name}-{sink}"))

    def letters(self, name: str) -> Counter[tuple[int, int, str]]:
        """Partition and offset of each dead letter."""
        found = (json.loads(value or b"") for _, value in self.read(f"{self.prefix}{name}-letters"))
        return Counter((letter["partition"], letter["offset"], letter["stage"]) for letter in found)

    def states(self, name: str) -> dict[str, dict[bytes, bytes]]:
        """The newest version of each task's state in the checkpoint store."""
        store = connect((self.folder / f"state-{name}" / "checkpoints").as_uri())
        app, found = f"{self.prefix}{name}", {}
        steps = steps_topic("falkirk", app)
        incarnation = incarnation_of(self.topics.describe([steps])[steps].id)
        for stage in load_flow(self.app(name)).plan().stages:
            for p in range(PARTITIONS if stage.stateful else 0):
                task = f"{stage.id}/{p}"
                whose = Identity(app, task, stage.fingerprint, stage.state_schema, incarnation)
                copies = CheckpointStore(store, whose)
                version = copies.newest()
                assert version is not None, task
                with tempfile.TemporaryDirectory() as folder:
                    copies.download(version, Path(folder))
                    with closing(Engine(Path(folder), Memory(), read_only=True)) as engine:
                        found[task] = dict(engine.scan(b"", META))
        return found

    def check(self, one: str, other: str) -> None:
        """Two apps have left the same behind."""
        for sink in TABLES:
            assert self.table(one, sink) == self.table(other, sink), sink
            assert self.table(one, sink)
        for sink in RECORDS:
            assert self.records(one, sink) == self.records(other, sink), sink
        assert self.letters(one) == self.letters(other)
        ours, theirs = self.states(one), self.states(other)
        assert ours.keys() == theirs.keys()
        for task in ours:
            assert ours[task] == theirs[task], task


def clean(said: str) -> str:
    """Without the client's chatter."""
    return "\n".join(line for line in said.splitlines() if not re.search("rdkafka|WARN", line))
