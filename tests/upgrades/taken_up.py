"""An app that an earlier commit has run, and that was killed on the way, is taken up by the present code with its state.

    git worktree add --detach ../old COMMIT
    python tests/upgrades/taken_up.py ../old/src src

The old code runs two workers on the first part of the input and is killed with kill -9. The new code processes the rest.
Every count must be the oracle's, each output must be written once, and the steps must form one chain over both.

Where the new code packs records between stages in another way, lazy steps that run again diverge and the app stops, as it
should: give `--on-divergence correct` at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from confluent_kafka import Producer
from tests.cli.live import committed, kill_all

from falkirk.checkpoint.invariants import chain
from falkirk.checkpoint.records import StepRecord, decode
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.{regime}(step="20ms", every="1h", max_rows=50))
bids = flow.source("{name}-bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
counts = bids.group_by("auction", id="counts").agg(n=fk.len())
counts.sink("{name}-counts", key="auction", value=fk.Json())
bids.group_by("price", id="prices").agg(n=fk.len()).sink("{name}-prices", key="price", value=fk.Json())
"""
BIDS = [(i * 7 % 211, i * 31 % 97) for i in range(60_000)]


def run(source: Path, folder: Path, brokers: str, *more: str) -> subprocess.Popen[bytes]:
    """The app, on the code in this source folder."""
    command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--workers", "2", "--brokers", brokers,
               "--state-dir", str(folder / "state"), "--session-timeout", "6s", *more]  # fmt: skip
    return subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(source)})


def steps_of(brokers: str, name: str) -> dict[str, list[StepRecord]]:
    """What is still there of each task's steps."""
    found: dict[str, list[StepRecord]] = {}
    for _, value, _ in committed(brokers, f"falkirk.{name}.steps"):
        if value is not None and isinstance(record := decode(value), StepRecord):
            found.setdefault(record.task, []).append(record)
    return found


def outputs(brokers: str, topic: str) -> tuple[dict[int, int], int]:
    """The last count of each key, and how many records were written twice or out of order."""
    counts, wrong = dict[int, int](), 0
    for key, value, _ in committed(brokers, topic):
        n = json.loads(value or b"{}")["n"]
        wrong += n <= counts.get(int(key or b""), 0)
        counts[int(key or b"")] = n
    return counts, wrong


def feed(brokers: str, topic: str) -> None:
    """The input, slowly enough that a kill falls amid it."""
    producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2", "enable.idempotence": True})
    for i, (auction, price) in enumerate(BIDS):
        producer.produce(topic, json.dumps({"auction": auction, "price": price}), str(auction))
        if i % 50 == 0:
            producer.poll(0)
            time.sleep(0.04)
    producer.flush()


def taken_up(old: Path, new: Path, brokers: str, regime: str, more: Sequence[str]) -> None:
    """One regime. Raises AssertionError."""
    name = f"up-{regime.lower()}"
    Topics(Cluster(brokers)).create(f"{name}-bids", 2, 1, {})
    feeding = Thread(target=feed, args=(brokers, f"{name}-bids"))
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "app.py").write_text(FLOW.format(name=name, regime=regime))
        process = run(old, folder, brokers)
        feeding.start()
        while sum(outputs(brokers, f"{name}-counts")[0].values()) < len(BIDS) // 2:
            time.sleep(0.5)
            assert process.poll() is None, "the old code has stopped"
        kill_all(process)
        feeding.join()
        halfway = {task: records[-1].step for task, records in steps_of(brokers, name).items()}
        seen = sum(outputs(brokers, f"{name}-counts")[0].values())
        assert len(BIDS) // 2 <= seen < len(BIDS), f"killed too late: {seen}"
        assert run(new, folder, brokers, "--until", "end", *more).wait(300) == 0
        steps = steps_of(brokers, name)
        for task, records in steps.items():
            chain(records)
            assert records[-1].step > halfway[task]
    for topic, column in (("counts", 0), ("prices", 1)):
        counts, wrong = outputs(brokers, f"{name}-{topic}")
        due = Counter(bid[column] for bid in BIDS)
        lost = sum(max(n - counts.get(key, 0), 0) for key, n in due.items())
        doubled = sum(max(n - due.get(key, 0), 0) for key, n in counts.items())
        print(
            f"{regime} {topic}: {lost} lost, {doubled} doubled, {wrong} outputs twice; killed at {seen:,} of {len(BIDS):,}"
        )
        assert (lost, doubled, wrong) == (0, 0, 0)
    print({task: (halfway[task], records[0].step, records[-1].step) for task, records in steps.items()})


if __name__ == "__main__":
    with TemporaryDirectory() as data, EmbeddedKafka(Path(data)) as kafka:
        for regime in ("EagerCheckpoint", "LazyCheckpoint"):
            taken_up(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), kafka.bootstrap, regime, sys.argv[3:])
