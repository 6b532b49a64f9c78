"""The load: auction bids as JSON, keyed by auction as Java's producers would, the same in every run.

    python -m workload.bids BROKERS TOPIC RATE KEYS          a steady load; it ends when its standard input closes

NexMark's bid has these fields; a twentieth of all auctions draws more than a fifth of the bids.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl
from confluent_kafka import Producer

CHUNK = 200_000
SEED = 2_010
URL = "https://www.nexmark.com/item.htm?query=1"


def job(count: int, keys: int) -> Iterator[pl.DataFrame]:
    """The bids of the throughput job, in chunks: auctions with a mild skew, bidders without."""
    random = np.random.default_rng(SEED)
    for start in range(0, count, CHUNK):
        n = min(CHUNK, count - start)
        yield _frame(random, (keys * random.random(n) ** 2).astype(np.int64), keys)


def fill(keys: int) -> Iterator[pl.DataFrame]:
    """One bid for each auction, in a random order: the state has `keys` keys then."""
    random = np.random.default_rng(SEED)
    auctions = random.permutation(keys)
    for start in range(0, keys, CHUNK):
        yield _frame(random, auctions[start : start + CHUNK], keys)


def _frame(random: np.random.Generator, auctions: np.ndarray, keys: int) -> pl.DataFrame:
    n = len(auctions)
    return pl.DataFrame(
        {"auction": auctions, "bidder": random.integers(0, keys, n), "price": random.integers(100, 100_000, n)}
    )


def expected(chunks: Iterable[pl.DataFrame], by: str) -> pl.DataFrame:
    """What any right job has at the end: for each key, how many bids, and the highest.

    >>> expected([pl.DataFrame({"auction": [1, 1], "price": [5, 7]})], "auction").rows()
    [(1, 2, 7)]
    """
    parts = [c.group_by(by).agg(n=pl.len().cast(pl.Int64), top=pl.max("price")) for c in chunks]
    return pl.concat(parts).group_by(by).agg(pl.sum("n"), pl.max("top")).sort(by)


def send(brokers: str, topic: str, chunks: Iterable[pl.DataFrame]) -> None:
    """Fill a topic with bids."""
    rows = (row for chunk in chunks for row in chunk.iter_rows())
    values = ((auction, _value(auction, bidder, price, n)) for n, (auction, bidder, price) in enumerate(rows))
    send_values(brokers, topic, values)


def _value(auction: int, bidder: int, price: int, number: int) -> str:
    return (
        f'{{"auction":{auction},"bidder":{bidder},"price":{price},"channel":"Google","url":"{URL}",'
        f'"dateTime":{1_700_000_000_000 + number}}}'
    )


def send_values(brokers: str, topic: str, values: Iterable[tuple[int, str]], waiting: int = 500_000) -> None:
    """Fill a topic with values, each under its key. So many may wait in the client."""
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.num.messages": 20_000,
            "queue.buffering.max.messages": waiting,
        }
    )
    for key, value in values:
        while True:
            try:
                producer.produce(topic, value, str(key))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be filled")


def stamped(auction: int, price: int) -> str:
    """A bid that says in nanoseconds since 1970 when it was sent."""
    return f'{{"auction":{auction},"price":{price},"sent":{time.time_ns()}}}'


def probe(brokers: str, topic: str) -> None:
    """One bid."""
    producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2_random"})
    producer.produce(topic, stamped(0, 100), "0")
    producer.flush(10)


def steady(brokers: str, topic: str, rate: int, keys: int, stop: threading.Event) -> None:
    """`rate` bids a second, evenly."""
    producer = Producer(
        {"bootstrap.servers": brokers, "partitioner": "murmur2_random", "linger.ms": 0, "socket.nagle.disable": True}
    )
    random = np.random.default_rng(SEED)
    began, sent = time.perf_counter(), 0
    while not stop.is_set():
        due = int((time.perf_counter() - began) * rate)
        for auction, price in zip(
            random.integers(0, keys, due - sent).tolist(),
            random.integers(100, 100_000, due - sent).tolist(),
            strict=True,
        ):
            producer.produce(topic, stamped(auction, price), str(auction))
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, began + (sent + 1) / rate - time.perf_counter()))
    producer.flush(10)


def main() -> None:
    brokers, topic, rate, keys = sys.argv[1:]
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    steady(brokers, topic, int(rate), int(keys), stop)


if __name__ == "__main__":
    main()
