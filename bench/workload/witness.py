"""A reader at read_committed that sees who makes an app's outputs, in a process of its own.

    python -m workload.witness BROKERS STEPS_TOPIC OUTPUT_TOPIC

A task's step record tells its ownership, and the header of each output the task and step that made it; both are visible
together, in whichever order they arrive here. For each ownership it says, with times in seconds since 1970,

    {"task": "stats/0", "nonce": "…", "named": 1.5}      when its name arrived
    {"task": "stats/0", "nonce": "…", "output": 1.7}     when the first output of any of its steps arrived
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from confluent_kafka import Consumer, Message, TopicPartition

from falkirk.checkpoint.records import Named, StepRecord, decode
from falkirk.checkpoint.steps import HEADER
from workload.arrivals import reader

MEMORY = 10_000
"""Steps of which one half has been seen are waited for this long; outputs and records of one step are never far apart."""


class Witness:
    """Pairs outputs with ownerships."""

    def __init__(self) -> None:
        self._owner: dict[tuple[str, int], str] = {}
        self._arrived: dict[tuple[str, int], float] = {}
        self._told: set[tuple[str, str]] = set()

    def record(self, value: bytes, task: str, now: float) -> None:
        """A record of the steps topic."""
        record = decode(value)
        if isinstance(record, Named):
            say(task, record.nonce, "named", now)
        elif isinstance(record, StepRecord) and record.outputs:
            self._owner[task, record.step] = record.nonce
            self._pair((task, record.step))

    def output(self, header: bytes, now: float) -> None:
        """An output's provenance: b"stats/0 17 3"."""
        task, step, _ = header.decode().rsplit(" ", 2)
        if self._arrived.setdefault((task, int(step)), now) == now:
            self._pair((task, int(step)))

    def _pair(self, step: tuple[str, int]) -> None:
        if step in self._owner and step in self._arrived:
            nonce, now = self._owner[step], self._arrived[step]
            if (step[0], nonce) not in self._told:
                self._told.add((step[0], nonce))
                say(step[0], nonce, "output", now)
        for known in (self._owner, self._arrived):
            if len(known) > MEMORY:
                del known[next(iter(known))]


def say(task: str, nonce: str, what: str, now: float) -> None:
    print(json.dumps({"task": task, "nonce": nonce, what: now}), flush=True)


def assign_ends(consumer: Consumer, topics: list[str]) -> None:
    """Begin at the end of every partition."""
    places = [
        TopicPartition(topic, p) for topic in topics for p in consumer.list_topics(topic, 10).topics[topic].partitions
    ]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
    consumer.assign(places)


def main() -> None:
    brokers, steps, outputs = sys.argv[1:]
    threading.Thread(target=end_with_input, daemon=True).start()
    consumer, witness = reader(brokers), Witness()
    assign_ends(consumer, [steps, outputs])
    print('{"reading": true}', flush=True)
    while True:
        first: Message | None = consumer.poll(1)
        if first is None:
            continue
        messages = [first, *consumer.consume(1_000, 0)]
        now = time.time()
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(message.error())
            if message.topic() == steps:
                if (value := message.value()) is not None:
                    witness.record(value, (message.key() or b"").decode(), now)
            else:
                witness.output(dict(message.headers())[HEADER], now)


def end_with_input() -> None:
    """End when nobody listens any more."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
