"""How well recoveries are predicted: a host is lost again and again, after `falkirk plan --if-dies` was asked what it costs.

    python bench/predictions.py [--crashes 20] [--most 100000]

Each round makes a version, feeds a random number of records, waits until they are processed, asks for the plan, kills the run
(kill -9), deletes its stores, and starts it again: each task then begins with its copied version, as on another host. The log
of the new workers says what their take-overs took. The first rounds teach the rates: they are shown, and not counted.
"""

from __future__ import annotations

import json
import random
from contextlib import closing
from statistics import median

import click
from confluent_kafka import Producer
from rich.console import Console

from harness.broker import temporary
from harness.command import command
from workload.host import KEYS, Host

APP = "predictions"
FLOW = f"""
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{APP}", regime=fk.EagerCheckpoint(every="1h"))
bids = flow.source("bids", key="auction", value=fk.Json({{"auction": fk.Int64, "price": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("counts", key="auction", value=fk.Json())
again = bids.with_regime(fk.LazyCheckpoint(every="1h"))
again.group_by("auction", id="sums").agg(n=fk.sum("price")).sink("sums", key="auction", value=fk.Json())
"""
LEARN = 3
"""Rounds that are not counted."""
GOOD = 0.3


def feed(brokers: str, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": brokers, "partitioner": "murmur2", "linger.ms": 50, "enable.idempotence": True}
    )
    for i in range(count):
        auction = random.randrange(KEYS)
        producer.produce("bids", json.dumps({"auction": auction, "price": i}), str(auction))
        if i % 1000 == 0:
            producer.poll(0)
    producer.flush()


@command(__doc__)
@click.option("--crashes", default=20, show_default=True, help="Rounds that count.")
@click.option("--most", default=100_000, show_default=True, help="Records between a version and a crash, at most.")
def main(crashes: int, most: int) -> None:
    """Compare predicted recoveries with what they took."""
    console = Console(highlight=False, width=140)
    errors = list[float]()
    with temporary(console) as (kafka, folder), closing(Host(kafka.brokers, folder, APP, FLOW)) as host:
        kafka.make("bids", partitions=2)
        fed = 0
        host.start()
        for crash in range(crashes + LEARN):
            feed(kafka.brokers, 1_000)
            fed += 1_000
            host.settle(fed)
            host.checkpoint()
            count = random.randint(most // 50, most)
            feed(kafka.brokers, count)
            fed += count
            host.settle(fed)
            planned = host.plan()
            host.lose()
            host.start()
            took = host.took(len(planned["tasks"]))
            host.settle(fed)
            for task in planned["tasks"]:
                work = task["work"]
                predicted = max(work["name"], work["fetch"]) + work["open"] + work["replay"]
                error = predicted / took[task["task"]] - 1
                learns = crash < LEARN
                errors += [] if learns else [error]
                round_ = "learns" if learns else f"crash {crash - LEARN + 1}"
                after = took[task["task"]]
                console.print(
                    f"{round_:9} {task['task']:9} {task['records']:>8,} records: predicted {predicted:6.2f} s, "
                    f"took {after:6.2f} s, {error:+.0%}"
                )
    good = sum(abs(e) <= GOOD for e in errors)
    console.print(f"{good} of {len(errors)} within {GOOD:.0%}; median error {median(map(abs, errors)):.0%}")


if __name__ == "__main__":
    main()
