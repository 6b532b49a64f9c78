"""Hosts whose clock is not the broker's. Their processes really live with another wall clock."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.cli.live import committed
from tests.clocks.conftest import ShiftedClock
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.records import Released, StepRecord
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.progress import last_records

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(step="50ms"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())
"""

HOURS = 2 * 3600.0
OFF = 11
"""The exit code of a host whose clock is off."""


class Hosts:
    """An app with two tasks, and the hosts that it runs on."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.name, self.prefix, self.folder = brokers, f"{prefix}app", prefix, folder
        (folder / "app.py").write_text(FLOW.format(name=self.name, prefix=prefix))
        self.topics = Topics(Cluster(brokers))
        self.topics.create(f"{prefix}bids", 2, 1, {})
        self.processes: list[subprocess.Popen[str]] = []

    def feed(self, count: int = 100) -> None:
        producer = Producer({"bootstrap.servers": self.brokers, "partitioner": "murmur2", "enable.idempotence": True})
        for i in range(count):
            producer.produce(f"{self.prefix}bids", json.dumps({"auction": i % 7}), str(i % 7))
        producer.flush()

    def start(self, *arguments: str, clock: ShiftedClock | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers], cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=None if clock is None else clock.environment,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def call(self, *arguments: str, clock: ShiftedClock | None = None) -> tuple[int, str, str]:
        process = self.start(*arguments, clock=clock)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def worker(self, host: str, *options: str, clock: ShiftedClock | None = None) -> subprocess.Popen[str]:
        return self.start("worker", "app:flow", "--state-dir", host, *options, clock=clock)

    def status(self) -> dict[str, Any]:
        code, out, err = self.call("status", self.name, "--json")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def until_counted(self, records: int) -> None:
        """Until the newest counts tell of so many records."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                newest = {key: json.loads(value or b"")["n"] for key, value, _ in self.results()}
            except KeyError:  # no worker has made the sink yet
                newest = {}
            if sum(newest.values()) == records:
                return
            assert time.monotonic() < deadline, newest
            time.sleep(0.2)

    def results(self) -> list[tuple[bytes | None, bytes | None, bytes]]:
        return committed(self.brokers, f"{self.prefix}counts")

    def records(self) -> list[list[Any]]:
        """The task records of each task."""
        places = [TopicPartition(f"falkirk.{self.name}.steps", p) for p in range(2)]
        return [[r for _, r in found] for found in last_records(Settings(self.brokers, ""), places)]


@pytest.fixture
def hosts(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(kafka, topic_prefix, tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def test_a_host_whose_clock_is_off_takes_no_tasks_and_says_so(hosts: Hosts, shifted: ShiftedClock) -> None:
    hosts.feed()
    shifted.set(-HOURS)
    code, _, err = hosts.call("run", "app:flow", "--until", "end", clock=shifted)
    assert code == OFF, err
    assert re.search(r"clock is 1:59:[\d.]+ behind the broker's|clock is 2:00:00 behind the broker's", err), err
    assert "--clock-bound" in err
    assert hosts.records() == [[], []]


@pytest.mark.slow
def test_beside_a_host_whose_clock_is_off_a_sound_one_is_not_disturbed(hosts: Hosts, shifted: ShiftedClock) -> None:
    hosts.feed()
    sound = hosts.worker("sound")
    hosts.until_counted(100)
    before = [[type(r).__name__ for r in task] for task in hosts.records()]
    shifted.set(HOURS)
    off = hosts.worker("off", clock=shifted)
    _, err = off.communicate(timeout=PATIENCE_S)
    assert off.returncode == OFF, err
    assert [[type(r).__name__ for r in task] for task in hosts.records()] == before  # nobody was named since
    hosts.feed()
    hosts.until_counted(200)
    sound.send_signal(signal.SIGTERM)
    assert sound.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_a_clock_that_jumps_ends_the_worker_before_it_dates_another_step(hosts: Hosts, shifted: ShiftedClock) -> None:
    hosts.feed()
    worker = hosts.worker("host", clock=shifted)
    hosts.until_counted(100)
    shifted.set(HOURS)
    hosts.feed()
    _, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == OFF, err
    assert "ahead of the broker's" in err
    for task in hosts.records():
        assert isinstance(task[-1], Released)  # the next host need not wait for the session's end
        assert all(r.clock < (time.time() + HOURS / 2) * 1000 for r in task if isinstance(r, StepRecord))
    code, _, err = hosts.call("run", "app:flow", "--until", "end", "--state-dir", "other")
    assert code == 0, err
    hosts.until_counted(200)


@pytest.mark.slow
def test_a_clock_that_is_off_by_less_than_the_bound_is_shown(hosts: Hosts, shifted: ShiftedClock) -> None:
    hosts.feed()
    shifted.set(40)
    worker = hosts.worker("host", clock=shifted)
    hosts.until_counted(100)
    deadline = time.monotonic() + PATIENCE_S
    while not (found := [w for w in hosts.status()["workers"] if w["clock_ahead_ms"] is not None]):
        assert time.monotonic() < deadline
    assert 20_000 < found[0]["clock_ahead_ms"] <= 41_000
    code, out, err = hosts.call("check", "app:flow", clock=shifted)
    assert "✓ clock" in out, out + err
    assert "ahead of the broker's" in out
    code, out, _ = hosts.call("check", "app:flow", "--clock-bound", "10s", clock=shifted)
    assert code == 1
    assert "✗ clock" in out
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
