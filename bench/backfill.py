"""How long a new flow takes over its history: streamed from the start, and backfilled by Spark on the same cores.

Bids as JSON, four partitions: count and maximum of each auction. Both are the commands that people use, on an app of its own
each, one after the other, start-up included: what a person waits. The tables in the sinks are compared.

    python bench/backfill.py [--records 20000000] [--keys 100000] [--by auction|bidder]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from harness.broker import Kafka, temporary
from harness.command import command
from workload import bids, outputs
from workload.app import FLOWS, names

CORES = 2


@command(__doc__)
@click.option("--records", default=20_000_000, show_default=True, help="Bids of the history.")
@click.option("--keys", default=100_000, show_default=True, help="Auctions, and bidders.")
@click.option(
    "--by",
    type=click.Choice(["auction", "bidder"]),
    default="auction",
    show_default=True,
    help="bidder: through an exchange.",
)
def main(records: int, keys: int, by: str) -> None:
    """Measure, and say what came out."""
    with temporary(Console(stderr=True)) as (kafka, folder):
        measure(kafka, folder, records, keys, by)


def measure(kafka: Kafka, folder: Path, records: int, keys: int, by: str) -> None:
    """Both, one after the other."""
    kafka.make("bids")
    bids.send(kafka.brokers, "bids", bids.job(records, keys))
    flow = "eager" if by == "auction" else "exchange"
    spark = ["--spark", f"local[{CORES}]"]
    took = {}
    for name, subcommand, more in (
        ("backfilled", "backfill", spark),
        ("streamed", "run", ["--workers", str(CORES), "--until", "end"]),
    ):
        kafka.make(f"{name}-stats")
        began = time.monotonic()
        falkirk(kafka, folder, name, subcommand, flow, *more)
        took[name] = time.monotonic() - began
        print(f"{name:<11}{took[name]:>8.1f} s{records / took[name]:>12,.0f} rec/s", flush=True)
    began = time.monotonic()
    falkirk(kafka, folder, "backfilled", "run", flow, "--until", "end")
    print(f"a run that goes on from the backfill is at the end after {time.monotonic() - began:.1f} s")
    same = table(kafka, "backfilled-stats") == table(kafka, "streamed-stats")
    print(f"ratio {took['streamed'] / took['backfilled']:.2f}; the tables are {'the same' if same else 'NOT the same'}")
    sys.exit(not same)


def falkirk(kafka: Kafka, folder: Path, name: str, subcommand: str, flow: str, *more: str) -> None:
    """A command on an app of its own."""
    arguments = [subcommand, f"{FLOWS}:{flow}", "--brokers", kafka.brokers, "--state-dir", str(folder / name), *more]
    subprocess.run(
        [sys.executable, "-m", "falkirk", *arguments],
        env={**os.environ, **names(name, "bids", f"{name}-stats"), "PYTHONWARNINGS": "ignore"},
        stderr=subprocess.DEVNULL,
        check=True,
    )


def table(kafka: Kafka, topic: str) -> dict[bytes | None, bytes | None]:
    """The last record of each key."""
    found = {m.key(): m.value() for messages in outputs.committed(kafka.brokers, topic) for m in messages}
    return {key: value for key, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
