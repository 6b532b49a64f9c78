"""Records a second through the job: count and maximum for each of the keys, durable, a commit every 100 ms.

All jobs read one topic from its start, and each writes a topic of its own, whose records the broker stamps. Rate and commit
interval are read off those outputs (outputs.py), so nothing depends on what a job says of itself, and a wrong result shows.
Rounds are interleaved: what disturbs the machine for a while disturbs them all.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import polars as pl

from falkirk.connectors.java import find_java
from harness.broker import BROKER_TIME, PARTITIONS
from harness.environments import Missing, class_path, python_with
from harness.machine import crowding
from harness.processes import BENCH, Failed, Process
from harness.setting import Results, Setting, summary
from harness.usage import Usage
from workload import bids, outputs
from workload.app import App

COMMIT_MS = 100
CACHE_BYTES = 64 << 20
SLOWEST = 5_000
"""Records a second below which a job is given up."""

Pids = Callable[[], Iterable[int]]


@dataclass(frozen=True, slots=True)
class Job:
    """One way to do the job. `start` is given the target's name and the record count."""

    id: str
    title: str
    start: Callable[[str, int], tuple[Process, Pids]]
    by: str = "auction"
    first: Callable[[str], outputs.First] | None = None
    """Of a job of several stages: when the target's job began to read."""


def measure(setting: Setting) -> Results:
    """All jobs, round after round."""
    sizes, screen = setting.sizes, setting.screen
    jobs, skipped = available(setting)
    runs: list[Results] = []
    with screen.part(sizes.rounds * len(jobs)):
        screen.doing(f"filling a topic with {sizes.records:,} bids")
        setting.kafka.make("bids")
        bids.send(setting.kafka.brokers, "bids", bids.job(sizes.records, sizes.keys))
        wanted = {by: bids.expected(bids.job(sizes.records, sizes.keys), by) for by in {job.by for job in jobs}}
        for round_ in range(sizes.rounds):
            for job in jobs:
                screen.doing(f"round {round_ + 1} of {sizes.rounds}: {job.title}")
                try:
                    found = run(setting, job, wanted[job.by])
                except Failed as error:
                    screen.warn(f"{job.title}: {error}")
                    found = {"failed": str(error)}
                else:
                    screen.done(sentence(job, found))
                runs.append({"job": job.id, "round": round_, **found})
        setting.kafka.delete("bids")
    found = {job.id: {"title": job.title, **of(runs, job)} for job in jobs}
    return {"jobs": found, "crowding": round(crowding(), 2), "skipped": skipped, "runs": runs}


def run(setting: Setting, job: Job, wanted: pl.DataFrame) -> Results:
    """One job, once. Raises Failed."""
    kafka, target = setting.kafka, setting.name(f"job-{job.id}")
    kafka.make(target, BROKER_TIME)
    rest = setting.rest()
    process, pids = job.start(target, setting.sizes.records)
    broker_pids = [kafka.pid]
    with Usage({"workers": pids, "broker": lambda: broker_pids}) as usage:
        process.wait(60 + setting.sizes.records / SLOWEST)
    rows = outputs.read(kafka.brokers, target, PARTITIONS, job.by)
    try:
        pace = outputs.pace(rows, None if job.first is None else job.first(target))
    except ValueError as error:
        raise Failed(str(error)) from error
    finally:
        kafka.delete(target)
        shutil.rmtree(setting.folder / target, ignore_errors=True)
    millions, seconds = pace.records / 1e6, (pace.end - pace.begin) / 1000
    workers, broker, machine = (usage.used(g, pace.begin, pace.end) for g in ("workers", "broker", "machine"))
    return {
        "rate": round(pace.rate),
        "late_rate": round(pace.late_rate),
        "seconds": round(seconds, 3),
        "commit_ms": round(pace.commit_ms, 1),
        "outputs": rows.height,
        "faults": outputs.faults(rows, wanted),
        "cpu_per_million": round(workers / millions, 3),
        "broker_cpu_per_million": round(broker / millions, 3),
        "other_cores": round(max(0.0, machine - workers - broker) / seconds, 2),
        **rest,
    }


