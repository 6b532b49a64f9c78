"""python -m tests.soak --kills 1000 --seed 7"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from tests.soak.check.findings import Kind
from tests.soak.progress import Progress
from tests.soak.schedule import Harm, is_kill
from tests.soak.soak import Config, Soak

PLAIN_S = 10.0
"""Seconds between two lines where there is no terminal."""


class Screen:
    """Shows how it goes: in place on a terminal, as a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self.at = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self.at < (0.25 if self.live else PLAIN_S):
            return
        self.at = time.monotonic()
        if self.live:
            self.live.update(table(progress))
        else:
            self.console.print(line(progress), soft_wrap=True)


def killed(progress: Progress) -> int:
    """kill -9s so far."""
    return sum(count for harm, count in progress.kills.items() if is_kill(Harm(harm)))


def line(progress: Progress) -> str:
    """The progress in a line."""
    wrong = ", ".join(f"{kind} {count}" for kind, count in progress.counts.items() if count) or "all exact"
    return (
        f"{time.time() - progress.began:6.0f} s  {killed(progress)}/{progress.planned} kills, "
        f"{progress.records:,} records of {progress.steps:,} steps checked: {wrong}  ({progress.doing})"
    )


def table(progress: Progress) -> Table:
    """The progress in full."""
    grid = Table.grid(padding=(0, 2))
    grid.add_row("[bold]soak", f"{time.time() - progress.began:.0f} s, now: {progress.doing}")
    harms = ", ".join(f"{harm} {count}" for harm, count in sorted(progress.kills.items()))
    grid.add_row("kill -9", f"{killed(progress)} of {progress.planned}   ({harms})")
    grid.add_row("sent", f"{progress.sent:,} records")
    grid.add_row("checked", f"{progress.records:,} records of {progress.steps:,} steps")
    for kind in Kind:
        count = progress.counts.get(kind, 0)
        grid.add_row(kind, f"[{'red bold' if count else 'green'}]{count}")
    grid.add_row("longest gap", f"{progress.longest_gap[0]:.2f} s  ({progress.longest_gap[1]})")
    for harm, times in progress.recoveries.items():
        words = f"median {times['median']:.2f} s, p90 {times['p90']:.2f} s, max {times['max']:.2f} s"
        grid.add_row(f"again after {harm}", f"{words}  ({times['count']:.0f})")
    return grid


@click.command()
@click.option("--kills", default=1000, show_default=True, help="How many kill -9.")
@click.option("--seed", default=7, show_default=True, help="Decides load and faults.")
@click.option(
    "--flow",
    type=click.Choice(["mixed", "eager", "lazy", "daily", "relational"]),
    default="mixed",
    show_default=True,
    help="daily: Avro under a registry, dead letters, two clusters, one of them guarded. "
    "relational: an interval join, sessions, top-k and a loop.",
)
@click.option("--rate", default=1000, show_default=True, help="Records a second of the load.")
@click.option("--workers", default=2, show_default=True)
@click.option("--partitions", default=4, show_default=True)
@click.option("--session", default=6.0, show_default=True, help="Session time-out of the workers, in seconds.")
@click.option(
    "--brokers", default=1, show_default=True, help="Of the cluster; not with --flow daily, which has two of its own."
)
@click.option("--folder", type=click.Path(path_type=Path), help="For logs and state; kept if anything is found.")
def main(
    kills: int,
    seed: int,
    flow: str,
    rate: int,
    workers: int,
    partitions: int,
    session: float,
    brokers: int,
    folder: Path | None,
) -> None:
    """Kill a flow again and again, and check every record that comes out. Ctrl-C: no more kills, the verdict."""
    folder = folder or Path(".build", "soak", time.strftime(f"%Y%m%d-%H%M%S-seed{seed}", time.gmtime()))
    console = Console()
    console.print(f"soak with seed {seed}; evidence in {folder}")
    screen = Screen(console)
    soak = Soak(Config(kills, seed, folder, flow, rate, workers, partitions, session, brokers), screen)

    def stop(_number: int, _frame: FrameType | None) -> None:
        soak.stopping = True

    signal.signal(signal.SIGINT, stop)
    if screen.live:
        with screen.live:
            report = soak.go()
    else:
        report = soak.go()
    console.print(table(soak.progress))
    for words in report["found"]:
        console.print(f"  {words}", style="red", soft_wrap=True)
    console.print("exact" if report["exact"] else f"NOT exact: see {folder}", style="bold")
    sys.exit(0 if report["exact"] else 1)


if __name__ == "__main__":
    main()
