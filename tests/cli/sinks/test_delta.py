"""Tables of Delta Lake on a real broker, while workers are killed: they hold what a read_committed reader sees, once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from tests.cli.live import kill_all, kill_one, table, until, workers
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import os
import signal
from pathlib import Path
import falkirk as fk
from falkirk.connectors.delta.outlet import DeltaOutlet

original = DeltaOutlet._write


def die(when):
    try:
        Path(when).rename(f"{{when}}-done")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def write(self, *arguments):
    die("before")
    original(self, *arguments)
    die("after")


DeltaOutlet._write = write

flow = fk.Flow("{prefix}app", regime=fk.LazyCheckpoint(step="20ms", every="1s"))
value = fk.Json({{"id": fk.Int64, "region": fk.String, "n": fk.Int64}})
users = flow.source("{prefix}users", key="id", value=value, changes="upsert")
users.sink("{prefix}out", key="id", value=fk.Json())
users.sink_delta("users", "lake/users", key="id", every="300ms")
regions = users.group_by("region", id="regions").agg(users=fk.len(), n=fk.sum("n"))
regions.sink("{prefix}regions", key="region", value=fk.Json())
regions.sink_delta("regions", "lake/regions", key="region", every="300ms")
plain = flow.source("{prefix}bids", value=fk.Json({{"n": fk.Int64}}))
plain.sink_delta("bids", "lake/bids", every="100ms")
"""


@pytest.mark.slow
def test_tables_hold_what_is_committed_though_workers_are_killed(
    kafka: str, topic_prefix: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for topic in ("users", "bids", "out", "regions"):
        Topics(Cluster(kafka)).create(f"{topic_prefix}{topic}", 2, 1, {})
    (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix))
    producer, choice, sent = (
        Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True}),
        random.Random(7),
        0,
    )

    def feed(count: int) -> None:
        nonlocal sent
        for n in range(sent, sent + count):
            id_ = choice.randrange(60)
            row = {"id": id_, "region": choice.choice("abcdef"), "n": n}
            value = None if choice.random() < 0.4 else json.dumps(row)
            producer.produce(f"{topic_prefix}users", value, str(id_))
            producer.produce(f"{topic_prefix}bids", json.dumps({"n": n}), partition=n % 2)
            producer.poll(0)
        sent += count
        producer.flush()

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--workers", "2"]
        command += ["--session-timeout", "1s", *arguments]
        run = subprocess.Popen(command, cwd=tmp_path, text=True, stderr=subprocess.PIPE)
        request.addfinalizer(lambda: kill_all(run) if run.poll() is None else None)
        return run

    def opened(name: str) -> DeltaTable:
        return DeltaTable(tmp_path / "lake" / name)

    def commits() -> int:
        return min(
            opened(name).version() if DeltaTable.is_deltatable(str(tmp_path / "lake" / name)) else 0
            for name in ("bids", "users")
        )

    feed(300)
    run = start()
    until(run, commits)
    for when in ("after", "now", "before", "after", "now"):
        before = commits()
        if when == "now":
            feed(300)
            kill_one(run)
        else:
            # Around a commit of a table, one worker kills itself.
            (tmp_path / when).touch()
            feed(300)
            until(run, (tmp_path / f"{when}-done").exists)
            (tmp_path / f"{when}-done").unlink()
        feed(100)
        until(run, lambda before=before: commits() > before and workers(run))
    feed(300)
    kill_all(run)
    run = start("--until", "end")
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, err

    found = {name: opened(name).to_pyarrow_table().to_pylist() for name in ("users", "regions", "bids")}
    assert found["users"]
    for name, topic in (("users", "out"), ("regions", "regions")):
        rows = [tuple(row.values()) for row in found[name]]
        assert len(rows) == len(set(rows))
        assert set(rows) == table(kafka, f"{topic_prefix}{topic}")
    assert Counter(row["n"] for row in found["bids"]) == Counter(range(sent))
    shown = subprocess.run(
        [sys.executable, "-m", "falkirk", "check", "app:flow", "--brokers", kafka],
        cwd=tmp_path, text=True, capture_output=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    assert "table of users" in shown.stdout
    assert "table lake/users: its columns fit" in shown.stdout


@pytest.mark.slow
def test_a_table_that_does_not_fit_is_said_at_the_start(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    Topics(Cluster(kafka)).create(f"{topic_prefix}bids", 1, 1, {})
    (tmp_path / "app.py").write_text(
        f"import falkirk as fk\nflow = fk.Flow('{topic_prefix}app', regime=fk.EagerCheckpoint())\n"
        f"flow.source('{topic_prefix}bids', value=fk.Json({{'n': fk.Int64}})).sink_delta('bids', 'lake')\n"
    )
    import pyarrow as pa

    DeltaTable.create(tmp_path / "lake", pa.schema([("n", pa.string())]))
    command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--until", "end"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "column 'n' is String, and the flow's needs Int64" in done.stderr
