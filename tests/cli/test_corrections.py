"""Other code after kill -9, under the lazy regime: it stops, or corrects what was said, however often it is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.live import committed, kill_all
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.records import StepRecord, decode
from falkirk.checkpoint.steps import maker
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.LazyCheckpoint(step="20ms", every="1h", max_rows=60))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
counts = bids.filter(fk.col("price") >= {least}).group_by("auction", id="counts").agg(n=fk.len())
counts.sink("{prefix}counts", key="auction", value=fk.Json())
counts.group_by("n", id="many").agg(auctions=fk.len()).sink("{prefix}many", key="n", value=fk.Json())
"""
LEAST = 60
Bid = tuple[int, int]
OLD, MIXED, NEW = (
    [(i * k % m + b, i * 31 % 100) for i in range(300)] for k, m, b in ((7, 23, 0), (5, 31, 9), (3, 37, 4))
)


class App:
    """An app's file, its topics, and the commands on it."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder, self.name = brokers, prefix, folder, f"{prefix}app"
        Topics(Cluster(brokers)).create(f"{prefix}bids", 2, 1, {})
        self.process: subprocess.Popen[str] | None = None

    def write(self, least: int) -> None:
        (self.folder / "app.py").write_text(FLOW.format(name=self.name, prefix=self.prefix, least=least))

    def feed(self, bids: list[Bid]) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "partitioner": "murmur2", "enable.idempotence": True})
        for auction, price in bids:
            producer.produce(f"{self.prefix}bids", json.dumps({"auction": auction, "price": price}), str(auction))
        producer.flush()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers]

    def run(self, host: str, *arguments: str) -> subprocess.Popen[str]:
        """On a host that has nothing but the checkpoint store in common with the others."""
        there = ("--state-dir", host, "--checkpoints", (self.folder / "checkpoints").as_uri())
        kept = ("--session-timeout", "1s", "--keep-steps", "1h")
        command = self.command("run", "app:flow", *kept, *there, *arguments)
        self.process = subprocess.Popen(command, cwd=self.folder, text=True, stderr=subprocess.PIPE)
        return self.process

    def ended(self, host: str, *arguments: str) -> tuple[int, str]:
        process = self.run(host, *arguments)
        _, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, err

    def call(self, *arguments: str) -> str:
        command = self.command(*arguments)
        done = subprocess.run(command, check=False, cwd=self.folder, text=True, capture_output=True, timeout=PATIENCE_S)
        return done.stdout if done.returncode == 0 else ""

    def processed(self) -> bool:
        found = json.loads(self.call("status", self.name, "--json") or "{}")
        return found.get("state") == "running" and found["lag"] == 0

    def kill(self) -> None:
        """kill -9 of everything, at once."""
        assert self.process is not None
        kill_all(self.process)

    def records(self, topic: str) -> list[tuple[bytes, bytes | None, bytes]]:
        """Key, value and the mark of who made it: what is committed, partition by partition."""
        return [(key or b"", value, made) for key, value, made in committed(self.brokers, topic)]

    def table(self, name: str, column: str) -> dict[int, int]:
        """What a reader who follows the sink holds in the end."""
        last = {key: value for key, value, _ in self.records(f"{self.prefix}{name}")}
        return {int(key): json.loads(value)[column] for key, value in last.items() if value is not None}

    def steps(self) -> list[StepRecord]:
        values = (value for _, value, _ in self.records(f"falkirk.{self.name}.steps"))
        found = (decode(value) for value in values if value is not None)
        return [record for record in found if isinstance(record, StepRecord)]

    def corrected(self) -> list[str]:
        return [record.task for record in self.steps() if record.corrects >= 0]


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[App]:
    running = App(kafka, topic_prefix, tmp_path)
    yield running
    if running.process is not None and running.process.poll() is None:
        running.kill()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check(app: App, *pieces: tuple[list[Bid], int]) -> None:
    """The tables are what each piece of the input gives under its code."""
    due = Counter(auction for bids, least in pieces for auction, price in bids if price >= least)
    assert app.table("counts", "n") == due
    assert app.table("many", "auctions") == Counter(due.values())


@pytest.mark.slow
def test_other_code_after_a_crash_stops_or_corrects_what_was_said_however_often_it_is_killed(app: App) -> None:
    app.write(0)
    app.feed(OLD)
    app.run("a")
    until(app.processed)
    assert app.call("checkpoint", app.name)
    app.feed(MIXED)
    until(app.processed)
    app.kill()
    check(app, (OLD, 0), (MIXED, 0))

    app.write(LEAST)
    app.feed(NEW)
    code, err = app.ended("b")
    assert code == 6, err
    assert "gives another output than the one it published" in err
    assert "--on-divergence correct" in err
    check(app, (OLD, 0), (MIXED, 0))

    process = app.run("c", "--on-divergence", "correct")
    assert process.stderr is not None
    assert next((line for line in process.stderr if "now give other output" in line), "")
    app.kill()  # as it is about to commit the first of them
    process = app.run("d", "--on-divergence", "correct")
    until(lambda: {"counts/0", "counts/1"} <= set(app.corrected()))
    app.kill()
    code, err = app.ended("e", "--until", "end")
    assert code == 0, err
    assert sorted(app.corrected()) == ["counts/0", "counts/1"]
    check(app, (OLD, 0), (MIXED, LEAST), (NEW, LEAST))

    made = [maker(mark) for _, _, mark in app.records(f"{app.prefix}counts")]
    assert len(made) == len(set(made))
    recorded = Counter(
        {(r.task, r.step): sum(o.end for o in r.outputs if o.output.endswith("counts")) for r in app.steps()}
    )
    kept = Counter((m.task, m.step) for m in made if m is not None)
    assert all(kept[at] == count for at, count in recorded.items())
