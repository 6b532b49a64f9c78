"""The proxy before a real broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.faults.faults import CUT_OFF, HOLD, IGNORE, LOSE, LOSE_ANSWER, At, Fault, Frame, Line, Plan, Until
from tests.faults.frames import Api, correlation_of
from tests.faults.proxy import Proxy
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

QUICK = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "retry.backoff.max.ms": 20}


@pytest.fixture
def proxy(kafka: str) -> Iterator[Proxy]:
    with Proxy(kafka) as one:
        yield one


@pytest.fixture
def topic(kafka: str, topic_prefix: str) -> str:
    Topics(Cluster(kafka)).create(f"{topic_prefix}numbers", 1, 1, {})
    return f"{topic_prefix}numbers"


class Client:
    """Asks for API versions, which any broker answers at once."""

    def __init__(self, proxy: Proxy) -> None:
        host, _, port = proxy.address.partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.settimeout(20)

    def ask(self, *correlations: int) -> None:
        for correlation in correlations:
            header = struct.pack(">hhih", Api.API_VERSIONS, 0, correlation, -1)
            self.socket.sendall(struct.pack(">i", len(header)) + header)

    def answer(self) -> int:
        """Which request the next response answers; -1 where the connection has ended."""
        frame = self._read(4)
        if not frame:
            return -1
        return correlation_of(frame + self._read(int.from_bytes(frame)))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data


def transactional(proxy: Proxy) -> Producer:
    producer = Producer({"bootstrap.servers": proxy.address, "transactional.id": uuid4().hex, **QUICK, "log_level": 0})
    producer.init_transactions(20)
    return producer


def transact(producer: Producer, topic: str, *values: str, commit: bool = True) -> None:
    """A transaction that waits for the broker after each record."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
        producer.flush(PATIENCE_S)
    if commit:
        producer.commit_transaction(20)
    else:
        producer.abort_transaction(20)


def decided(brokers: str, topic: str) -> None:
    """Wait for the markers of what has ended, for some seconds: a commit returns before they are written."""
    admin, place = AdminClient({"bootstrap.servers": brokers}), TopicPartition(topic, 0)
    ends, deadline = [0, 1], time.monotonic() + PATIENCE_S
    while ends[0] != ends[1] and time.monotonic() < deadline:
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        asked = [admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level) for level in levels]
        ends = [answer[place].result(PATIENCE_S).offset for answer in asked]


def committed(brokers: str, topic: str) -> list[str]:
    """What a reader sees, once no transaction is open."""
    decided(brokers, topic)
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": "faults", "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def test_clients_stay_behind_the_proxy(kafka: str, proxy: Proxy, topic: str) -> None:
    producer = transactional(proxy)
    transact(producer, topic, "1", "2")
    assert [f"{b.host}:{b.port}" for b in producer.list_topics(timeout=PATIENCE_S).brokers.values()] == [proxy.address]
    assert committed(proxy.address, topic) == ["1", "2"] == committed(kafka, topic)
    assert proxy.requests[Api.END_TXN] == 1
    assert proxy.requests[Api.FETCH] > 0


def test_large_records_and_many_pass_unchanged(kafka: str, proxy: Proxy, topic: str) -> None:
    producer = transactional(proxy)
    values = [str(i) * 10_000 for i in range(100)]
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(20)
    assert committed(proxy.address, topic) == values


