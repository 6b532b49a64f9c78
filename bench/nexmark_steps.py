"""What NexMark's queries cost in the circuit alone: no broker, one task for each stage, state in RocksDB.

    python bench/nexmark_steps.py [--events N] [--step ROWS] [--only 4 --only 9] [--profile]
    python bench/nexmark_steps.py --save        the three slowest of results/nexmark.json, for RESULTS.md

CPU seconds of this process for a million records read, and the share of each operator. Kafka's client is not in it, nor
are the digest and the log of a step; so it is steadier than bench/nexmark.py, and what it does not show has not changed.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import time
from collections.abc import Iterator

import click
from report import write

from harness.circuits import Stages
from harness.command import command
from harness.processes import BENCH
from parts.nexmark.circuits import EVENTS, STEP, cost, steps, where
from parts.nexmark.example import queries, texts
from parts.nexmark.report import slowest

RESULTS = BENCH / "results"


def save(events: int, step: int) -> None:
    """Measure the slowest of the results, and write RESULTS.md again."""
    path = RESULTS / "nexmark.json"
    part = json.loads(path.read_text())
    part["where"] = where(slowest(part), events, step)
    path.write_text(json.dumps(part, indent=1) + "\n")
    write(RESULTS, RESULTS.parent / "RESULTS.md")


def shares(stages: Stages, count: int) -> Iterator[str]:
    """Where it goes, operator by operator."""
    for what, seconds in stages.spent.most_common(12):
        yield f"    {seconds / count * 1e6:>7.2f}  {what}"


@command(__doc__)
@click.option("--events", default=EVENTS, show_default=True, help="Of all three topics together.")
@click.option("--step", default=STEP, show_default=True, help="Events of a step.")
@click.option("--only", type=int, multiple=True, help="Measure this query alone; may be repeated.")
@click.option(
    "--text",
    type=click.Choice(["dsl", "sql"]),
    default="dsl",
    show_default=True,
    help="In which form the query is a flow.",
)
@click.option("--operators", is_flag=True, help="Show the cost of each operator.")
@click.option("--profile", is_flag=True, help="Show the cost of each function.")
@click.option("--save", "saves", is_flag=True, help="Write the cost of the three slowest queries to the results.")
def main(events: int, step: int, only: tuple[int, ...], text: str, operators: bool, profile: bool, saves: bool) -> None:
    """Show what each query costs."""
    if saves:
        save(events, step)
        return
    read = steps(events, step)
    for number in only or [n for n in queries.QUERIES if text == "dsl" or n in texts.TEXTS]:
        profiler = cProfile.Profile(time.thread_time)
        if profile:
            profiler.enable()
        took, stages, count = cost(number, text, read, watch=operators)
        profiler.disable()
        print(
            f"q{number:<3}{took / count * 1e6:>8.2f} s a million, {stages.written / count:.2f} records written a record",
            flush=True,
        )
        if operators:
            print(*shares(stages, count), sep="\n")
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
