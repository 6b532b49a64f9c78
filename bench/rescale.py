"""How long `falkirk rescale` takes to divide an app's state among more tasks, beside the time that streaming it again takes.

Bids as JSON, four partitions: count and maximum of each bidder, through an exchange. All are the commands that people use,
start-up included: a run to the end of the topic, the rescaling from four tasks to eight, a run over as many bids again. An
app of its own, with four tasks from the start, then streams all of them; the tables in the sinks are compared.

    python bench/rescale.py [--records 4000000] [--keys 1000000]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from backfill import falkirk, table
from rich.console import Console

from harness.broker import Kafka, temporary
from harness.command import command
from workload import bids

CORES = 2
TASKS = 8


@command(__doc__)
@click.option("--records", default=4_000_000, show_default=True, help="Bids before the rescaling, and after it.")
@click.option("--keys", default=1_000_000, show_default=True, help="Bidders: rows of state.")
def main(records: int, keys: int) -> None:
    """Measure, and say what came out."""
    with temporary(Console(stderr=True)) as (kafka, folder):
        measure(kafka, folder, records, keys)


def measure(kafka: Kafka, folder: Path, records: int, keys: int) -> None:
    """One after the other."""
    kafka.make("bids")
    for name in ("rescaled", "whole"):
        kafka.make(f"{name}-stats")
    run = ["run", "--workers", str(CORES), "--until", "end"]
    bids.send(kafka.brokers, "bids", bids.job(records, keys))
    streamed = timed(kafka, folder, "rescaled", *run)
    rescaled = timed(kafka, folder, "rescaled", "rescale", "--tasks", str(TASKS))
    bids.send(kafka.brokers, "bids", bids.job(records, keys))
    after = timed(kafka, folder, "rescaled", *run)
    whole = timed(kafka, folder, "whole", *run)
    rows = len(table(kafka, "rescaled-stats"))
    print(f"streamed, 4 tasks   {streamed:>8.1f} s")
    print(f"rescaled to {TASKS}       {rescaled:>8.1f} s{rows / rescaled:>12,.0f} rows of state/s")
    print(f"streamed, {TASKS} tasks   {after:>8.1f} s")
    print(f"all of it, 4 tasks  {whole:>8.1f} s")
    same = table(kafka, "rescaled-stats") == table(kafka, "whole-stats")
    print(f"ratio {streamed / rescaled:.2f}; the tables are {'the same' if same else 'NOT the same'}")
    sys.exit(not same)


def timed(kafka: Kafka, folder: Path, name: str, subcommand: str, *more: str) -> float:
    """How many seconds a command takes."""
    began = time.monotonic()
    falkirk(kafka, folder, name, subcommand, "exchange", *more)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