@pytest.mark.slow
def test_several_brokers_have_a_port_each(embedded: Callable[..., EmbeddedKafka]) -> None:
    with embedded("one") as one, embedded("other") as other, Proxy(f"{one.bootstrap},{other.bootstrap}") as proxy:
        for address in proxy.address.split(","):
            brokers = Producer({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_S).brokers.values()
            assert [f"{broker.host}:{broker.port}" for broker in brokers] == [address]


def test_a_request_that_is_lost_takes_its_connection_with_it(proxy: Proxy) -> None:
    proxy.add(LOSE, Api.API_VERSIONS, nth=2)
    client = Client(proxy)
    client.ask(1)
    assert client.answer() == 1
    client.ask(2)
    with pytest.raises(ConnectionResetError):
        client.answer()
    another = Client(proxy)
    another.ask(3)
    assert another.answer() == 3
    assert proxy.journal.faults == {("ApiVersions", "request: drop + reset"): 1}


def test_a_request_that_is_ignored_leaves_its_connection_as_it_is(proxy: Proxy) -> None:
    proxy.add(IGNORE, Api.API_VERSIONS)
    client = Client(proxy)
    client.ask(1, 2)
    assert client.answer() == 2


def test_what_comes_behind_a_delayed_frame_waits_too(proxy: Proxy) -> None:
    for at in At:
        proxy.add(Fault(Frame.DELAY, at=at, seconds=0.3), Api.API_VERSIONS)
        client, began = Client(proxy), time.monotonic()
        client.ask(1, 2)
        assert [client.answer(), client.answer()] == [1, 2]
        assert time.monotonic() - began >= 0.3


def test_what_is_sent_twice_is_answered_once(proxy: Proxy) -> None:
    proxy.add(Fault(Frame.DUPLICATE), Api.API_VERSIONS)
    client = Client(proxy)
    client.ask(1, 2)
    assert [client.answer(), client.answer()] == [1, 2]


def test_an_answer_can_come_twice(proxy: Proxy) -> None:
    proxy.add(Fault(Frame.DUPLICATE, at=At.RESPONSE), Api.API_VERSIONS)
    client = Client(proxy)
    client.ask(1, 2)
    assert [client.answer(), client.answer(), client.answer()] == [1, 1, 2]


def test_a_connection_is_closed_in_one_direction(proxy: Proxy) -> None:
    proxy.add(Fault(line=Line.HALF_CLOSE, at=At.RESPONSE), Api.API_VERSIONS)
    client = Client(proxy)
    client.ask(1)
    assert [client.answer(), client.answer()] == [1, -1]
    proxy.add(Fault(Frame.DROP, Line.HALF_CLOSE), Api.API_VERSIONS)
    client = Client(proxy)
    client.ask(1)
    assert client.answer() == -1


def test_a_rule_can_be_about_one_connection(proxy: Proxy) -> None:
    proxy.add(IGNORE, Api.API_VERSIONS, times=None).matches = lambda request: request.connection == 1
    first, second = Client(proxy), Client(proxy)
    first.ask(1)
    proxy.journal.wait_for("request: drop")
    second.ask(2)
    assert second.answer() == 2


@pytest.mark.parametrize("fault", [LOSE, CUT_OFF, LOSE_ANSWER], ids=str)
@pytest.mark.parametrize(
    "api", [Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN, Api.INIT_PRODUCER_ID], ids=lambda api: api.name
)
def test_a_producer_outlives_a_connection_that_breaks(
    kafka: str, proxy: Proxy, topic: str, api: Api, fault: Fault
) -> None:
    rule = proxy.add(fault, api)
    producer = transactional(proxy)
    transact(producer, topic, "1", "2")
    transact(producer, topic, "3")
    assert rule.met > 1
    assert committed(kafka, topic) == ["1", "2", "3"]


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_held_end_of_a_transaction_reaches_the_next_one(kafka: str, proxy: Proxy, topic: str, commit: bool) -> None:
    """A plain producer's transaction is cut in two: the broker takes the late EndTxn for the end of the next one."""
    producer = transactional(proxy)
    proxy.add(HOLD, Api.END_TXN)
    transact(producer, topic, "1", commit=commit)
    with suppress(KafkaException):  # none, where both records come before the late EndTxn
        transact(producer, topic, "2", "3")
    proxy.journal.wait_for("answered")
    assert [entry.what for entry in proxy.journal.entries] == [str(HOLD), "delivered", "answered"]
    assert proxy.journal.entries[-1].error == 0
    assert committed(kafka, topic)[:2] == (["1", "2"] if commit else [])


def test_a_held_request_is_delivered_in_the_end_though_nothing_follows_it(proxy: Proxy, topic: str) -> None:
    producer = transactional(proxy)
    proxy.add(Fault(Frame.HOLD, Line.RESET, until=Until(seconds=0.3)), Api.END_TXN)
    transact(producer, topic, "1")
    assert proxy.journal.wait_for("answered").error == 0


def test_a_seed_decides_the_faults(kafka: str, topic: str) -> None:
    def faults(seed: int) -> list[str]:
        mix = [(1.0, LOSE), (1.0, CUT_OFF), (1.0, LOSE_ANSWER)]
        with Proxy(kafka, Plan(seed, {Api.END_TXN: 0.3}, mix)) as proxy:
            producer = transactional(proxy)
            for i in range(20):
                transact(producer, topic, str(i))
            assert str(proxy.journal).startswith(f"seed {seed}")
            return [entry.what for entry in proxy.journal.entries]

    one, again, other = faults(1), faults(1), faults(2)
    shared = min(len(one), len(again))  # a broker that is slow to end a transaction is asked again: more requests
    assert shared > 2
    assert one[:shared] == again[:shared] != other[:shared]


def test_a_proxy_before_no_broker_refuses() -> None:
    with Proxy("127.0.0.1:1") as proxy:
        client = Client(proxy)
        with pytest.raises(ConnectionResetError):
            client.answer()
