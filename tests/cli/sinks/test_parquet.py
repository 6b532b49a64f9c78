"""Parquet files on a real broker, while workers are killed: the files hold what a read_committed reader sees, once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest
from confluent_kafka import Producer
from tests.cli.live import committed, kill_all, kill_one, workers
from tests.waiting import PATIENCE_S

from falkirk.connectors.files.parquet import FOOTER, made_of
from falkirk.connectors.files.places import Folder
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{prefix}app", regime=fk.{regime}Checkpoint(step="20ms", every="1s"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64, "n": fk.Int64}}))
bids.sink_parquet("archive", "files", every="200ms")
bids.sink("{prefix}out", key="auction", value=fk.Json())
counts = bids.group_by("auction", id="counts").agg(n=fk.len())
counts.sink_parquet("changes", "changes", every="300ms", changes=True)
"""


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_chains(folder: Path) -> None:
    """The files of each partition are a chain of whole steps."""
    place, ends, steps = Folder(folder), dict[int, int](), set[tuple[str, int]]()
    for name in sorted(place.names("part-", "part-")):
        data = place.tail(name, FOOTER)
        made = made_of(data[-int.from_bytes(data[-8:-4], "little") - 8 :], name)
        assert made.start == ends.get(made.partition, 0), name
        ends[made.partition] = made.end
        new = {(made.task, step) for step, _ in made.steps}
        assert not steps & new, f"{name} has a step that another file has"
        steps |= new
        assert sum(rows for _, rows in made.steps) == pl.read_parquet(folder / name).height
    assert ends


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["Eager", "Lazy"])
def test_files_hold_each_committed_row_once_though_workers_are_killed(
    kafka: str, topic_prefix: str, tmp_path: Path, regime: str, request: pytest.FixtureRequest
) -> None:
    for name in ("bids", "out"):
        Topics(Cluster(kafka)).create(f"{topic_prefix}{name}", 2, 1, {})
    (tmp_path / "app.py").write_text(FLOW.format(prefix=topic_prefix, regime=regime))
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True})
    sent = 0

    def feed(count: int) -> None:
        nonlocal sent
        for n in range(sent, sent + count):
            producer.produce(f"{topic_prefix}bids", json.dumps({"auction": n % 17, "n": n}), str(n % 17))
        sent += count
        producer.flush()

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", "run", "app:flow", "--brokers", kafka, "--workers", "2"]
        command += ["--session-timeout", "1s", *arguments]
        run = subprocess.Popen(command, cwd=tmp_path, text=True, stderr=subprocess.PIPE)
        request.addfinalizer(lambda: kill_all(run) if run.poll() is None else None)
        return run

    def files() -> int:
        return len(list((tmp_path / "files").glob("part-*.parquet")))

    def grown(count: int) -> None:
        until(lambda: files() > count and workers(run))

    feed(500)
    run = start()
    until(files)
    for _ in range(4):
        feed(500)
        kill_one(run)
        grown(files())
    feed(500)
    kill_all(run)
    run = start("--until", "end")
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, err

    oracle = [json.loads(value or b"") for _, value, _ in committed(kafka, f"{topic_prefix}out")]
    assert Counter(row["n"] for row in oracle) == Counter(range(sent))
    rows = duckdb.sql(f"select auction, n from '{tmp_path}/files/*.parquet' order by n").fetchall()
    assert rows == [(n % 17, n) for n in range(sent)]
    assert pl.read_parquet(tmp_path / "files").height == sent
    net = duckdb.sql(
        f"select auction, n from '{tmp_path}/changes/*.parquet' group by all having sum(weight) <> 0 order by auction"
    ).fetchall()
    assert net == sorted(Counter(n % 17 for n in range(sent)).items())
    for name in ("files", "changes"):
        check_chains(tmp_path / name)
    shown = subprocess.run(
        [sys.executable, "-m", "falkirk", "check", "app:flow", "--brokers", kafka],
        cwd=tmp_path, text=True, capture_output=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    assert "files of archive" in shown.stdout
