"""Records from the command line: of a flow's topics, decoded, while it runs and after."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.connectors.spark.topics import Topic
from tests.runtime.batch.stand import PARTITIONS, Stand
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

DAY = f"{datetime.now(UTC).date()}"
BEGIN = int(datetime.fromisoformat(f"{DAY}T00:00:00Z").timestamp() * 1000)
"""Milliseconds: what is written of older records is deleted at once, as its topic's retention asks for."""

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{prefix}app", regime=fk.EagerCheckpoint(step="10ms"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
by_price = bids.group_by("price", id="prices").agg(n=fk.len())
by_price.sink("{prefix}counts", key="price", value=fk.Json())
"""

BATCH = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{prefix}app", regime=fk.Batch())
bids = flow.source("{prefix}bids", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
totals = bids.filter(fk.col("price") > 0).group_by("auction", id="totals").agg(n=fk.len())
totals.sink("{prefix}totals", key="auction", value=fk.Text())
"""


class Peeking:
    """The command line in a folder."""

    def __init__(self, brokers: str, folder: Path) -> None:
        self.brokers, self.folder = brokers, folder

    def call(self, *arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "falkirk", *arguments]
        run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return run.returncode, run.stdout, run.stderr

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        code, out, err = self.call("peek", *arguments, "--brokers", self.brokers)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def peeking(kafka: str, tmp_path: Path) -> Peeking:
    return Peeking(kafka, tmp_path)


@pytest.mark.slow
def test_a_flows_topics_are_shown_decoded_with_what_wrote_each_record(peeking: Peeking, topic_prefix: str) -> None:
    (peeking.folder / "app.py").write_text(FLOW.format(prefix=topic_prefix))
    bids = Topic(peeking.brokers, f"{topic_prefix}bids", 2)
    producer = Producer({"bootstrap.servers": peeking.brokers, "partitioner": "murmur2", "enable.idempotence": True})
    for i in range(20):
        producer.produce(bids.name, json.dumps({"auction": i % 4, "price": i % 3}), str(i % 4), timestamp=BEGIN + i)
    producer.produce(bids.name, b"{", b"\xff", timestamp=BEGIN + 1000)
    producer.flush()
    # Otherwise a version that a slow run makes lets the records of the edge be deleted.
    keep = ("--keep-steps", "10m")
    code, _, err = peeking.call("run", "app.py:flow", "--until", "end", *keep, "--brokers", peeking.brokers)
    assert code == 0, err
    assert f"app: 1 dead letter of this run: falkirk dlq list {topic_prefix}app shows why" in err

    code, out, _ = peeking.call("peek", "app.py:flow")
    assert code == 0
    assert [(v["kind"], v["name"]) for v in map(json.loads, out.splitlines())] == [
        ("source", bids.name),
        ("edge", "prices"),
        ("sink", f"{topic_prefix}counts"),
    ]

    last = peeking.rows("app.py:flow", bids.name, "-n", "3")
    assert [row["timestamp"].removeprefix(DAY) for row in last] == [
        "T00:00:00.018Z",
        "T00:00:00.019Z",
        "T00:00:01.000Z",
    ]
    assert (last[1]["key"], last[1]["value"]) == (3, {"auction": 3, "price": 1})
    assert (last[2]["key"], last[2]["value"]) == ({"base64": "/w=="}, "{")
    assert last[2]["unreadable"]
    (first, *_) = everything = peeking.rows("app.py:flow", bids.name, "--from", "earliest", "-n", "0")
    assert len(everything) == 21
    assert (first["key"], first["timestamp"]) == (0, f"{DAY}T00:00:00.000Z")
    assert "step" not in first
    behind = peeking.rows("app.py:flow", bids.name, "--from", "5", "-n", "0")
    assert {row["offset"] for row in behind} >= {5}
    assert min(row["offset"] for row in behind) == 5

    edge = peeking.rows("app.py:flow", "prices", "-n", "0")
    assert sorted(row["value"]["price"] for row in edge) == sorted(i % 3 for i in range(20))
    assert {row["task"] for row in edge} <= {f"{bids.name}/{p}" for p in (0, 1)}
    counts = peeking.rows("app.py:flow", f"{topic_prefix}counts", "-n", "0")
    assert {row["key"]: row["value"]["n"] for row in counts} == {0: 7, 1: 7, 2: 6}
    assert all(row["task"].startswith("prices/") and row["step"] >= 0 for row in counts)
    (raw,) = peeking.rows(f"{topic_prefix}counts", "-n", "1")
    assert (raw["key"], raw["value"]) == (
        str(counts[-1]["key"]),
        json.dumps(counts[-1]["value"], separators=(",", ":")),
    )

    code, _, err = peeking.call("peek", "app.py:flow", "count", "--brokers", peeking.brokers)
    assert code == 2
    assert "error: the flow has no source, table, sink or edge 'count'" in err
    code, _, err = peeking.call("peek", f"{topic_prefix}nothing", "--brokers", peeking.brokers)
    assert code == 3
    assert "error: topic " in err


@pytest.mark.slow
def test_following_shows_what_is_committed_as_it_comes(peeking: Peeking, topic_prefix: str) -> None:
    t = Topic(peeking.brokers, f"{topic_prefix}t", 2)
    t.transaction({0: ["a", "b"], 1: ["c"]})
    t.transaction({0: ["never"], 1: ["never"]}, commit=False)
    open_ = t.open({0: ["later"]})
    assert [r["value"] for r in peeking.rows(t.name, "-n", "2")] == ["b", "c"]
    command = [sys.executable, "-m", "falkirk", "peek", t.name, "-n", "1", "--follow", "--brokers", t.brokers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["value"] == "c"
        open_.commit_transaction()
        t.send([None], partition=1)
        assert {json.loads(process.stdout.readline())["value"] for _ in range(2)} == {"later", None}
        process.send_signal(2)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_of_a_batch_parts_sink_the_newest_complete_epoch_is_shown(
    peeking: Peeking, topic_prefix: str, tmp_path: Path
) -> None:
    (peeking.folder / "app.py").write_text(BATCH.format(prefix=topic_prefix).replace("fk.Text()", "fk.Json()"))
    stand = Stand(peeking.brokers, topic_prefix, tmp_path)
    for count in (10, 4):
        stand.append(count)
        stand.drive()
    asked = ("app.py:flow", stand.sink, "--complete", "-n", "0")
    complete = peeking.rows(*asked)
    assert [row["value"] for row in complete] == ["14 0", "14 1", "14 2"] * PARTITIONS
    assert {row["epoch"] for row in complete} == {1}
    assert len(peeking.rows("app.py:flow", stand.sink, "-n", "0")) == 6 * PARTITIONS
    code, _, err = peeking.call("peek", "app.py:flow", stand.source, "--complete", "--brokers", peeking.brokers)
    assert code == 2
    assert "has no epochs: no batch part writes it" in err
