"""What is done to apps that are killed while they run, and what their readers see of them."""

from __future__ import annotations

import os
import signal
import subprocess

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def kill_all(run: subprocess.Popen[str]) -> None:
    """kill -9 of a run and all that it has started, at once."""
    everyone = [run.pid, *(c.pid for c in psutil.Process(run.pid).children(recursive=True))]
    for pid in everyone:
        os.kill(pid, signal.SIGKILL)
    run.communicate()


def committed(brokers: str, topic: str) -> list[tuple[bytes | None, bytes | None, bytes]]:
    """Key, value and the mark of who made it: what is committed, partition by partition."""
    settings = {"bootstrap.servers": brokers, "group.id": "x", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    left = set(consumer.list_topics(topic).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
    found = []
    while left:
        for m in consumer.consume(1000, 0.2):
            if m.error() is None:
                found.append((m.key(), m.value(), dict(m.headers() or []).get("falkirk", b"")))
            else:
                assert m.error().code() == KafkaError._PARTITION_EOF
                left.discard(m.partition())
    consumer.close()
    return found
