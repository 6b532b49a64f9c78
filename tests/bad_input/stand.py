"""A flow over bids on a broker: its topics, its runs, in this process or by the command line, and whether it was exact."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.bad_input.commands import Going, Screen, screen
from tests.reading import read_topics
from tests.soak.check.oracle import GroupBy
from tests.soak.check.seen import HEADER, Seen, Tp, parse_mark
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.host.identity import identity
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.worker import Worker
from falkirk.stream.flow.load import load_flow

BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}
KEYS = 12


class Stand:
    """One app: its name and its topics begin with `prefix`, its state is in `folder`."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder = brokers, prefix, folder
        self.name = f"{prefix}app"
        self.settings = Settings(brokers, str(folder / "state"), session_timeout_ms=6000)
        self.admin = AdminClient({"bootstrap.servers": brokers})
        self.producer = self._new_producer()
        self.sent = 0
        self._random = random.Random(prefix)
        self._going: list[Going] = []

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.brokers,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "enable.idempotence": True,
            }
        )

    def close(self) -> None:
        """Let nothing run on."""
        for going in self._going:
            going.kill()

    # -- topics --------------------------------------------------------------------------------------------------------

    def topic(self, name: str = "bids", partitions: int = 2, **config: str) -> str:
        """Make a topic; its whole name."""
        whole = self.prefix + name
        config = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(whole, partitions, 1, config=config)])[whole].result()
        deadline = time.monotonic() + PATIENCE_S
        while whole not in self.admin.list_topics(timeout=PATIENCE_S).topics and time.monotonic() < deadline:
            time.sleep(0.02)
        return whole

    def configure(self, whole: str, **config: str) -> None:
        """Change the settings of a topic, which may be one of the app's own."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        asked = ConfigResource(ResourceType.TOPIC, whole, incremental_configs=entries)
        self.admin.incremental_alter_configs([asked])[asked].result()

    def grow(self, partitions: int, name: str = "bids") -> None:
        """Add partitions to a topic, which what is sent from now on goes to as well."""
        whole = self.prefix + name
        self.admin.create_partitions([NewPartitions(whole, partitions)])[whole].result()
        deadline = time.monotonic() + PATIENCE_S
        while self.partitions(whole) < partitions and time.monotonic() < deadline:
            time.sleep(0.02)
        self.producer = self._new_producer()  # the old one would hear of them in some minutes

    def trim(self, offset: int, partition: int = 0, name: str = "bids") -> None:
        """What retention does: delete the records below an offset."""
        place = TopicPartition(self.prefix + name, partition, offset)
        self.admin.delete_records([place])[place].result()

    def delete(self, name: str = "bids") -> None:
        """Delete a topic, and wait until it is gone."""
        whole = self.prefix + name
        self.admin.delete_topics([whole])[whole].result()
        while whole in self.admin.list_topics(timeout=PATIENCE_S).topics:
            time.sleep(0.02)

    def bids(self, count: int, name: str = "bids") -> None:
        """Send so many bids, numbered on from the last."""
        for i in range(self.sent, self.sent + count):
            bid = {
                "id": i,
                "auction": self._random.randrange(KEYS),
                "bidder": self._random.randrange(KEYS),
                "price": self._random.randrange(1000),
            }
            self.producer.produce(self.prefix + name, orjson.dumps(bid), str(bid["auction"]))
        self.sent += count
        assert self.producer.flush(PATIENCE_S) == 0

    def put(self, key: bytes | None, value: bytes | None, name: str = "bids", partition: int = -1) -> tuple[int, int]:
        """Send one record; its partition and offset."""
        places: list[tuple[int, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            places.append((message.partition() or 0, message.offset() or 0))

        self.producer.produce(self.prefix + name, value, key, partition, on_delivery=delivered)
        assert self.producer.flush(PATIENCE_S) == 0
        return places[0]

    def read(self, *names: str) -> Iterator[Seen]:
        """Every record of topics as a read_committed reader sees it, each partition in order."""
        return map(seen, read_topics(self.brokers, *names))

    def partitions(self, whole: str) -> int:
        return len(self.admin.list_topics(whole, timeout=PATIENCE_S).topics[whole].partitions)

    def values(self, name: str) -> list[Any]:
        """The JSON values of a topic."""
        return [orjson.loads(s.value) for s in self.read(self.prefix + name) if s.value is not None]

    def place(self, bid: int) -> str:
        """Where a bid is, as errors say it."""
        (found,) = [s for s in self.read(f"{self.prefix}bids") if s.value and b'"id":%d,' % bid in s.value]
        return f"topic {found.tp.topic}, partition {found.tp.partition}, offset {found.offset}"

    # -- runs ----------------------------------------------------------------------------------------------------------

    def flow(self, regime: fk.EagerCheckpoint | fk.LazyCheckpoint | None = None, **options: Any) -> fk.Flow:
        """Counts a row for each auction."""
        flow = fk.Flow(self.name, regime=regime)
        count(flow.source(f"{self.prefix}bids", key="auction", value=fk.Json(BID), **options), f"{self.prefix}stats")
        return flow

    def app(self, flow: fk.Flow, **settings: Any) -> App:
        return prepare(
            flow.plan(self.settings.prefix), replace(self.settings, **settings), Topics(self.settings.cluster())
        )

    def run(self, flow: fk.Flow, **settings: Any) -> None:
        """One worker in this process until everything in the sources is processed. Raises what ends a worker."""
        with self.worker(flow, **settings) as worker:
            end = UntilEnd(worker.app, self.settings.cluster(), worker.topics)
            try:
                worker.run(end.finished)
            finally:
                end.close()

    def crash(self, flow: fk.Flow, **settings: Any) -> None:
        """The same, but the worker dies when it is done: it makes no last version, and leaves no `released` behind."""
        with self.worker(flow, **settings) as worker:
            end = UntilEnd(worker.app, self.settings.cluster(), worker.topics)
            worker.join()
            while not end.finished():
                worker.turn()
            end.close()

    @contextmanager
    def worker(self, flow: fk.Flow, slot: int = 0, **changed: Any) -> Iterator[Worker]:
        """A worker in this process; afterwards it lets go of everything, as a process does that ends."""
        settings = replace(self.settings, **changed)
        topics = Topics(settings.cluster())
        app = prepare(flow.plan(settings.prefix), settings, topics)
        worker = Worker(app, settings, identity(Path(settings.state_dir), app.name, slot), topics)
        try:
            yield worker
        finally:
            end(worker)

    def target(self, flow_file: str) -> str:
        """A flow in a file's text, which may use NAME and PREFIX, as commands name it. Each text has a file of its own: what
        runs starts processes that read it again."""
        path = self.folder / f"flow-{crc32(flow_file.encode())}" / "app.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import falkirk as fk\nNAME, PREFIX = {self.name!r}, {self.prefix!r}\n{flow_file}")
        return f"{path}:flow"

    def command(self, flow_file: str, *more: str) -> list[str]:
        """`falkirk run` on a flow."""
        return [
            *(sys.executable, "-m", "falkirk", "run", self.target(flow_file), "--brokers", self.brokers),
            *("--state-dir", self.settings.state_dir, "--session-timeout", "6s"),
            *more,
        ]

    def cli(self, flow_file: str, *more: str, timeout: float = PATIENCE_S, **environment: str) -> Screen:
        """Run a command to its end."""
        return screen(self.command(flow_file, "--until", "end", *more), timeout, **environment)

    def go_on(self, flow_file: str) -> None:
        """Run a flow in a file's text to the end, in this process: it costs a third of a command."""
        self.run(load_flow(self.target(flow_file)))

    def start(self, flow_file: str, *more: str) -> Going:
        """Begin a command, and leave it running."""
        self._going.append(Going(self.command(flow_file, *more), self.folder / f"said-{len(self._going)}"))
        return self._going[-1]

    def settle(self, sink: str = "stats") -> None:
        """Wait until what runs has counted every bid."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(self.counts(sink).values()) < self.sent:
            assert time.monotonic() < deadline, self._going[-1].said.read_text()
            time.sleep(0.2)

    def counts(self, sink: str) -> dict[int, int]:
        """How many bids each auction has, as far as a reader sees."""
        if self.prefix + sink not in self.admin.list_topics(timeout=PATIENCE_S).topics:
            return {}
        return {value["auction"]: value["n"] for value in self.values(sink)}

    # -- the verdict ---------------------------------------------------------------------------------------------------

    def assert_exact(
        self, sink: str = "stats", by: str = "auction", parse: Callable[[bytes], Any] = orjson.loads
    ) -> None:
        """Every bid counts once: each update is what the oracle has after some of its key's bids, later ones after more,
        the last after all; and the records of each step are numbered 0, 1, 2… in each partition. (A key whose bids are in
        two partitions has them in any order: of its updates only the last is compared.)"""
        oracle, due = GroupBy(by, "stats"), dict[bytes, list[Any]]()
        places: dict[bytes, set[Tp]] = {}
        for one in self.read(self.prefix + "bids"):
            if (bid := parse(one.value or b"")) is not None:
                oracle.fold(bid)
                key = str(bid[by]).encode()
                due.setdefault(key, []).append(oracle.table()[key])
                places.setdefault(key, set()).add(one.tp)
        assert sum(map(len, due.values())) == self.sent
        reached: dict[bytes, int] = {}
        marks: dict[tuple[str, Tp], tuple[int, int]] = {}
        for one in self.read(self.prefix + sink):
            assert one.key is not None
            assert one.value is not None
            assert one.mark is not None
            value = orjson.loads(one.value)
            assert value["n"] > reached.get(one.key, 0), f"doubled or late: {one}"
            last = value["n"] == len(due[one.key])
            assert value == due[one.key][value["n"] - 1] or (len(places[one.key]) > 1 and not last), one
            reached[one.key] = value["n"]
            task, step, number = parse_mark(one.mark)
            last_step, last_number = marks.get((task, one.tp), (-1, -1))
            assert step >= last_step
            assert number == (last_number + 1 if step == last_step else 0), f"lost or doubled before {one}"
            marks[task, one.tp] = step, number
        assert reached == {key: len(values) for key, values in due.items()}


def flow_file(
    rows: str = "", *, name: str = "", sink: str = "stats", regime: str = "fk.EagerCheckpoint()", source: str = ""
) -> str:
    """The same flow as text, for a command line. `rows` are lines that do something to `bids` before they are counted,
    `source` are other arguments for their source."""
    given = source or 'key="auction"'
    return f'''
flow = fk.Flow(NAME + "{name}", regime={regime})
value = fk.Json({{"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64, "note": fk.String}})
bids = flow.source(PREFIX + "bids", value=value, {given})
{rows}
stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
stats.sink(PREFIX + "{sink}", key="auction", value=fk.Json())
'''


def count(bids: fk.Stream, sink: str) -> None:
    """The flow that everything here is tried with."""
    stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(sink, key="auction", value=fk.Json())


def seen(message: Message) -> Seen:
    headers: Mapping[str, bytes] = dict(message.headers() or [])
    return Seen(
        Tp(message.topic() or "", message.partition() or 0),
        message.offset() or 0,
        message.key(),
        message.value(),
        message.timestamp()[1],
        headers.get(HEADER),
    )


def end(worker: Worker) -> None:
    """What the end of a process does: nothing more is written, and files and connections are let go of."""
    worker._requests.close()
    for domain in worker.domains.values():
        domain.committer.close()
    worker.parts.end()
    worker.maintenance.close()
    for task in worker.tasks.values():
        task.end()
        if task.owned.store is not None:
            task.owned.store.close()
    for owned in worker.recovering():
        worker._stores.discard(owned.task.id)
        if owned.store is not None:
            owned.store.close()
    # The new life of a static member takes its place, as after a crash: nobody need wait for the old one's session.
    worker._membership.close()
