"""Subscribers of a sink, on a broker: what they get, from where on, and why they get nothing."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.serve.oracle import read_committed

import falkirk as fk
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.http.messages import Ended, Event, Events, Reply, Subscribe
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.gateway import follower
from falkirk.runtime.gateway.metrics import Metrics
from falkirk.runtime.gateway.subscriptions import Subscriptions
from falkirk.runtime.host.settings import Settings

pytestmark = pytest.mark.kafka

PATIENCE = 120.0


class Sink:
    """A sink whose records a test writes, and the subscribers of one gateway."""

    def __init__(self, kafka: str, prefix: str, folder: Path) -> None:
        self.name, self.brokers = f"{prefix}totals", kafka
        self.topics = Topics(Cluster(kafka))
        self._flow = fk.Flow(f"{prefix}shop")
        orders = self._flow.source(f"{prefix}orders", value=fk.Json({"item": str, "usd": int}))
        orders.sink(self.name, key="item", value=fk.Json())
        self._settings = Settings(kafka, str(folder))
        self.stops = False
        self._prefix = prefix
        self.renew()

    def renew(self) -> None:
        """Write with a producer that knows the topic as it is now."""
        given = {"bootstrap.servers": self.brokers, "transactional.id": self._prefix, "partitioner": "murmur2"}
        self._producer = Producer(given)
        self._producer.init_transactions()

    def make(self, partitions: int) -> None:
        self.topics.create(self.name, partitions, 1, {})

    def subscriptions(self, most: int = 2) -> Subscriptions:
        """Of a gateway that has just started."""
        return Subscriptions(self._flow.plan(), self._settings, most, lambda: self.stops)

    def begin(self, *numbers: int, partition: int | None = None) -> None:
        """An open transaction with these records."""
        self._producer.begin_transaction()
        for n in numbers:
            given = {} if partition is None else {"partition": partition}
            self._producer.produce(self.name, b'{"item":"i%d","usd":%d}' % (n % 7, n), b"i%d" % (n % 7), **given)
        self._producer.flush()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def write(self, *numbers: int, partition: int | None = None) -> None:
        """A transaction."""
        self.begin(*numbers, partition=partition)
        self.commit()

    def abort(self, *numbers: int) -> None:
        self.begin(*numbers)
        self._producer.abort_transaction()

    def remove(self, item: str) -> None:
        """A tombstone."""
        self._producer.begin_transaction()
        self._producer.produce(self.name, None, item)
        self._producer.flush()
        self.commit()

    def trim(self) -> None:
        """Delete all that is there."""
        places = [TopicPartition(self.name, p) for p in range(self.topics.describe([self.name])[self.name].partitions)]
        self.topics.trim({p: Offset(end) for p, end in self.topics.offsets(places, "latest").items()})


@pytest.fixture
def sink(kafka: str, topic_prefix: str, tmp_path: Path) -> Sink:
    return Sink(kafka, topic_prefix, tmp_path)


async def begun(of: Subscriptions, sink: str, start: str = "latest", key: str | None = None) -> tuple[Events, str]:
    found = await of.subscribe(Subscribe(sink, start, key))
    assert not isinstance(found, Reply), found
    return found


async def refused(of: Subscriptions, sink: str, start: str = "latest") -> tuple[int, Any, int]:
    found = await of.subscribe(Subscribe(sink, start))
    assert isinstance(found, Reply)
    return found.status, json.loads(found.body), found.again


async def some(events: Events, count: int) -> list[Event]:
    """So many events, or the few more that came with them."""
    found: list[Event] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} events"
        more = await events.some()
        assert more is not None
        found += more.events
    return found


async def drained(events: Events, into: list[Event]) -> None:
    """All events until there are no more. Raises Ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        more = await events.some()
        assert more is not None
        into += more.events


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        assert time.monotonic() < deadline


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def by_partition(events: Sequence[Event]) -> dict[int, list[int]]:
    """The offsets, in the order in which they came."""
    found = defaultdict(list)
    for event in events:
        said = json.loads(event.data)
        found[said["partition"]].append(said["offset"])
    return dict(found)


@pytest.mark.slow
def test_from_each_event_a_subscriber_goes_on_exactly_behind_it(sink: Sink) -> None:
    sink.make(3)
    choice = random.Random(5)
    for n in range(30):
        numbers = [n * 10 + i for i in range(choice.randrange(1, 10))]
        (sink.abort if choice.random() < 0.3 else sink.write)(*numbers)
    written = read_committed(sink.brokers, sink.name)
    count = sum(map(len, written.values()))

    async def test() -> None:
        whole = sink.subscriptions()
        events, first = await begun(whole, sink.name, "earliest")
        got = await some(events, count)
        events.close()
        assert by_partition(got) == {p: [r.offset for r in records] for p, records in written.items()}
        said = [json.loads(event.data) for event in got]
        for partition, records in written.items():
            of_partition = [(it["key"], it["value"]) for it in said if it["partition"] == partition]
            assert of_partition == [(r.key.decode(), json.loads(r.value)) for r in records]
        for cut in (0, *sorted(choice.sample(range(1, count), 8)), count - 1):
            another = sink.subscriptions()
            events, begins = await begun(another, sink.name, got[cut - 1].id if cut else first)
            assert begins == (got[cut - 1].id if cut else first)
            rest = await some(events, count - cut)
            events.close()
            assert by_partition([*got[:cut], *rest]) == by_partition(got)

    run(test)


