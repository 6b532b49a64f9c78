"""Subscribers of an app's sinks, while its workers and gateways are killed, against a separate reader of the topics."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from tests.cli.live import kill_one, workers
from tests.serve.oracle import Found, read_committed
from tests.serve.stand import PATIENCE, Stand
from tests.serve.subscriber import Subscriber

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FLOW = f"{Path(__file__).parent / 'sinks_flow.py'}:flow"
SINKS = ("all", "totals", "changes")
KILLS = 5


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path, request: pytest.FixtureRequest) -> Stand:
    stand = Stand(kafka, topic_prefix, tmp_path, request.addfinalizer, FLOW)
    Topics(Cluster(kafka)).create(f"{topic_prefix}orders", 3, 1, {})
    return stand


def write(stand: Stand, orders: int, choice: random.Random, producer: Producer) -> int:
    """So many orders; half of them take something back."""
    for _ in range(orders):
        order = {"item": f"i{choice.randrange(40)}", "usd": choice.randrange(-50, 51)}
        producer.produce(f"{stand.prefix}orders", json.dumps(order), str(choice.random()))
    producer.flush()
    return orders


@contextmanager
def harm(stand: Stand, run: Any, got: Callable[[], int]) -> Iterator[list[int]]:
    """A worker and a gateway are killed -9, each time that all subscribers have got some more events. Gives which."""
    choice, done, kills = random.Random(7), threading.Event(), list[int]()

    def work() -> None:
        before = 0
        while not done.wait(0.1 + choice.random() / 4):
            gateway = choice.randrange(2)
            if got() < before + 60 or not workers(run) or not stand.ready(gateway):
                continue
            before = got()
            with suppress(IndexError):
                kill_one(run)
            stand.kill_gateway(gateway)
            stand.serve(gateway)
            kills.append(gateway)

    harming = threading.Thread(target=work)
    harming.start()
    try:
        yield kills
    finally:
        done.set()
        harming.join()


def test_with_their_last_ids_subscribers_get_each_record_once_and_in_order_though_all_are_killed(stand: Stand) -> None:
    run = stand.run()
    stand.serve(0)
    stand.serve(1)
    stand.until(lambda: stand.ready(0) and stand.ready(1) and workers(run))
    wanted: dict[str, int] = {}
    choice, producer = random.Random(1), Producer({"bootstrap.servers": stand.brokers, "enable.idempotence": True})
    subscribers = [
        Subscriber(f"{stand.prefix}{sink}", lambda: choice.choice(stand.ports), seed)
        for seed, sink in enumerate((*SINKS, "all"))
    ]

    def follow(one: Subscriber) -> None:
        one.until(lambda: len(one.events) >= wanted.get(one.sink, 1 << 60), 2 * PATIENCE)

    with ThreadPoolExecutor(len(subscribers)) as pool:
        following = [pool.submit(follow, one) for one in subscribers]
        orders = 0
        with harm(stand, run, lambda: min(len(one.events) for one in subscribers)) as kills:
            while len(kills) < KILLS:
                orders += write(stand, 3, choice, producer)
                time.sleep(0.03)
        stand.until(lambda: sum(map(len, read_committed(stand.brokers, f"{stand.prefix}all").values())) >= orders)
        run.terminate()  # it commits what it has read
        assert run.wait() == 0
        found = {sink: read_committed(stand.brokers, sink) for sink in {one.sink for one in subscribers}}
        wanted.update({sink: sum(map(len, records.values())) for sink, records in found.items()})
        for future in following:
            future.result()
    for one in subscribers:
        assert got(one) == found[one.sink], one.sink
        assert one.sessions > KILLS
        assert not [status for status, _ in one.refused if status != 503]
    assert any(record.value is None for records in found[f"{stand.prefix}totals"].values() for record in records)
    weights = [event["value"]["weight"] for event in subscribers[2].events]
    assert {1, -1} == set(weights)


def measured(stand: Stand, metric: str, sink: str) -> float:
    """A metric of gateway 0."""
    with closing(HTTPConnection("127.0.0.1", stand.ports[0], timeout=60)) as connection:
        connection.request("GET", "/metrics")
        said = connection.getresponse().read().decode()
    [value] = re.findall(rf'^{metric}{{sink="{sink}"}} (.*)$', said, re.MULTILINE)
    return float(value)


def got(subscriber: Subscriber) -> dict[int, list[Found]]:
    """The records of each partition, in the order in which they came."""
    found = defaultdict(list)
    for event in subscriber.events:
        value = None if event["value"] is None else as_json(event["value"])
        found[event["partition"]].append(Found(event["offset"], event["key"].encode(), value))
    return dict(found)


def as_json(value: dict[str, Any]) -> bytes:
    """As the flow's format writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def test_a_gateway_of_sinks_alone_serves_what_is_kept_while_the_app_is_down_and_ends_with_a_signal(
    stand: Stand,
) -> None:
    stand.serve(0, "--subscribers", "1")
    stand.until(lambda: stand.ready(0))
    all_ = f"{stand.prefix}all"
    early = stand.ask(0, f"sinks/{all_}", b"", method="GET")
    assert early is not None
    assert (early.status, int(early.headers["retry-after"]) > 0) == (503, True)
    write(stand, 50, random.Random(3), Producer({"bootstrap.servers": stand.brokers, "enable.idempotence": True}))
    run = stand.run("--until", "end")
    assert run.wait() == 0
    subscriber = Subscriber(all_, lambda: stand.ports[0])
    reading = threading.Thread(target=lambda: subscriber.connect(lambda: False, 1 << 30))
    reading.start()
    stand.until(lambda: len(subscriber.events) >= 50)
    assert got(subscriber) == read_committed(stand.brokers, all_)
    more = stand.ask(0, f"sinks/{all_}", b"", method="GET")
    assert more is not None
    assert more.status == 503
    assert measured(stand, "falkirk_subscribers", all_) == 1
    assert measured(stand, "falkirk_subscriber_events_total", all_) == 50
    assert measured(stand, "falkirk_subscribers_refused_total", all_) == 1
    gateway = stand.gateways[0]
    assert gateway is not None
    gateway.terminate()
    assert gateway.wait() == 0
    reading.join()
    assert len(subscriber.events) == 50


