"""A host is lost with all its state, and no version of it was copied. Another one reads again only rows whose time was not
complete, and each window is told once."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.test_plan_recovery import Living
from tests.reading import read_topics
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.LazyCheckpoint(step="20ms", every="1h", selective=True))
bids = flow.source(
    "{prefix}bids", key="auction", value=fk.Json({{"auction": int, "who": str, "at": int}}), time="at", late="1s"
)
totals = bids.group_by("who", fk.tumbling("at", "10s"), id="totals").agg(n=fk.len())
totals.final().sink("{prefix}totals", key="who", value=fk.Json())
"""
BURSTS, RECORDS = 9, 400
"""Of input: a burst is of 40 s of event time."""
BEGAN = int(time.time() - 600) // 10 * 10_000 + 1
"""Records of long ago would be deleted, and records of the future are refused."""
WHO = ("ann", "bob", "cat")
SKIPPED = re.compile(r"task (\S+): ([0-9,]+) recorded steps need not run again")
TOOK = re.compile(r"task (\S+) was taken over in")


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Living]:
    running = Living(kafka, topic_prefix, tmp_path)
    running.define(FLOW)
    yield running
    running.close()


def burst(app: Living, n: int) -> None:
    """Records of both partitions, in the order of time."""
    producer = Producer({"bootstrap.servers": app.brokers, "partitioner": "murmur2", "enable.idempotence": True})
    for i in range(n * RECORDS, (n + 1) * RECORDS):
        producer.produce(
            app.source, json.dumps({"auction": i % 7, "who": WHO[i % 3], "at": BEGAN + 100 * i}), str(i % 7)
        )
    producer.flush()


def windows(records: int) -> Counter[tuple[str, int, int]]:
    """The windows that are surely complete when so many records have come, with their counts."""
    counts = Counter((WHO[i % 3], (BEGAN + 100 * i) // 10_000 * 10_000) for i in range(records))
    reached = BEGAN + 100 * (records - 30) - 1_000  # each partition has had one of the last records
    return Counter((who, start, n) for (who, start), n in counts.items() if start + 10_000 <= reached)


def told(app: Living) -> Counter[tuple[str, int, int]]:
    """What a separate reader finds."""
    rows = [json.loads(message.value() or b"") for message in read_topics(app.brokers, f"{app.prefix}totals")]
    return Counter((row["who"], row["window_start"], row["n"]) for row in rows)


@pytest.mark.slow
def test_the_work_on_complete_windows_is_kept_although_nothing_of_their_state_is(app: Living) -> None:
    tasks = {"totals/0", "totals/1"}
    app.live("ant", "--checkpoints", app.copies)
    for n in range(BURSTS):
        burst(app, n)
        app.settle_sources((n + 1) * RECORDS)
        time.sleep(1.1)  # there is a selective checkpoint in each second
    app.die()
    shutil.rmtree(app.folder / "ant")
    app.live("bee", "--checkpoints", app.copies)
    deadline = time.monotonic() + PATIENCE_S
    while not tasks <= {*TOOK.findall(log := (app.folder / "log").read_text())}:
        assert time.monotonic() < deadline, log
        time.sleep(0.2)
    skipped = {task: int(steps.replace(",", "")) for task, steps in SKIPPED.findall(log)}
    assert tasks <= skipped.keys(), log
    assert all(steps > 0 for steps in skipped.values())
    burst(app, BURSTS)
    app.settle_sources((BURSTS + 1) * RECORDS)

    due = windows((BURSTS + 1) * RECORDS)
    deadline = time.monotonic() + PATIENCE_S
    while due - (found := told(app)):
        assert time.monotonic() < deadline, due - found
    assert set(found.values()) == {1}
    counts = Counter((who, start) for who, start, _ in found)
    assert set(counts.values()) == {1}, "each window once"
    assert len(found) >= BURSTS * 3 * 4 - 6
