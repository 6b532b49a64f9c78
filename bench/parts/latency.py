"""How long a record takes at a low load: from the moment it is sent until a read_committed reader has what came of it.

Generator, job and reader are processes of their own. In a group of the aggregation the latest record counts; with as many
keys as there are, hardly ever do two records of one key meet in a step. Through exchanges records pass as they are, in steps
of 20 ms: what an exchange adds is what another stage adds, with a transaction of its own. Bare loops in a row show how much
of that is the transaction's.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from itertools import pairwise

from harness.broker import PARTITIONS
from harness.processes import BENCH, Failed
from harness.setting import Results, Setting, quantile, summary
from workload import bids
from workload.app import App

RATE = 1_000
WARM_S = 3.0
KEPT_UP = 0.8
"""The share of the load that must come through for ages to be latencies, and not the length of a queue."""

LOOPS = {"loop": 1, "loops": 3}
"""How many processes there are, each with a transactional loop from one topic to the next."""

SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
CURVE = [n / 100 for n in range(1, 100)]

TITLES = {
    "loop": "bare transactional loop",
    "loops": "three bare transactional loops in a row",
    "echo": "Falkirk, passed through",
    "latest": "Falkirk, aggregated",
    "alone": "Falkirk, steps of 50 ms, alone",
    "computes": "Falkirk, steps of 50 ms, beside steps that compute for 1 s",
    "waits": "Falkirk, steps of 50 ms, beside steps that wait for 1 s",
    "hops0": "Falkirk, steps of 20 ms, no exchange",
    "hops1": "Falkirk, steps of 20 ms, one exchange",
    "hops2": "Falkirk, steps of 20 ms, two exchanges",
}


def measure(setting: Setting) -> Results:
    """All jobs, round after round."""
    sizes, screen = setting.sizes, setting.screen
    ages: dict[str, list[list[float]]] = {job: [] for job in TITLES}
    rests = []
    with screen.part(sizes.rounds * len(TITLES)):
        for round_ in range(sizes.rounds):
            for job, title in TITLES.items():
                screen.doing(f"round {round_ + 1} of {sizes.rounds}: {title}, {RATE:,} records a second")
                rests.append(setting.rest())
                found = run(setting, job)
                ages[job].append(found)
                figures = "   ".join(f"{name} {quantile(found, share):6.1f} ms" for name, share in SHARES.items())
                screen.done(f"{title:<40}{figures}")
    return {"rate": RATE, "jobs": {job: of(job, rounds) for job, rounds in ages.items()}, "rests": rests}


def run(setting: Setting, job: str) -> list[float]:
    """One job, once: the age of each record at its arrival, in milliseconds. Raises Failed."""
    kafka, processes, sizes = setting.kafka, setting.processes, setting.sizes
    name = setting.name(f"latency-{job}")
    source, target = f"{name}.in", f"{name}.out"
    kafka.make(source)
    kafka.make(target)
    end = start(setting, job, name, source, target)
    reader = processes.helper(
        f"{name}.reader", "workload.arrivals", kafka.brokers, target, PARTITIONS, WARM_S, sizes.latency_s
    )
    if reader.said(30) is None:
        raise Failed(f"{name}: the reader does not find its topic")
    bids.probe(kafka.brokers, source)  # a load that began before the job did would be a backlog, and no low load
    if reader.said(60) is None:
        raise Failed(f"{name}: nothing comes through")
    load = processes.helper(f"{name}.load", "workload.bids", kafka.brokers, source, RATE, sizes.keys)
    said = reader.said(WARM_S + sizes.latency_s + 90)
    load.finish()
    end()
    kafka.delete(name)
    shutil.rmtree(setting.folder / name, ignore_errors=True)
    ages: list[float] = [] if said is None else said["ages"]
    if not ages:
        raise Failed(f"{name}: nothing came through")
    if len(ages) < KEPT_UP * RATE * sizes.latency_s:
        setting.screen.warn(
            f"{TITLES[job]}: {len(ages):,} records in {sizes.latency_s:.0f} s; the machine is overloaded"
        )
    return ages


def start(setting: Setting, job: str, name: str, source: str, target: str) -> Callable[[], None]:
    """Start a job; returns what ends it."""
    brokers, processes = setting.kafka.brokers, setting.processes
    if job in LOOPS:
        topics = [source, *(f"{name}.{n}" for n in range(1, LOOPS[job])), target]
        for between in topics[1:-1]:
            setting.kafka.make(between)
        command = [sys.executable, str(BENCH / "peers" / "loop_echo.py"), brokers]
        loops = [processes.start(f"{name}.{n}", [*command, *pair]) for n, pair in enumerate(pairwise(topics))]

        def finish() -> None:
            for loop in loops:
                loop.finish()

        return finish
    app = App(processes, brokers, setting.folder, job, name, source, target)
    app.start()
    return app.run.terminate


def of(job: str, rounds: list[list[float]]) -> Results:
    """What all rounds of one job come to; the curve is of all records together."""
    everything = [age for ages in rounds for age in ages]
    found: Results = {name: summary([quantile(ages, share) for ages in rounds], 2) for name, share in SHARES.items()}
    ordered = sorted(everything)
    curve = [round(quantile(ordered, share), 2) for share in CURVE]
    return {"title": TITLES[job], "records": len(everything), **found, "curve": curve}
