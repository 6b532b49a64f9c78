"""What the demo shows while it runs, and in the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import polars as pl
from check import Finding
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from watch import Death


class Screen:
    """Bars at the bottom, and above them a line for everything that happens."""

    def __init__(self, console: Console, total: int, bars: Mapping[str, str]) -> None:
        columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.console = console
        self.progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._bars = {name: self.progress.add_task(words, total=total) for name, words in bars.items()}
        self._words, self._total = bars, total
        self._began = self._said = time.monotonic()

    def show(self, counts: Mapping[str, int]) -> None:
        """Move the bars; without a terminal, a line every five seconds."""
        for name, count in counts.items():
            self.progress.update(self._bars[name], completed=count)
        if not self.console.is_terminal and time.monotonic() - self._said >= 5:
            self._said = time.monotonic()
            self.say(", ".join(f"{self._words[name]} {count:,}" for name, count in counts.items()))

    def say(self, line: str) -> None:
        """A line, with the seconds since the beginning."""
        self.console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {line}", highlight=False)


def delays(console: Console, carriers: Sequence[Mapping[str, object]]) -> None:
    """What the flow found out, for the carriers with most flights."""
    table = Table(
        "carrier", "flights", "late (15 min)", "worst", "mean", title="Delays, as a reader of Kafka sees them"
    )
    frame = pl.DataFrame(carriers).group_by("carrier", maintain_order=True).last().sort("flights", descending=True)
    for row in frame.head(5).rows(named=True):
        counts = f"{row['flights']:,}", f"{row['late']:,}", f"{row['worst']:,} min", f"{row['mean']:.1f} min"
        table.add_row(row["carrier"], *counts)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)


def verdict(console: Console, findings: Sequence[Finding], deaths: Sequence[Death], flights: int) -> bool:
    """Print what was killed, recovered, lost and doubled; say whether all is exact."""
    table = Table(
        "output topic", "records", "keys", "lost", "doubled", "wrong", "out of order", title="Compared with Polars"
    )
    for f in findings:
        bad = [f"[red]{n:,}[/]" if n else "0" for n in (f.lost, f.doubled, f.wrong, f.disordered)]
        table.add_row(f.output, f"{f.records:,}", f"{f.keys:,}", *bad)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    times = [d.seconds for d in deaths if d.seconds is not None]
    kinds = {what: sum(d.what == what for d in deaths) for what in sorted({d.what for d in deaths})}
    killed = ", ".join(f"{what} {n} time{'s' if n > 1 else ''}" for what, n in kinds.items())
    lost, doubled = sum(f.lost for f in findings), sum(f.doubled for f in findings)
    exact = all(f.exact for f in findings) and len(times) == len(deaths) > 0
    console.print(f"flights    {flights:,}, each in three outputs")
    console.print(f"killed     {len(deaths)}: {killed}")
    if times:
        spread = f"median {statistics.median(times):.2f} s, slowest {max(times):.2f} s"
        console.print(f"recovered  {len(times)}, from the kill to a committed step of each task: {spread}")
    console.print(f"lost       {lost}")
    console.print(f"doubled    {doubled}")
    console.print("[bold green]exact[/]" if exact else "[bold red]NOT exact[/]")
    return exact
