"""`falkirk run --on spark` as a process of its own, fed all the while, and what ought to come of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from tests.connectors.spark.cluster.standalone import end, executor_flags, line, until
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.records import Named, Released
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.status import Status, read_status
from falkirk.runtime.layout.progress import last_records
from falkirk.stream.definition.names import steps_topic

FLOW = """
from __future__ import annotations
import falkirk as fk
import prices

flow = fk.Flow("{prefix}app", regime=fk.EagerCheckpoint(step="50ms", every="1s"))
bids = flow.source("bids", topic="{prefix}bids", key="auction", value=fk.Json({{"auction": int, "n": int}}))
bids.map(prices.priced, returns={{"n": int, "price": int}}).sink("copies", topic="{prefix}copies", value=fk.Json())
counts = bids.group_by("auction", id="counts").agg(n=fk.len(), top=fk.max("n"))
counts.sink("counts", topic="{prefix}counts", key="auction", value=fk.Json())
"""
BATCH = """
whole = bids.with_regime(fk.Batch())
totals = whole.group_by("auction", id="totals").agg(n=fk.len())
totals.sink("totals", topic="{prefix}totals", key="auction", value=fk.Json())
"""
PRICES = """
def priced(bid):
    if bid["n"] < 0:
        raise ValueError("no such bid")
    return {"n": bid["n"], "price": 7 * bid["n"]}
"""
PARTITIONS, KEYS = 4, 97


@dataclass
class OnSpark:
    """The flow's topics and files, and runs of it."""

    topic: Callable[..., Topic]
    folder: Path
    master: str
    workers: int = 2
    session: str = "2s"
    """How long a worker may be silent before its tasks are given to others. A busy machine may be so for longer than this:
    where a test judges how workers leave, nobody else may take their tasks meanwhile."""
    sent: int = 0

    def __post_init__(self) -> None:
        self.bids, self.copies, self.counts = (self.topic(n, PARTITIONS) for n in ("bids", "copies", "counts"))
        self.prefix = self.bids.name.removesuffix("bids")
        self.app = f"{self.prefix}app"
        (self.folder / "app.py").write_text(FLOW.format(prefix=self.prefix))
        (self.folder / "prices.py").write_text(PRICES)
        self.settings = Settings(self.bids.brokers, "")
        self.log = self.folder / "run.log"
        self._feeding = threading.Event()

    def start(self, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a run."""
        command = [sys.executable, "-m", "falkirk", "run", "app.py:flow", "--brokers", self.bids.brokers]
        command += ["--on", "spark", "--spark", self.master, "--workers", str(self.workers)]
        command += ["--state-dir", str(self.folder / "state"), "--checkpoints", (self.folder / "versions").as_uri()]
        command += ["--session-timeout", self.session]
        for setting in ("spark.executor.memory=512m", "spark.ui.enabled=false", executor_flags()):
            command += ["--spark-set", setting]
        command += more
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **environment}
            )
        return self.process

    def said(self) -> str:
        """All that runs have said so far."""
        return self.log.read_text()

    def status(self) -> Status | None:
        """How the app is, once there is one."""
        try:
            return read_status(self.app, self.settings, Topics(self.settings.cluster()))
        except FalkirkError:
            return None

    def running(self, workers: int) -> Status:
        """Wait until all tasks run, on so many workers, which have all reported."""

        def look() -> Status | None:
            assert self.process.poll() is None, self.said()
            now = self.status()
            pids = {w.pid for w in now.workers if w.member} if now is not None else set()
            there = len(pids) == workers and pids <= {p.pid for p in self.children()}
            return now if now is not None and now.state == "running" and there else None

        return until(look, f"{workers} workers run: {self.said()}")

    def lose(self, victim: psutil.Process) -> None:
        """Kill it, and wait until another worker has come for the one that was lost with it, and all tasks run."""
        before = {p.pid for p in self.children()}
        end(victim)

        def replaced() -> bool:
            now = {p.pid for p in self.children()}
            return len(now) == len(before) and len(now - before) == 1

        until(replaced, f"one is replaced, and the others live: {self.said()}")
        time.sleep(1)
        self.running(len(before))

    def feed(self, count: int) -> None:
        """So many bids."""
        producer = Producer(
            {"bootstrap.servers": self.bids.brokers, "partitioner": "murmur2", "enable.idempotence": True}
        )
        for n in range(self.sent, self.sent + count):
            producer.produce(self.bids.name, json.dumps({"auction": n % KEYS, "n": n}), str(n % KEYS))
        assert producer.flush(PATIENCE_S) == 0
        self.sent += count

    def fed(self) -> threading.Thread:
        """Feed in the background, until `starve`."""

        def feed() -> None:
            while not self._feeding.is_set():
                self.feed(50)
                time.sleep(0.05)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        return thread

    def starve(self, feeding: threading.Thread) -> None:
        """No more bids."""
        self._feeding.set()
        feeding.join()
        self._feeding.clear()

    def check(self) -> None:
        """Wait for the last bid's effects; then everything that a reader sees has to be as it ought to be."""

        def copies() -> list[int]:
            return [json.loads(f.value or b"{}")["n"] for f in self.copies.committed()]

        def there() -> bool:
            assert self.process.poll() in (None, 0), self.said()
            return len(copies()) >= self.sent

        until(there, f"{self.sent} bids are copied: {self.said()}")
        assert Counter(copies()) == Counter(range(self.sent)), "each bid once"
        last: dict[bytes | None, dict[str, Any]] = {}
        for found in self.counts.committed():
            row = json.loads(found.value or b"{}")
            assert row["n"] > last.get(found.key, {"n": 0})["n"], "a count that goes back, or comes twice"
            last[found.key] = row
        assert {row["auction"]: row["n"] for row in last.values()} == self.expected()

    def expected(self) -> Counter[int]:
        """How many bids each auction has."""
        return Counter(n % KEYS for n in range(self.sent))

    def leave(self, patience: float = PATIENCE_S) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(patience)

    def handed_over(self) -> bool:
        """Whether each task was released by the worker that ran it. Another one may have been named since, which was leaving
        too and never ran it: that one has nothing to release."""
        counted = self.status()
        assert counted is not None
        steps = [TopicPartition(steps_topic(self.settings.prefix, self.app), i) for i in range(len(counted.tasks))]
        return all(
            isinstance(next(r for _, r in reversed(records) if not isinstance(r, Named)), Released)
            for records in last_records(self.settings, steps)
        )

    def children(self) -> list[psutil.Process]:
        """The worker processes of this app, wherever they are on this machine."""
        return [
            p
            for p in psutil.process_iter()
            if "falkirk.runtime.processes.process" in line(p) and at_work_in(p, self.folder)
        ]


def at_work_in(process: psutil.Process, folder: Path) -> bool:
    """Whether a process has files of a folder open, as a worker has its lock."""
    try:
        return any(Path(file.path).is_relative_to(folder) for file in process.open_files())
    except psutil.Error:  # it ended meanwhile
        return False