def test_clients_that_take_nothing_cost_no_memory_are_cut_off_and_go_on_after_their_last_event(stand: Stand) -> None:
    records, clients, large = 40_000, 5, 1 << 26
    all_ = f"{stand.prefix}all"
    Topics(Cluster(stand.brokers)).create(all_, 1, 1, {})
    producer = Producer(
        {
            "bootstrap.servers": stand.brokers,
            "linger.ms": 5,
            "queue.buffering.max.messages": records,
            "enable.idempotence": True,
        }
    )
    for n in range(records):
        producer.produce(all_, b'{"item":"%b","usd":%d}' % (b"x" * 2000, n), b"k")
    producer.flush()
    stand.serve(0)
    stand.until(lambda: stand.ready(0))
    gateway = stand.gateways[0]
    assert gateway is not None
    patient = Subscriber(all_, lambda: stand.ports[0])
    patient.connect(lambda: len(patient.events) >= 10, 10)
    before = psutil.Process(gateway.pid).memory_info().rss
    stuck = []
    for _ in range(clients):
        stuck.append(socket.create_connection(("127.0.0.1", stand.ports[0])))
        stuck[-1].sendall(f"GET /sinks/{all_}?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    stand.until(lambda: measured(stand, "falkirk_subscribers", all_) == clients)
    stand.until(lambda: measured(stand, "falkirk_subscribers_cut_off_total", all_) == clients)
    assert measured(stand, "falkirk_subscriber_events_total", all_) < clients * records / 4
    # All records of all clients have 400 MB.
    assert psutil.Process(gateway.pid).memory_info().rss - before < large
    stand.until(lambda: measured(stand, "falkirk_subscribers", all_) == 0)
    patient.until(lambda: len(patient.events) >= records, PATIENCE, 1 << 30)
    assert [event["value"]["usd"] for event in patient.events] == list(range(records))
    for client in stuck:
        client.close()
