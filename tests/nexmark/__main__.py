"""python -m tests.nexmark --events 1000000 --kills 10 --query 4 --regime lazy"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from tests.nexmark.kills import Trial, fill, queries, tables

from falkirk.connectors.embedded import EmbeddedKafka


@click.command()
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--kills", default=10, show_default=True, help="How many kill -9 for each query and regime.")
@click.option("--every", default=60, show_default=True, help="Records of the steps topic between two kills.")
@click.option("--rows", default=10_000, show_default=True, help="Records of a step at most.")
@click.option(
    "--query", "numbers", type=click.Choice([str(n) for n in queries.QUERIES]), multiple=True, default=["4", "5", "20"]
)
@click.option("--regime", "regimes", type=click.Choice(["eager", "lazy"]), multiple=True, default=["eager", "lazy"])
@click.option("--partitions", default=4, show_default=True, help="Of each topic.")
def main(
    events: int, kills: int, every: int, rows: int, numbers: tuple[str, ...], regimes: tuple[str, ...], partitions: int
) -> None:
    """Kill queries, and compare what is read in the end with DuckDB's answer."""
    console, wrong = Console(), 0
    inputs = tables(events)
    with TemporaryDirectory() as folder, EmbeddedKafka(Path(folder) / "kafka", console=Console(quiet=True)) as kafka:
        brokers = kafka.bootstrap
        fill.fill(brokers, events, partitions=partitions)
        for number in map(int, numbers):
            for regime in regimes:
                here = Path(folder) / f"q{number}-{regime}"
                here.mkdir()
                trial, began = Trial(brokers, here, number, regime, rows), time.monotonic()
                trial.run(kills, every, 3_600)
                faults = {what: sum(rows.values()) for what, rows in trial.faults(inputs).items()}
                wrong += sum(faults.values())
                words = ", ".join(f"{count} {what}" for what, count in faults.items())
                console.print(
                    f"q{number} {regime}: {len(trial.kills)} kills, {time.monotonic() - began:.0f} s: {words}"
                )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
