"""Fill NexMark's topics: person, auction and bid as JSON, keyed as Java's producers would, and side_input, a table that
query 13 looks up in.

python examples/nexmark/fill.py localhost:9092 --events 1000000 --partitions 4
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import events
import polars as pl
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import falkirk as fk

COMPACTED = {"side_input": {"cleanup.policy": "compact"}}
KEYS = {"person": "id", "auction": "id", "bid": "auction", "side_input": "key"}
"""The topics, and the column that each is keyed by."""
CHUNK = 100_000
SETTINGS = {
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.num.messages": 20_000,
    # Without it, a batch that is sent again comes behind the next ones, and its events may be too late for the watermark.
    "enable.idempotence": True,
}


def frames(count: int, rate: int = 10_000) -> Iterator[tuple[str, pl.DataFrame]]:
    """Topics and rows, all rows of the table first, and the others in the order of time."""
    yield "side_input", events.side_input()
    for start in range(0, count, CHUNK):
        some = events.events(start, min(start + CHUNK, count), rate=rate)
        yield from (("person", some.people), ("auction", some.auctions), ("bid", some.bids))


def fill(brokers: str, count: int, *, partitions: int = 4, rate: int = 10_000) -> None:
    """Create the topics and write `count` events, `rate` of them in a second of event time."""
    admin = AdminClient({"bootstrap.servers": brokers})
    made = admin.create_topics(
        [
            # A run may read them long after they were written.
            NewTopic(topic, partitions, config={"retention.ms": "-1"} | COMPACTED.get(topic, {}))
            for topic in KEYS
        ]
    )
    for topic, done in made.items():
        try:
            done.result()
        except KafkaException as error:
            raise SystemExit(f"topic {topic}: {error.args[0].str()}") from None
    producer, refused = Producer({"bootstrap.servers": brokers, **SETTINGS}), Counter[str]()

    def reported(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[f"topic {message.topic()}: {error.str()}"] += 1

    for topic, frame in frames(count, rate):
        keys = frame[KEYS[topic]].cast(pl.String)
        for key, value in zip(keys, fk.Json().encode(frame), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=reported)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if left := producer.flush(120):
        refused["the brokers did not answer within 120 s"] = left
    if refused:
        raise SystemExit("\n".join(f"{count} records could not be written: {why}" for why, count in refused.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill NexMark's topics.")
    parser.add_argument("brokers", help="addresses of brokers, like localhost:9092")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=int, default=10_000, help="events in a second of event time")
    given = parser.parse_args()
    fill(given.brokers, given.events, partitions=given.partitions, rate=given.rate)


if __name__ == "__main__":
    main()
