"""Each example as a person runs it: `falkirk run` as a process, on a real broker, and exactly what comes out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.reading import read_topics
from tests.waiting import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.kafka


@contextmanager
def running(example: str, kafka: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`falkirk run` on an example."""
    command = [sys.executable, "-m", "falkirk", "run", f"{EXAMPLES / example}:flow", "--brokers", kafka]
    process = subprocess.Popen(
        [*command, "--state-dir", str(folder), *more], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_to_the_end(example: str, kafka: str, folder: Path, *more: str) -> None:
    with running(example, kafka, folder, "--until", "end", *more) as process:
        said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said


def write(kafka: str, topic: str, *records: tuple[str | None, str], partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    if topic not in admin.list_topics(timeout=PATIENCE_S).topics:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random", "enable.idempotence": True})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(PATIENCE_S) == 0


def read(kafka: str, topic: str) -> list[tuple[str, dict[str, object] | None]]:
    """Every committed record, key and value, partition by partition."""
    found: dict[int, list[tuple[str, dict[str, object] | None]]] = {}
    for message in read_topics(kafka, topic):
        key, value = (message.key() or b"").decode(), message.value()
        found.setdefault(message.partition() or 0, []).append((key, None if value is None else orjson.loads(value)))
    return [record for _, records in sorted(found.items()) for record in records]


@pytest.mark.slow
def test_word_count_goes_on_where_it_ended(kafka: str, tmp_path: Path) -> None:
    write(kafka, "lines", (None, "To be, or not to be:"), (None, "that is the question."))
    run_to_the_end("word_count.py", kafka, tmp_path, "--workers", "2")
    counts = dict(read(kafka, "word-counts"))
    words = ("be", "is", "not", "or", "question", "that", "the", "to")
    assert counts == {w: {"word": w, "count": 2 if w in ("be", "to") else 1} for w in words}

    write(kafka, "lines", (None, "To be!"))
    run_to_the_end("word_count.py", kafka, tmp_path)
    for word in ("be", "to"):
        updates = [value["count"] for key, value in read(kafka, "word-counts") if key == word and value]
        assert updates == sorted(set(updates))
        assert updates[-1] == 3


@pytest.mark.slow
def test_auction_stats(kafka: str, tmp_path: Path) -> None:
    bids = [(auction, price) for price in (90, 110, 130, 120) for auction in (1, 2, 3)]
    write(kafka, "bids", *[(str(a), f'{{"auction":{a},"price":{p * a}}}') for a, p in bids])
    run_to_the_end("auction_stats.py", kafka, tmp_path)
    assert dict(read(kafka, "auction-stats")) == {
        "1": {"auction": 1, "n": 3, "top": 130},
        "2": {"auction": 2, "n": 4, "top": 260},
        "3": {"auction": 3, "n": 4, "top": 390},
    }


@pytest.mark.slow
def test_door_alarm(kafka: str, tmp_path: Path) -> None:
    def door(name: str, open_: bool) -> tuple[str, str]:
        return name, orjson.dumps({"door": name, "open": open_}).decode()

    write(kafka, "doors", door("cellar", True), door("attic", True), door("attic", False))
    with running("door_alarm.py", kafka, tmp_path) as process:
        wait_for(kafka, "door-alarms", 1)
        write(kafka, "doors", door("cellar", False))
        wait_for(kafka, "door-alarms", 2)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert read(kafka, "door-alarms") == [
        ("cellar", {"door": "cellar", "event": "left open"}),
        ("cellar", {"door": "cellar", "event": "shut again"}),
    ]


def wait_for(kafka: str, topic: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    deadline = time.monotonic() + PATIENCE_S
    while topic not in admin.list_topics(timeout=PATIENCE_S).topics or len(read(kafka, topic)) < records:
        assert time.monotonic() < deadline, f"{topic} has not come to {records} records"
        time.sleep(0.1)
