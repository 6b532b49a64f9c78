"""What a selective rollback keeps: a host with windows of event time is lost with its stores, a minute after a version.

    python bench/selective.py [--seconds 60] [--rate 10000]

The same input, and the same loss, with `selective=True` and without. "Read again" is what `falkirk plan --if-dies` says
before the loss; the seconds are what the new workers say that their take-overs took, and how much of that was replay.
"""

from __future__ import annotations

import json
import random
import re
import time
from contextlib import closing

import click
from confluent_kafka import Producer
from rich.console import Console

from harness.broker import temporary
from harness.command import command
from workload.host import KEYS, Host

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{app}", regime=fk.LazyCheckpoint(every="1h", selective={selective}))
bids = flow.source(
    "{app}-bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64, "at": fk.Int64}}),
    time="at", late="1s",
)
totals = bids.group_by("auction", fk.tumbling("at", "5s"), id="totals").agg(n=fk.len(), top=fk.max("price"))
totals.final().sink("{app}-totals", key="auction", value=fk.Json())
"""
REPLAY = re.compile(r"task (\S+) was taken over in ([0-9.]+) s [^\n]*replay of [0-9,]+ records? ([0-9.]+) s")


def feed(brokers: str, topic: str, seconds: int, rate: int) -> int:
    """Bids as they happen. Returns how many."""
    producer = Producer(
        {"bootstrap.servers": brokers, "partitioner": "murmur2", "linger.ms": 20, "enable.idempotence": True}
    )
    begun, sent = time.time(), 0
    while (passed := time.time() - begun) < seconds:
        while sent < passed * rate:
            auction, at = random.randrange(KEYS), int((begun + sent / rate) * 1000)
            producer.produce(topic, json.dumps({"auction": auction, "price": sent, "at": at}), str(auction))
            sent += 1
        producer.poll(0.01)
    producer.flush()
    return sent


@command(__doc__)
@click.option("--seconds", default=60, show_default=True, help="From the last version to the loss.")
@click.option("--rate", default=10_000, show_default=True, help="Records a second.")
def main(seconds: int, rate: int) -> None:
    """Compare a selective rollback with one of all that came after a version."""
    console = Console(highlight=False, width=140)
    with temporary(console) as (kafka, folder):
        for app, selective in (("whole", False), ("selective", True)):
            kafka.make(f"{app}-bids", partitions=2)
            (folder / app).mkdir()
            with closing(Host(kafka.brokers, folder / app, app, FLOW.format(app=app, selective=selective))) as host:
                host.start()
                fed = feed(kafka.brokers, f"{app}-bids", 2, rate)
                host.settle(fed, stages=1)
                host.checkpoint()
                since = feed(kafka.brokers, f"{app}-bids", seconds, rate)
                host.settle(fed + since, stages=1)
                again = sum(task["records"] for task in host.plan()["tasks"])
                host.lose()
                host.start()
                took = host.took(2)
                host.settle(fed + since, stages=1)
            replays = [float(s) for _, _, s in REPLAY.findall((folder / app / "log").read_text())]
            console.print(
                f"{app:<10} read again {again:>9,} of {since:,} records: {1 - again / since:.0%} of the work kept; "
                f"taken over in {max(took.values()):.2f} s, of which replay {max(replays, default=0):.2f} s"
            )


if __name__ == "__main__":
    main()
