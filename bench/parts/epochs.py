"""What an epoch of a batch part publishes a second, beside bare transactional producers; and what a stream waits beside one.

Publishing: from the first row that the broker appended to the last, and in the time alone in which rows came: an epoch has
more result partitions than Spark has cores, and between two waves of them Spark fetches and sorts the rows of the next. As
many bare producers as Spark has cores write the same keys and values, in transactions of as many rows, from memory. The
stream is that of the latency benchmark, while Spark counts the bids of each auction on the same cores.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import NamedTuple

from harness.broker import BROKER_TIME, PARTITIONS
from harness.processes import BENCH, Failed
from harness.setting import Results, Setting, quantile, summary
from parts import latency
from workload import bids, outputs
from workload.app import App

CORES = 2
SPARK = ("--spark", f"local[{CORES}]")
SLICE = 20_000
"""Rows of a transaction, in Falkirk as in the bare producers."""
SLOT_MS = 50
"""Rows come in a time of this length, or they do not."""
STARTS_S = 12.0
"""Until Spark has started, and computes."""


def measure(setting: Setting) -> Results:
    """Publishing, round after round; then latency, without an epoch and beside one."""
    sizes, screen = setting.sizes, setting.screen
    bare, epoch = list[Pace](), list[Pace]()
    with screen.part(2 * sizes.rounds + 2):
        setting.kafka.make("offered")
        bids.send(setting.kafka.brokers, "offered", bids.job(sizes.published, sizes.keys))
        for round_ in range(sizes.rounds):
            screen.doing(f"round {round_ + 1} of {sizes.rounds}: an epoch of {sizes.published:,} rows")
            target = published(setting)
            epoch.append(pace(setting, target))
            screen.done(f"{'published by an epoch':<44}{epoch[-1]}")
            screen.doing(f"round {round_ + 1} of {sizes.rounds}: {CORES} bare transactional producers, the same rows")
            bare.append(produced(setting, target))
            screen.done(f"{f'{CORES} bare transactional producers':<44}{bare[-1]}")
        setting.kafka.delete("offered")
        beside = {name: beside_an_epoch(setting, runs=name == "beside") for name in ("alone", "beside")}
    found = {
        name: {"rate": summary([p.rate for p in paces]), "busy": summary([p.busy for p in paces])}
        for name, paces in (("epoch", epoch), ("bare", bare))
    }
    return {"rows": sizes.published, **found, "latency": beside}


class Pace(NamedTuple):
    """Rows a second."""

    rate: float
    """From the first to the last."""
    busy: float
    """While any came."""

    def __str__(self) -> str:
        return f"[bold]{self.rate:>11,.0f}[/] rows/s, {self.busy:,.0f} while they come"


def published(setting: Setting) -> str:
    """The topic of an epoch that writes a row for each bid. Raises Failed."""
    setting.rest()
    name = setting.name("published")
    target = f"{name}.out"
    setting.kafka.make(target, BROKER_TIME)
    app = App(setting.processes, setting.kafka.brokers, setting.folder, "copied", name, "offered", target)
    app.start("--until", "end", *SPARK)
    app.run.wait(300)
    shutil.rmtree(app.state, ignore_errors=True)
    return target


def pace(setting: Setting, target: str) -> Pace:
    """Of the rows of a topic, by the broker's clock. Raises Failed if any is missing or there twice."""
    times = [m.timestamp()[1] for messages in outputs.committed(setting.kafka.brokers, target) for m in messages]
    if len(times) != setting.sizes.published:
        raise Failed(f"{len(times):,} rows are in {target}, and not {setting.sizes.published:,}")
    slots = len({at // SLOT_MS for at in times})
    return Pace(1000 * len(times) / max(1, max(times) - min(times)), 1000 * len(times) / (slots * SLOT_MS))


def produced(setting: Setting, rows: str) -> Pace:
    """What bare producers make of the same rows, each of a part of the partitions. Raises Failed."""
    setting.rest()
    target = f"{setting.name('bare')}.out"
    setting.kafka.make(target, BROKER_TIME)
    script = [sys.executable, str(BENCH / "peers" / "publish.py"), setting.kafka.brokers, rows, target, str(SLICE)]
    started = [
        setting.processes.start(f"{target}-{core}", [*script, *map(str, range(core, PARTITIONS, CORES))])
        for core in range(CORES)
    ]
    if any(process.said(120) is None for process in started):
        raise Failed("the rows cannot be read")
    for process in started:
        process.go()
    for process in started:
        process.wait(300)
    found = pace(setting, target)
    setting.kafka.delete(target)
    setting.kafka.delete(rows)
    return found


def beside_an_epoch(setting: Setting, *, runs: bool) -> Results:
    """Latency of records that are passed through, with or without an epoch that runs meanwhile. Raises Failed."""
    name, source = setting.name("beside"), "counted"
    app = App(setting.processes, setting.kafka.brokers, setting.folder, "totals", name, source, f"{name}.out")
    if runs:
        setting.screen.doing("latency of a stream beside an epoch")
        setting.kafka.make(source)
        setting.kafka.make(f"{name}.out")
        bids.send(setting.kafka.brokers, source, bids.job(setting.sizes.scanned, setting.sizes.keys))
        app.start("--until", "end", *SPARK)
        time.sleep(STARTS_S)
    else:
        setting.screen.doing("latency of a stream without an epoch")
    ages = latency.run(setting, "echo")
    figures = {share: round(quantile(ages, value), 2) for share, value in latency.SHARES.items()}
    words = "beside an epoch" if runs else "without an epoch"
    if runs:
        if not app.run.alive:
            setting.screen.warn("the epoch ended before the latency was measured: have more records scanned")
        app.kill_all()
        setting.kafka.delete(source)
        setting.kafka.delete(name)
        shutil.rmtree(app.state, ignore_errors=True)
    setting.screen.done(f"latency {words:<20}median {figures['median']:6.1f} ms   p99 {figures['p99']:6.1f} ms")
    return figures
