"""A reader at read_committed, in a process of its own: how old each record is when it arrives.

    python -m workload.arrivals BROKERS TOPIC PARTITIONS WARM_S SECONDS

Records carry the nanosecond in which they were sent. It says `{"reading": true}` when it has found the topic's end, and
`{"reached": true}` at the first record, a probe. From the second on it waits WARM_S seconds, takes note of what arrives
within the SECONDS that follow, and says all ages in milliseconds.
"""

from __future__ import annotations

import json
import sys
import time

import orjson
from confluent_kafka import Consumer, TopicPartition


def reader(brokers: str) -> Consumer:
    """A consumer without a group that is told of a commit as soon as the broker knows."""
    return Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            # A fetch that finds an open transaction is asked again after this time.
            "fetch.wait.max.ms": 5,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "socket.nagle.disable": True,
        }
    )


def main() -> None:
    brokers, topic = sys.argv[1:3]
    partitions, warm, seconds = int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
    consumer = reader(brokers)
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10, cached=False)[1] for p in range(partitions)
    ]
    consumer.assign([TopicPartition(topic, p, end) for p, end in enumerate(ends)])
    print('{"reading": true}', flush=True)
    if consumer.poll(60) is not None:
        print('{"reached": true}', flush=True)
    first = consumer.poll(60)
    ages: list[float] = []
    begin = time.monotonic() + warm
    while first is not None and time.monotonic() < begin + seconds:
        messages = [first, *consumer.consume(1_000, 0)]
        now = time.time_ns()
        if time.monotonic() >= begin:
            ages += [(now - orjson.loads(m.value() or b"")["sent"]) / 1e6 for m in messages if m.error() is None]
        first = consumer.poll(10)
    print(json.dumps({"ages": [round(age, 3) for age in ages]}), flush=True)


if __name__ == "__main__":
    main()
