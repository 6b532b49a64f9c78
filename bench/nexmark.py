"""NexMark: each query over 1,000,000 events in three topics of JSON, exactly-once into a topic, with durable state.

    python bench/nexmark.py [--events N] [--only 5 --only 9] [--text sql] [--step 500ms] [--partitions 4]

CPU time is that of the whole run, its start included: supervisor, workers and what they start, or the peer's process. The
kernel adds it up: what a process leaves behind becomes a child of this one, which waits for it (Linux). A run over few
events tells what the start costs. What a reader finally sees in the output is compared with what DuckDB gives over the same
events.

    CPU a million = CPU of the run / records read · 1,000,000
    rate          = records read / (seconds of the run − seconds of the start)
"""

from __future__ import annotations

import click
from rich.console import Console

from harness.broker import temporary
from harness.command import command
from harness.processes import Processes
from harness.setting import Screen, Setting, Sizes
from parts.nexmark.example import queries, texts
from parts.nexmark.measurement import measured


@command(__doc__)
@click.option("--events", default=1_000_000, show_default=True, help="Of all three topics together.")
@click.option("--only", type=int, multiple=True, help="Measure this query alone; may be repeated.")
@click.option(
    "--text",
    type=click.Choice(["dsl", "sql"]),
    default="dsl",
    show_default=True,
    help="In which form the query is a flow.",
)
@click.option("--step", default="1s", show_default=True, help="How long a step stays open.")
@click.option("--partitions", default=1, show_default=True, help="Of each topic.")
@click.option("--peers", is_flag=True, help="Measure the peers, too.")
def main(events: int, only: tuple[int, ...], text: str, step: str, partitions: int, peers: bool) -> None:
    """Measure, and show each run."""
    console = Console()
    numbers = list(only) or [n for n in queries.QUERIES if text == "dsl" or n in texts.TEXTS]
    with temporary(console) as (kafka, folder), Processes(folder / "logs") as processes:
        setting = Setting(kafka, folder, processes, Screen(console), Sizes())
        measured(setting, events, numbers, text, step, partitions, beside=peers)


if __name__ == "__main__":
    main()