def test_from_latest_it_gets_what_commits_from_now_on_whole_transactions_only(sink: Sink) -> None:
    sink.make(1)
    sink.write(1, 2)
    sink.begin(3, 4)

    async def test() -> None:
        gateway = sink.subscriptions()
        events, first = await begun(gateway, sink.name)
        nothing = await events.some()
        assert nothing is not None
        assert not nothing.events
        sink.commit()
        got = await some(events, 2)
        events.close()
        # One whose connection breaks before the first event goes on from where it began.
        again, _ = await begun(sink.subscriptions(), sink.name, first)
        assert by_partition(await some(again, 2)) == by_partition(got)
        assert [json.loads(event.data)["value"]["usd"] for event in got] == [3, 4]
        again.close()

    run(test)


def test_a_removed_row_is_a_tombstone_and_a_key_may_be_asked_for(sink: Sink) -> None:
    sink.make(2)
    sink.write(1, 2, 8)
    sink.remove("i1")

    async def test() -> None:
        events, _ = await begun(sink.subscriptions(), sink.name, "earliest", key="i1")
        got = [json.loads(event.data) for event in await some(events, 3)]
        events.close()
        assert [(said["key"], said["value"]) for said in got] == [
            ("i1", {"item": "i1", "usd": 1}), ("i1", {"item": "i1", "usd": 8}), ("i1", None)
        ]  # fmt: skip

    run(test)


def test_what_cannot_be_asked_for_is_refused_in_words(sink: Sink) -> None:
    async def test() -> None:
        gateway = sink.subscriptions(most=1)
        status, said, again = await refused(gateway, sink.name)
        assert (status, said["error"][:28], again) == (503, "the topic of the sink is not", 5)
        sink.make(2)
        status, said, _ = await refused(gateway, f"{sink.name[:-1]}")
        assert status == 404
        assert f"did you mean {sink.name!r}?" in said["hint"]
        assert (await refused(gateway, sink.name, "7"))[:1] == (400,)
        events, first = await begun(gateway, sink.name)
        status, said, again = await refused(gateway, sink.name)
        assert (status, again) == (503, 5)
        assert "1 subscriber already" in said["error"]
        assert (await refused(gateway, sink.name, first))[0] == 503
        events.close()

        async def has_a_place() -> bool:
            found = await gateway.subscribe(Subscribe(sink.name, "latest"))
            if isinstance(found, Reply):
                await asyncio.sleep(0.05)
                return False
            found[0].close()
            return True

        await until(has_a_place)
        body = Metrics(gateway.metrics).reply().body.decode()
        assert f'falkirk_subscribers_refused_total{{sink="{sink.name}"}}' in body
        assert (await refused(sink.subscriptions(most=0), sink.name))[0] == 404

    run(test)


def test_a_position_whose_records_are_deleted_is_gone_and_one_at_the_end_is_not(sink: Sink) -> None:
    sink.make(2)
    sink.write(1, 2, 3)

    async def test() -> None:
        gateway = sink.subscriptions()
        events, first = await begun(gateway, sink.name, "earliest")
        got = await some(events, 3)
        end = ""

        async def at_the_end() -> bool:
            nonlocal end
            more = await events.some()
            assert more is not None
            end, before = more.position, end
            return end == before != got[-1].id

        await until(at_the_end)
        sink.trim()
        for position in (first, got[0].id):
            status, said, _ = await refused(gateway, sink.name, position)
            assert status == 410
            assert "are deleted" in said["error"]
            assert {kept["partition"] for kept in said["kept"]} == {0, 1}
        sink.write(4)
        # It had seen the markers of the transaction, too.
        again, _ = await begun(gateway, sink.name, end)
        assert len(await some(again, 1)) == len(await some(events, 1)) == 1
        again.close()
        events.close()

    run(test)


@pytest.mark.slow
def test_what_is_deleted_under_a_subscriber_is_told_and_not_passed_over(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LITTLE", {**follower.LITTLE, "fetch.message.max.bytes": 500})
    monkeypatch.setattr(follower, "MOST", 1)
    sink.make(1)
    for n in range(100):
        sink.write(*range(n * 50, n * 50 + 50))

    async def test() -> None:
        events, _ = await begun(sink.subscriptions(), sink.name, "earliest")
        found = await some(events, 1)
        sink.trim()
        with pytest.raises(Ended) as raised:
            await drained(events, found)
        assert raised.value.reply.status == 410
        got = by_partition(found)[0]
        assert len(got) < 5000
        assert got == [offset for offset in range(got[-1] + 1) if offset % 51 != 50]
        events.close()

    run(test)


@pytest.mark.slow
def test_another_topic_of_the_same_name_is_another_one_and_more_partitions_are_read(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK", 0.5)
    sink.make(1)
    sink.write(1)

    async def test() -> None:
        gateway = sink.subscriptions()
        events, first = await begun(gateway, sink.name, "earliest")
        old = (await some(events, 1))[0].id
        sink.topics.grow(sink.name, 3)
        sink.renew()
        sink.write(2, partition=2)
        assert by_partition(await some(events, 1)) == {2: [0]}
        events.close()
        again, _ = await begun(gateway, sink.name, old)
        assert by_partition(await some(again, 1)) == {2: [0]}
        sink.topics.delete([sink.name])
        sink.make(1)
        sink.renew()
        sink.write(5, 6, 7)
        with pytest.raises(Ended):
            await drained(again, [])
        again.close()
        status, said, _ = await refused(gateway, sink.name, first)
        assert (status, "another topic" in said["error"]) == (410, True)

    run(test)


def test_a_gateway_that_stops_ends_its_subscribers(sink: Sink) -> None:
    sink.make(1)

    async def test() -> None:
        events, _ = await begun(sink.subscriptions(), sink.name)
        assert await events.some() is not None
        sink.stops = True
        assert await events.some() is None
        events.close()

    run(test)
