"""Records a second that Spark reads from Kafka and aggregates: by its own connector, and by Falkirk's.

Both run the same query in the same way, on the same topic, each in a process of its own; rounds are interleaved. Spark's
connector is to be had for some releases of Spark only, so Falkirk runs on that one and on the one it is tested with.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from harness.broker import PARTITIONS
from harness.environments import Missing, packages
from harness.processes import BENCH, Failed
from harness.setting import Results, Setting, summary
from workload import bids, outputs

WARM = 50_000
"""Offsets of each partition that are read before anything is measured."""
SLOWEST = 50_000
"""Records a second below which a job is given up."""


@dataclass(frozen=True, slots=True)
class Job:
    """One reader, on one Spark."""

    id: str
    title: str
    source: str
    environment: Mapping[str, str] = field(default_factory=dict)


def measure(setting: Setting) -> Results:
    """All jobs, round after round."""
    sizes, screen = setting.sizes, setting.screen
    jobs = [Job("falkirk", "Falkirk, on the Spark it is tested with", "falkirk")]
    skipped = {}
    try:
        older = {"PYTHONPATH": str(packages("pyspark"))}
        jobs = [
            Job("kafka", "Spark's own connector", "kafka", older),
            Job("falkirk-older", "Falkirk, on the same Spark", "falkirk", older),
            *jobs,
        ]
    except Missing as reason:
        skipped["Spark's own connector"] = str(reason)
        screen.warn(f"skipped: Spark's own connector: {reason}")
    runs: list[Results] = []
    with screen.part(sizes.rounds * len(jobs)):
        screen.doing(f"filling a topic with {sizes.scanned:,} bids")
        setting.kafka.make("scanned")
        bids.send(setting.kafka.brokers, "scanned", bids.job(sizes.scanned, sizes.keys))
        wanted = bids.expected(bids.job(sizes.scanned, sizes.keys), "auction")
        for round_ in range(sizes.rounds):
            for job in jobs:
                screen.doing(f"round {round_ + 1} of {sizes.rounds}: {job.title}")
                try:
                    found = run(setting, job, wanted)
                except Failed as error:
                    screen.warn(f"{job.title}: {error}")
                    found = {"failed": str(error)}
                else:
                    screen.done(
                        f"{job.title:<44}[bold]{found['rate']:>11,}[/] rec/s   CPU {found['cpu_per_million']:>6.2f} s/M"
                    )
                runs.append({"job": job.id, "round": round_, **found})
        setting.kafka.delete("scanned")
    return {"jobs": {job.id: {"title": job.title, **of(runs, job)} for job in jobs}, "skipped": skipped, "runs": runs}


def run(setting: Setting, job: Job, wanted: pl.DataFrame) -> Results:
    """One job, once. Raises Failed."""
    rest = setting.rest()
    script = [sys.executable, str(BENCH / "peers" / "spark_read.py"), job.source]
    warm = min(WARM, setting.sizes.scanned // PARTITIONS // 4)
    command = [*script, setting.kafka.brokers, "scanned", str(warm)]
    process = setting.processes.start(setting.name(f"spark-{job.id}"), command, **job.environment)
    said = process.said(timeout=240 + setting.sizes.scanned / SLOWEST)
    if said is None:
        process.kill()
        raise Failed(f"{job.title} took too long")
    process.wait(60)
    rows = pl.DataFrame(said["rows"], schema=["key", "n", "top"], orient="row")
    return {
        "rate": round(setting.sizes.scanned / said["seconds"]),
        "seconds": round(said["seconds"], 2),
        "cpu_per_million": round(said["cpu"] / setting.sizes.scanned * 1e6, 2),
        "spark": said["spark"],
        "faults": outputs.faults(rows, wanted),
        **rest,
    }


def of(runs: list[Results], job: Job) -> Results:
    """What all rounds of one job come to."""
    mine = [run for run in runs if run["job"] == job.id and "rate" in run]
    if not mine:
        return {"failed": True}
    return {
        "rate": summary(run["rate"] for run in mine),
        "cpu_per_million": summary((run["cpu_per_million"] for run in mine), 2),
        "spark": mine[0]["spark"],
        "faults": max(run["faults"] for run in mine),
    }
