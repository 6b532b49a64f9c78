"""Hashes are those of Java's and librdkafka's producers, and shard ranges cover all shards once."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import Message, Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import PATIENCE_S

from falkirk.state.shards import (
    SHARDS,
    crc32,
    crc32_partition,
    murmur2,
    murmur2_of,
    murmur2_partition,
    shard_of,
    shard_range,
    task_of,
)

# The vectors that Kafka's own tests use, as Java's signed ints.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_murmur2_gives_the_known_hashes() -> None:
    assert murmur2(list(KNOWN)).view(np.int32).tolist() == list(KNOWN.values())
    assert murmur2([*KNOWN] * 3).view(np.int32).tolist() == [*KNOWN.values()] * 3


@given(st.lists(st.binary(max_size=40)))
def test_columns_of_keys_hash_as_single_keys_do(keys: list[bytes]) -> None:
    # A few are hashed one by one, many by columns.
    assert murmur2(keys * 9).tolist() == [murmur2_of(key) for key in keys] * 9


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent"])
def test_partitions_are_those_of_librdkafkas_partitioners(partitioner: str) -> None:
    """Partitioning is the client's work, so librdkafka's mock cluster, whose topics have 4 partitions, can show it."""
    placed: dict[bytes | None, int | None] = {}

    def delivered(_error: object, message: Message) -> None:
        placed[message.key()] = message.partition()

    producer = Producer({"test.mock.num.brokers": 1, "partitioner": partitioner, "linger.ms": 5})
    keys = [str(n).encode() * (1 + n % 7) for n in range(300)] + [bytes([n, 255, 0]) for n in range(100)]
    for key in keys:
        producer.produce("keys", key=key, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    ours = murmur2_partition(murmur2(keys), 4) if partitioner == "murmur2" else crc32_partition(crc32(keys), 4)
    assert [placed[key] for key in keys] == ours.tolist()


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 100, 1000, SHARDS])
def test_shard_ranges_cover_every_shard_once(tasks: int) -> None:
    ranges = [shard_range(task, tasks) for task in range(tasks)]
    assert [shard for run in ranges for shard in run] == list(range(SHARDS))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    owners = [task for task, run in enumerate(ranges) for _ in run]
    assert task_of(np.arange(SHARDS), tasks).tolist() == owners


@pytest.mark.parametrize(("task", "tasks"), [(-1, 4), (4, 4), (0, 0), (0, SHARDS + 1)])
def test_tasks_that_cannot_be_are_refused(task: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="shards"):
        shard_range(task, tasks)


def test_shards_are_even_within_each_partition_of_a_topic() -> None:
    keys = [str(n).encode() for n in range(200_000)]
    hashes = murmur2(keys)
    for partition in range(4):
        counts = np.bincount(shard_of(hashes[murmur2_partition(hashes, 4) == partition]), minlength=SHARDS)
        assert len(counts) == SHARDS
        assert 15 < counts.min() <= counts.max() < 100
