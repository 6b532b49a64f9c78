"""How well recoveries are predicted: a host is lost again and again, after `falkirk plan --if-dies` was asked what it costs.

    python bench/predictions.py [--crashes 20] [--most 100000]

Each round makes a version, feeds a random number of records, waits until they are processed, asks for the plan, kills the run
(kill -9), deletes its stores, and starts it again: each task then begins with its copied version, as on another host. The log
of the new workers says what their take-overs took. The first rounds teach the rates: they are shown, and not counted.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
from broker import Kafka
from confluent_kafka import Producer
from rich.console import Console

APP = "predictions"
FLOW = f"""
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{APP}", regime=fk.EagerCheckpoint(every="1h"))
bids = flow.source("bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("counts", key="auction", value=fk.Json())
again = bids.with_regime(fk.LazyCheckpoint(every="1h"))
again.group_by("auction", id="sums").agg(n=fk.sum("price")).sink("sums", key="auction", value=fk.Json())
"""
TOOK = re.compile(r"task (\S+) was taken over in ([0-9.]+) s ")
KEYS = 5_000
LEARN = 3
"""Rounds that are not counted."""
GOOD = 0.3
DEADLINE = 600.0


class Host:
    """A run that is lost with its stores. What its workers have measured stays, as other hosts would have measured it."""

    def __init__(self, brokers: str, folder: Path, app: str = APP, flow: str = FLOW) -> None:
        self.brokers, self.folder, self.app = brokers, folder, app
        (folder / "app.py").write_text(flow)
        self.run: subprocess.Popen[bytes] | None = None

    def call(self, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout or done.stderr

    def start(self) -> None:
        options = ["--state-dir", "state", "--checkpoints", (self.folder / "copies").as_uri(), "--log-level", "info"]
        command = [sys.executable, "-m", "falkirk", "run", "app.py:flow", "--brokers", self.brokers, *options]
        with (self.folder / "log").open("w") as log:
            self.run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log)

    def settle(self, records: int, stages: int = 2) -> None:
        """Wait until all tasks run, and each stage has read so many records."""
        begun = time.monotonic()
        while time.monotonic() - begun < DEADLINE:
            code, said = self.call("status", self.app, "--json")
            if code == 0:
                found = json.loads(said)
                read = sum(i["position"] for t in found["tasks"] for i in t["inputs"])
                if found["state"] == "running" and found["lag"] == 0 and read >= stages * records:
                    return
            time.sleep(0.5)
        raise SystemExit((self.folder / "log").read_text())

    def plan(self) -> dict[str, Any]:
        """Once the workers have reported what they measured: every five seconds."""
        time.sleep(6)
        code, said = self.call("plan", self.app, "--if-dies", socket.gethostname(), "--json")
        if code:
            raise SystemExit(said)
        found: dict[str, Any] = json.loads(said)
        return found

    def lose(self) -> None:
        assert self.run is not None
        self.run.kill()  # its workers end with it
        self.run.wait()
        time.sleep(3)
        for worker in (self.folder / "state" / self.app).glob("worker-*"):
            for store in worker.iterdir():
                if store.is_dir():
                    shutil.rmtree(store)

    def took(self, tasks: int) -> dict[str, float]:
        """Once all tasks have been taken over. (The last reports of those that died are still there.)"""
        begun = time.monotonic()
        while time.monotonic() - begun < DEADLINE:
            found = {task: float(seconds) for task, seconds in TOOK.findall((self.folder / "log").read_text())}
            if len(found) == tasks:
                return found
            time.sleep(0.5)
        raise SystemExit((self.folder / "log").read_text())


def feed(brokers: str, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": brokers, "partitioner": "murmur2", "linger.ms": 50, "enable.idempotence": True}
    )
    for i in range(count):
        auction = random.randrange(KEYS)
        producer.produce("bids", json.dumps({"auction": auction, "price": i}), str(auction))
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush()


@click.command()
@click.option("--crashes", default=20, show_default=True)
@click.option("--most", default=100_000, show_default=True, help="Records between a version and a crash, at most.")
def main(crashes: int, most: int) -> None:
    """Compare predicted recoveries with what they took."""
    console, folder = Console(highlight=False, width=140), Path(tempfile.mkdtemp(prefix="falkirk-bench-"))
    try:
        kafka = Kafka(folder / "kafka", console)
        kafka.make("bids", partitions=2)
        host, fed, errors = Host(kafka.brokers, folder), 0, list[float]()
        host.start()
        for crash in range(crashes + LEARN):
            feed(kafka.brokers, 1_000)
            fed += 1_000
            host.settle(fed)
            code, said = host.call("checkpoint", APP)
            assert code == 0, said
            count = random.randint(most // 50, most)
            feed(kafka.brokers, count)
            fed += count
            host.settle(fed)
            planned = host.plan()
            host.lose()
            host.start()
            took = host.took(len(planned["tasks"]))
            host.settle(fed)
            for task in planned["tasks"]:
                work = task["work"]
                predicted = max(work["name"], work["fetch"]) + work["open"] + work["replay"]
                error = predicted / took[task["task"]] - 1
                learns = crash < LEARN
                errors += [] if learns else [error]
                round_ = "learns" if learns else f"crash {crash - LEARN + 1}"
                after = took[task["task"]]
                console.print(
                    f"{round_:9} {task['task']:9} {task['records']:>8,} records: predicted {predicted:6.2f} s, "
                    f"took {after:6.2f} s, {error:+.0%}"
                )
        good = sum(abs(e) <= GOOD for e in errors)
        console.print(f"{good} of {len(errors)} within {GOOD:.0%}; median error {median(map(abs, errors)):.0%}")
    finally:
        if host.run is not None:
            host.run.kill()
        kafka.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