def available(setting: Setting) -> tuple[list[Job], dict[str, str]]:
    """The jobs that can be run here, and why the others cannot."""
    brokers, processes = setting.kafka.brokers, setting.processes

    def script(target: str, command: list[str], count: int, *more: str) -> tuple[Process, Pids]:
        folder = setting.folder / target
        folder.mkdir()
        arguments = [brokers, "bids", target, str(count), str(COMMIT_MS), str(folder), *more]
        process = processes.start(target, [*command, *arguments])
        return process, lambda: [process.pid]

    def loop(name: str) -> Callable[[str, int], tuple[Process, Pids]]:
        return lambda target, count: script(target, [sys.executable, str(BENCH / "peers" / name)], count)

    def streams(java: list[str], cache: int, target: str, count: int) -> tuple[Process, Pids]:
        return script(target, java, count, str(cache))

    def vectors(target: str, count: int) -> tuple[Process, Pids]:
        setting.kafka.make(f"{target}.changelog")
        return loop("loop_vectors.py")(target, count)

    def falkirk(flow: str, workers: int = 1) -> Callable[[str, int], tuple[Process, Pids]]:
        def start(target: str, count: int) -> tuple[Process, Pids]:
            app = App(processes, brokers, setting.folder, flow, target, "bids", target, workers)
            # Step records stay, for some jobs are measured by them.
            app.start("--until", "end", "--keep-steps", "1h")
            return app.run, app.worker_pids

        return start

    jobs = [
        Job("rows", "bare loop, row by row, state in a dict", loop("loop_rows.py")),
        Job("vectors", "bare loop, vectorised, RocksDB and changelog", vectors),
    ]
    skipped = {}
    try:
        python = str(python_with("quixstreams"))
        quix = [python, str(BENCH / "peers" / "quix.py")]
        jobs.append(Job("quix", "Quix Streams, exactly-once", lambda target, count: script(target, quix, count)))
    except Missing as reason:
        skipped["Quix Streams, exactly-once"] = str(reason)
    try:
        java = [str(find_java().executable), "-cp", class_path("kstreams"), "Auctions"]
        for id_, words, cache in (("kstreams", "cache off", 0), ("kstreams-cached", "cache on", CACHE_BYTES)):
            title = f"Kafka Streams, exactly-once v2, one thread, {words}"
            jobs.append(Job(id_, title, partial(streams, java, cache)))
    except Missing as reason:
        skipped["Kafka Streams, exactly-once v2"] = str(reason)
    jobs += [
        Job("eager", "Falkirk eager", falkirk("eager")),
        Job("lazy", "Falkirk lazy", falkirk("lazy")),
        Job("two", "Falkirk eager, two workers", falkirk("eager", 2)),
        # The tasks of the first stage come first.
        Job(
            "exchange",
            "Falkirk eager, with an exchange",
            falkirk("exchange"),
            "bidder",
            lambda target: outputs.first_round(brokers, f"falkirk.{target}.steps", PARTITIONS),
        ),
    ]
    for title, why in skipped.items():
        setting.screen.warn(f"skipped: {title}: {why}")
    return jobs, skipped


def of(runs: Iterable[Results], job: Job) -> Results:
    """What all rounds of one job come to."""
    mine = [run for run in runs if run["job"] == job.id and "rate" in run]
    if not mine:
        return {"failed": True}
    digits = {
        "rate": 0,
        "late_rate": 0,
        "commit_ms": 1,
        "cpu_per_million": 2,
        "broker_cpu_per_million": 2,
        "outputs": 0,
    }
    if job.first is not None:
        del digits["late_rate"]  # outputs are late there, whatever the rate is at which input is read
    found: Results = {key: summary([run[key] for run in mine], n) for key, n in digits.items()}
    return {**found, "faults": max(run["faults"] for run in mine)}


def sentence(job: Job, found: Results) -> str:
    """A run in a line."""
    wrong = f"  [bold red]{found['faults']:,} keys are wrong[/]" if found["faults"] else ""
    return (
        f"{job.title:<52}[bold]{found['rate']:>11,}[/] rec/s   commit {found['commit_ms']:>6.1f} ms   "
        f"CPU {found['cpu_per_million']:>6.2f} s/M{wrong}"
    )
