"""Each query of NexMark, by everybody who has it, and whether the result is right. `bench/nexmark.py` says what is measured.

What a process leaves behind becomes a child of this one, which waits for it, so that the kernel adds up its CPU time (Linux).
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import duckdb
import polars as pl
import psutil

import falkirk as fk
from harness.broker import Kafka
from harness.processes import Failed, Process
from harness.setting import Results, Setting
from parts.nexmark.circuits import where
from parts.nexmark.example import FOLDER, answers, fill, queries
from parts.nexmark.peers import CAN, Start, available
from parts.nexmark.report import slowest
from workload import outputs

PR_SET_CHILD_SUBREAPER = 36
FEW, SLOWEST, PATIENCE = 200, 4_000, 300
"""Events of the run that measures the start; a query is given up when it takes longer than its records at this rate, and
these seconds to start."""
SHORTEST = 1.0
"""A run that takes no more seconds beyond the start has no rate."""
READS = dict.fromkeys((3, 8), ("person", "auction")) | dict.fromkeys((4, 6, 9, 20), ("auction", "bid"))
"""The topics that a query reads, if it is not bid alone."""


def measure(setting: Setting) -> Results:
    """All queries, each by everybody who has it, one after the other."""
    numbers = list(setting.sizes.queries or queries.QUERIES)
    found = measured(setting, setting.sizes.events, numbers, "dsl", "1s", 1, beside=setting.sizes.peers)
    return {**found, "where": where(slowest(found))}


def measured(
    setting: Setting, events: int, numbers: list[int], text: str, step: str, partitions: int, *, beside: bool
) -> Results:
    """The same of some queries."""
    adopt()
    kafka, screen = setting.kafka, setting.screen
    few = Kafka(setting.folder / "few", screen.console)
    try:
        with screen.part(len(numbers) + 1):
            screen.doing(f"filling the topics with {events:,} events")
            fill.fill(kafka.brokers, events, partitions=partitions)
            fill.fill(few.brokers, FEW, partitions=partitions)
            tables = {name: pl.concat([f for topic, f in fill.frames(events) if topic == name]) for name in fill.KEYS}
            peers, skipped = available(setting, step) if beside else ({}, [])
            jobs = {"falkirk": lambda broker: falkirk(setting, broker, text, step)} | peers
            for why in skipped:
                screen.warn(f"skipped: {why}")
            runs: list[Results] = []
            starts: dict[str, tuple[float, float]] = {}
            for number in numbers:
                records = sum(tables[topic].height for topic in READS.get(number, ("bid",)))
                for name, job in jobs.items():
                    if name != "falkirk" and number not in CAN[name]:
                        continue
                    if name not in starts:
                        starts[name] = run(setting, few, job(few), number, FEW, partitions)[:2]
                    screen.doing(f"query {number}: {name}")
                    runs.append(
                        {
                            "query": number,
                            "job": name,
                            "records": records,
                            **one(setting, job(kafka), number, records, starts[name], tables, partitions),
                        }
                    )
                    screen.done(sentence(runs[-1]))
    finally:
        few.close()
    return {
        "events": events, "partitions": partitions, "step": step, "skipped": skipped,
        "starts": {name: {"cpu": round(cpu, 2), "seconds": round(s, 2)} for name, (cpu, s) in starts.items()},
        "runs": runs,
    }  # fmt: skip


def one(
    setting: Setting, start: Start, number: int, records: int, begun: tuple[float, float],
    tables: Mapping[str, pl.DataFrame], partitions: int,
) -> Results:  # fmt: skip
    """One query, once."""
    try:
        cpu, seconds, found = run(setting, setting.kafka, start, number, records, partitions)
    except Failed as error:
        return {"failed": str(error)}
    return {
        "cpu": round(cpu, 2),
        "seconds": round(seconds, 2),
        "cpu_per_million": round(cpu / records * 1e6, 2),
        "rate": round(records / (seconds - begun[1])) if seconds > begun[1] + SHORTEST else None,
        "rows": found.height,
        "faults": faults(number, found, tables),
    }


def run(
    setting: Setting, kafka: Kafka, start: Start, number: int, records: int, partitions: int
) -> tuple[float, float, pl.DataFrame]:
    """CPU seconds, seconds, and the final rows. Raises Failed."""
    target = setting.name(f"q{number}")
    # A peer may write its rows with the time of the event, which is years ago.
    kafka.make(target, {"retention.ms": "-1"}, partitions)
    known = {child.pid for child in psutil.Process().children()}
    before, began = _children(), time.monotonic()
    start(number, target).wait(PATIENCE + records / SLOWEST)
    _gather(known)
    cpu, seconds = _children() - before, time.monotonic() - began
    found = final(kafka, target, partitions, keyed=queries.QUERIES[number])
    kafka.delete(target)
    shutil.rmtree(setting.folder / target, ignore_errors=True)
    return cpu, seconds, found


def adopt() -> None:
    """Become the parent of what our children leave behind, so that its time counts."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> float:
    """CPU seconds of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _gather(known: set[int]) -> None:
    """Wait for all children that are not known."""
    for child in psutil.Process().children():
        if child.pid not in known:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, 0)


def falkirk(setting: Setting, kafka: Kafka, text: str, step: str) -> Start:
    """Falkirk: eager, one worker."""

    def start(number: int, target: str) -> Process:
        command = [
            sys.executable, "-m", "falkirk", "run", f"{FOLDER / 'app.py'}:flow", "--brokers", kafka.brokers,
            "--state-dir", str(setting.folder / target), "--until", "end",
        ]  # fmt: skip
        return setting.processes.start(
            target, command, NEXMARK_QUERY=str(number), NEXMARK_TEXT=text, NEXMARK_STEP=step, NEXMARK_APP=target,
            NEXMARK_TARGET=target,
        )  # fmt: skip

    return start


def final(kafka: Kafka, target: str, partitions: int, keyed: Any) -> pl.DataFrame:
    """The rows that a reader finally sees: all of them, or the last of each key."""
    changes = keyed(queries.Streams(fk.Flow("f")))[1] is not None
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for messages in outputs.committed(kafka.brokers, target, partitions):
        keys += [m.key() for m in messages]
        values += [m.value() for m in messages]
    if changes:  # a record without a key replaces none
        named = [i if key is None else key for i, key in enumerate(keys)]
        values = list(dict(zip(named, values, strict=True)).values())
    there = [value for value in values if value is not None]
    return pl.read_ndjson(b"\n".join(there)) if there else pl.DataFrame()


def faults(number: int, found: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> int:
    """How many rows are too many or missing, compared with DuckDB."""
    with duckdb.connect() as db:
        for name, frame in tables.items():
            db.register(name, frame.to_arrow())
        wanted = pl.DataFrame(db.sql(answers.ANSWERS[number]).to_arrow_table())
    if not found.height:
        return wanted.height
    columns = sorted(wanted.columns)
    both = [_plain(frame.select(columns)) for frame in (found, wanted)]
    sides = [frame.with_columns(pl.lit(sign).alias("__side")) for frame, sign in zip(both, (1, -1), strict=True)]
    net = pl.concat(sides).group_by(columns).agg(pl.col("__side").sum())
    return int(net["__side"].abs().sum())


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers of one kind, so that rows compare: means are added up in another order here and there."""
    made = []
    for name, dtype in frame.schema.items():
        if dtype.is_integer() or (isinstance(dtype, pl.Decimal) and not dtype.scale):
            made.append(pl.col(name).cast(pl.Int64))
        elif dtype.is_numeric():
            made.append(pl.col(name).cast(pl.Float64).round_sig_figs(10))
        else:
            made.append(pl.col(name))
    return frame.select(made)


def sentence(found: Results) -> str:
    """A run in a line."""
    title = f"q{found['query']:<3}{found['job']:<10}"
    if "failed" in found:
        return f"{title}[bold red]failed[/] {found['failed']}"
    wrong = f"  [bold red]{found['faults']:,} rows are wrong[/]" if found["faults"] else ""
    rate = "" if found["rate"] is None else f"   {found['rate']:>9,} rec/s"
    used = f"CPU [bold]{found['cpu_per_million']:>7.1f}[/] s/M ({found['cpu']:.1f} s)"
    return f"{title}{used}{rate}{wrong}"
