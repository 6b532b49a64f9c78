"""What every measurement is given: a broker, a folder, a screen, and how much to measure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from harness.broker import Kafka
from harness.machine import QUIET, at_rest
from harness.processes import Processes


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    records: int = 2_000_000
    keys: int = 10_000
    rounds: int = 3
    latency_s: float = 20.0
    states: tuple[int, ...] = (10_000, 1_000_000)
    """Keys in the state, for each recovery measured."""
    kills: int = 10
    grown: int = 1_000_000
    """Records, each of a key of its own, that go through while memory and disk are watched."""
    scanned: int = 10_000_000
    """Records that Spark reads."""
    published: int = 1_000_000
    """Rows that an epoch publishes."""
    tasks: tuple[int, ...] = (100, 1_000)
    """Partitions of the source, and so tasks of a stage, of one worker."""
    events: int = 1_000_000
    """Of NexMark."""
    peers: bool = True
    """Whether NexMark's peers run too."""
    queries: tuple[int, ...] = ()
    """Of NexMark; none: all."""


FULL_STATES, FULL_GROWN = (10_000, 1_000_000, 10_000_000), 10_000_000
QUICK = Sizes(500_000, 10_000, 1, 4.0, (10_000,), 2, 100_000, 500_000, 100_000, (20,), 50_000)


class Screen:
    """A line for each result, and a bar for the way to the last."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.warnings: list[str] = []
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, transient=True,
        )  # fmt: skip
        self._bar = self._progress.add_task("", total=0)

    @contextmanager
    def part(self, steps: int) -> Iterator[None]:
        """A part of so many measurements."""
        self._progress.reset(self._bar, total=steps)
        with self._progress:
            yield

    def doing(self, what: str) -> None:
        """Say what is under way."""
        self._progress.update(self._bar, description=what)
        if not self.console.is_terminal:
            self.console.print(f"  … {what}", style="dim", markup=False, soft_wrap=True)

    def done(self, what: str) -> None:
        """Say what came of it."""
        self._progress.advance(self._bar)
        self.console.print(f"  {what}", highlight=False, soft_wrap=True)

    def warn(self, what: str) -> None:
        """Say what makes a result doubtful."""
        self.warnings.append(what)
        self.console.print(f"  [yellow]{what}[/]", highlight=False, soft_wrap=True)


@dataclass(slots=True)
class Setting:
    """One run of the bench."""

    kafka: Kafka
    folder: Path
    processes: Processes
    screen: Screen
    sizes: Sizes
    _names: dict[str, int] = field(default_factory=dict)

    def name(self, stem: str) -> str:
        """A name that no app or topic had before."""
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}-{self._names[stem]}"

    def rest(self) -> dict[str, float]:
        """How busy the machine is before a measurement; warns if it is not idle."""
        now = at_rest()
        if now["busy_cores"] > QUIET:
            self.screen.warn(
                f"not idle: {now['busy_cores']:.2f} cores are busy before this, load average {now['load_average']:.2f}"
            )
        return now


def summary(values: Iterable[float], digits: int = 0) -> dict[str, float]:
    """Median, least and greatest.

    >>> summary([3, 1, 2])
    {'median': 2, 'min': 1, 'max': 3}
    """
    found = sorted(values)
    return {
        "median": _rounded(statistics.median(found), digits),
        "min": _rounded(found[0], digits),
        "max": _rounded(found[-1], digits),
    }


def quantile(values: Iterable[float], share: float) -> float:
    """The least value that is not below `share` of all.

    >>> quantile(range(1, 101), 0.99), quantile([5.0], 0.5)
    (99, 5.0)
    """
    found = sorted(values)
    return found[min(len(found) - 1, max(0, -int(-share * len(found) // 1) - 1))]


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) if digits else round(value)


Results = dict[str, Any]
"""What a measurement gave, as it is written to JSON."""
