"""A stream that looks tables up, from the command line: every row finds what was there, and workers are killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.reading import read_topics
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

FLOW = """
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(step="50ms", every="1s"))
names = flow.table("{p}names", key="id", value=fk.Json({{"id": fk.Int64, "name": fk.String}}))
towns = flow.table("{p}towns", key="town", value=fk.Json({{"country": fk.String}}))
lands = flow.table("{p}lands", key="land", value=fk.Json({{"land": fk.Int64, "size": fk.Int64}}), broadcast=True)
order = {{"n": fk.Int64, "id": fk.Int64, "town": fk.String, "land": fk.Int64}}
orders = flow.source("{p}orders", key="id", value=fk.Json(order))
orders.lookup(names).lookup(lands, "land").lookup(towns, id="towns").sink("{p}known", key="id", value=fk.Json())
"""
PARTITIONS, IDS, TOWNS, LANDS = 3, 500, 7, 11
COMPACTED = {"cleanup.policy": "compact"}


class App:
    """A flow's files, its topics, and the processes that run it."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder, self.n = brokers, prefix, folder, 0
        self.log = folder / "log"
        (folder / "app.py").write_text(FLOW.format(name=f"{prefix}app", p=prefix))
        topics = Topics(Cluster(brokers))
        for name, config in {
            "orders": {},
            "names": COMPACTED,
            "towns": COMPACTED,
            "lands": COMPACTED,
            "known": {},
        }.items():
            topics.create(prefix + name, PARTITIONS, 1, config)
        self.producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2", "enable.idempotence": True})

    def put(self, topic: str, key: str, value: dict[str, Any] | None) -> None:
        self.producer.produce(self.prefix + topic, None if value is None else json.dumps(value), key)

    def name_all(self, word: str) -> None:
        for i in range(IDS):
            self.put("names", str(i), {"id": i, "name": f"{word}{i}"})
        for i in range(TOWNS):
            self.put("towns", f"t{i}", {"country": f"{word}{i}"})
        for i in range(LANDS):
            self.put("lands", str(i), {"land": i, "size": ord(word) * i})
        self.producer.flush()

    def order(self, count: int) -> None:
        for _ in range(count):
            town, land = f"t{self.n % (TOWNS + 1)}", self.n % (LANDS + 1)
            self.put("orders", str(self.n % IDS), {"n": self.n, "id": self.n % IDS, "town": town, "land": land})
            self.n += 1
        self.producer.flush()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "falkirk", "run", "app.py:flow", "--brokers", self.brokers, *arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)

    def run_to_end(self) -> None:
        assert self.start("--until", "end").wait(PATIENCE_S) == 0, self.log.read_text()

    def known(self) -> list[dict[str, Any]]:
        """All of the output, as a read_committed reader has it, in the order of n."""
        found = [json.loads(m.value() or b"null") for m in read_topics(self.brokers, f"{self.prefix}known")]
        return sorted(found, key=lambda row: int(row["n"]))


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> App:
    return App(kafka, topic_prefix, tmp_path)


def expected(n: int, word: str) -> dict[str, Any]:
    town, land = n % (TOWNS + 1), n % (LANDS + 1)
    return {
        "n": n, "id": n % IDS, "town": f"t{town}", "land": land, "name": f"{word}{n % IDS}",
        "size": ord(word) * land if land < LANDS else None, "country": f"{word}{town}" if town < TOWNS else None,
    }  # fmt: skip


@pytest.mark.slow
def test_rows_find_what_was_in_their_tables_before(app: App) -> None:
    app.name_all("a")
    app.order(2_000)  # the towns pass through an exchange, which may take longer than an order does: orders wait
    app.run_to_end()
    assert app.known() == [expected(n, "a") for n in range(2_000)]

    app.name_all("b")
    for i in range(IDS):
        if i % 2:
            app.put("names", str(i), None)
    app.order(1_000)
    app.run_to_end()
    later = [expected(n, "b") for n in range(2_000, 3_000)]
    for row in later:
        row["name"] = None if row["id"] % 2 else row["name"]
    assert app.known()[2_000:] == later


@pytest.mark.slow
def test_tables_that_need_no_exchange_are_read_before_the_first_row(app: App) -> None:
    app.order(1_000)
    app.name_all("a")
    app.run_to_end()
    wanted = [expected(n, "a") for n in range(1_000)]
    assert [(row["name"], row["size"]) for row in app.known()] == [(row["name"], row["size"]) for row in wanted]


@pytest.mark.slow
def test_tables_outlive_their_workers(app: App) -> None:
    app.name_all("a")
    app.run_to_end()
    before, run = len(app.log.read_text()), app.start("--workers", "2")
    killed, deadline = set[int](), time.monotonic() + PATIENCE_S
    while len(killed) < 5 and time.monotonic() < deadline:
        app.order(400)
        recovered = re.findall(
            r"worker \d+ \(pid (\d+)\) (?:now runs \d+ tasks|has recovered)", app.log.read_text()[before:]
        )
        ready = {int(pid) for pid in recovered} - killed
        if ready:
            victim = ready.pop()
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        time.sleep(1)
    run.send_signal(signal.SIGTERM)
    run.wait(PATIENCE_S)
    assert len(killed) == 5, app.log.read_text()
    app.run_to_end()
    found = app.known()
    assert Counter(row["n"] for row in found) == Counter(range(app.n))
    assert found == [expected(n, "a") for n in range(app.n)]


SLOW_TABLE = """
import falkirk as fk

flow = fk.Flow("{p}app", regime=fk.EagerCheckpoint(step="2s"))
orders = flow.source("{p}orders", key="id", value=fk.Json({{"n": fk.Int64, "id": fk.Int64, "town": fk.String}}))
towns = flow.table("{p}towns", key="town", value=fk.Json({{"country": fk.String}}))
quick = orders.with_regime(fk.EagerCheckpoint(step="20ms"))
quick.lookup(towns).sink("{p}known", key="id", value=fk.Json())
"""


@pytest.mark.slow
def test_rows_wait_at_each_start_for_a_table_that_comes_through_an_exchange(app: App) -> None:
    (app.folder / "app.py").write_text(SLOW_TABLE.format(p=app.prefix))
    for start, word in enumerate("ab"):
        for i in range(TOWNS):
            app.put("towns", f"t{i}", {"country": f"{word}{i}"})
        for n in range(300 * start, 300 * start + 300):
            app.put("orders", str(n), {"n": n, "id": n, "town": f"t{n % TOWNS}"})
        app.producer.flush()
        app.run_to_end()
    countries = [row["country"] for row in app.known()]
    assert countries == [f"{'a' if n < 300 else 'b'}{n % TOWNS}" for n in range(600)]
