"""The generator's records are in the topic exactly once, where a JVM producer would put them. (That it holds through
kills of the broker is part of every soak: the checker counts the input too.)"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.reading import read_topics
from tests.soak.check.murmur import partition_of
from tests.soak.load import bids

ROOT = Path(__file__).parents[2]
COUNT = 12_000


@pytest.mark.kafka
def test_every_record_is_there_once_and_in_order(kafka: str, topic_prefix: str) -> None:
    topic = topic_prefix + "bids"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    command = [sys.executable, "-m", "tests.soak.load", kafka, topic, "7", "10000", str(COUNT), "50"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as load:
        assert load.stdout is not None
        said = [json.loads(line) for line in load.stdout]
    assert load.returncode == 0
    assert said[-1] == {"acknowledged": COUNT, "done": True}

    found = everything(kafka, topic, 3)
    for partition, records in found.items():
        assert [number for _, number in records] == sorted(number for _, number in records)
        assert {partition_of(key, 3) for key, _ in records} == {partition}
    made = {bid["id"]: str(bid["auction"]).encode() for bid, _ in zip(bids(7, 50), range(COUNT), strict=False)}
    assert sorted((number, key) for records in found.values() for key, number in records) == sorted(made.items())


def everything(brokers: str, topic: str, partitions: int) -> dict[int, list[tuple[bytes, int]]]:
    """Key and number of each record of each partition."""
    found: dict[int, list[tuple[bytes, int]]] = {p: [] for p in range(partitions)}
    for m in read_topics(brokers, topic):
        found[m.partition() or 0].append((m.key() or b"", json.loads(m.value() or b"")["id"]))
    return found
