"""Where the time of a record goes: one worker, in this process, on the throughput job.

    python bench/hotspots.py [--flow lazy] [--records 1000000]

Two runs: one that only asks the kernel for the CPU time of each thread, and one with a profiler on the main thread. What
is written in C is counted with the Python function that calls it: to stop at every such call would cost more than most of
them take. CPU time alone is counted, so waiting costs nothing.
"""

from __future__ import annotations

import cProfile
import importlib
import os
import pstats
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.table import Table

from falkirk.connectors.garbage import collect_rarely
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.app.app import prepare
from falkirk.runtime.host.identity import identity
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.worker import Worker
from falkirk.stream.flow.flow import Flow
from harness.broker import BROKER_TIME, Kafka, temporary
from harness.command import command
from workload import bids, flows
from workload.app import names

KEYS = 10_000
SHOWN = 25


@command(__doc__)
@click.option(
    "--flow",
    type=click.Choice(["eager", "lazy", "exchange"]),
    default="eager",
    show_default=True,
    help="Of the throughput job.",
)
@click.option("--records", default=1_000_000, show_default=True, help="Bids that are read.")
def main(flow: str, records: int) -> None:
    """Show where the CPU time of a record goes."""
    console = Console()
    with temporary(console) as (kafka, folder):
        kafka.make("bids")
        bids.send(kafka.brokers, "bids", bids.job(records, KEYS))
        threads = Threads()
        seconds = work(kafka, folder, flow, "by-thread", records, threads.begin, threads.end)
        console.print(f"{records / seconds:,.0f} records a second")
        console.print(threads.table(records))
        profiler = cProfile.Profile(time.thread_time, builtins=False)
        work(kafka, folder, flow, "by-function", records, profiler.enable, profiler.disable)
        stats = pstats.Stats(profiler)
        console.print(functions(stats, records, own=False))
        console.print(functions(stats, records, own=True))


def work(
    kafka: Kafka, folder: Path, flow: str, app: str, records: int, begin: Callable[[], None], end: Callable[[], None]
) -> float:
    """Be a worker until all records are committed. Returns the seconds between the calls of `begin`, when all tasks have
    been taken over and nothing is read yet, and of `end`.
    """
    kafka.make(app, BROKER_TIME)
    os.environ |= names(app, "bids", app)
    chosen: Flow = getattr(importlib.reload(flows), flow)
    settings = Settings(kafka.brokers, str(folder / app))
    topics, plan = Topics(settings.cluster()), chosen.plan()
    bound = prepare(plan, settings, topics)
    worker = Worker(bound, settings, identity(folder / app, app, 0), topics)
    collect_rarely()
    moments: list[float] = []

    def stopping() -> bool:
        if not moments and len(worker.tasks) == len(bound.tasks):
            moments.append(time.monotonic())
            begin()
        if worker.stats.rows.total() < records * len(plan.stages):
            return False
        end()
        moments.append(time.monotonic())
        return True

    worker.run(stopping)
    return moments[1] - moments[0]


class Threads:
    """CPU seconds of this process's threads, by what they are."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._used: dict[str, float] = {}

    def begin(self) -> None:
        """Count from here."""
        self._before = self._now()

    def end(self) -> None:
        """Count up to here. The threads must still be there."""
        for thread, seconds in self._now().items():
            name = kind(thread)
            self._used[name] = self._used.get(name, 0.0) + seconds - self._before.get(thread, 0.0)

    def table(self, records: int) -> Table:
        """What was used in between."""
        table = Table("thread", "CPU, s per million records", "share", title="by thread")
        for column in table.columns[1:]:
            column.justify = "right"
        for name, seconds in sorted(self._used.items(), key=lambda item: -item[1]):
            if seconds:
                table.add_row(name, f"{seconds / records * 1e6:.3f}", f"{seconds / sum(self._used.values()):.1%}")
        return table

    @staticmethod
    def _now() -> dict[int, float]:
        return {t.id: t.user_time + t.system_time for t in psutil.Process().threads()}


def kind(thread: int) -> str:
    """What a thread does, by its name: Python's own, else what the kernel calls it, without its number."""
    for known in threading.enumerate():
        if known.native_id == thread:
            return known.name.rpartition("_")[0] or known.name
    try:
        name = Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except FileNotFoundError:
        return "others"
    return "librdkafka" if name.startswith("rdk:") else name.rstrip("0123456789-")


def functions(stats: pstats.Stats, records: int, *, own: bool) -> Table:
    """The functions that take the most, by themselves or with all that they call."""
    title = (
        "main thread, each function by itself" if own else "main thread, Falkirk's functions with all that they call"
    )
    table = Table("function", "ns a record", "calls", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = []
    for (file, line, name), (_, calls, alone, together, _) in stats.stats.items():  # type: ignore[attr-defined]
        place = file.partition("/src/falkirk/")[2]
        if own or place:
            rows.append((alone if own else together, calls, f"{place or Path(file).name}:{line}  {name}"))
    for seconds, calls, name in sorted(rows, reverse=True)[:SHOWN]:
        table.add_row(name, f"{seconds / records * 1e9:,.0f}", f"{calls:,}")
    return table


if __name__ == "__main__":
    main()
