"""An epoch of ten times the memory that Spark is given: whether it completes, and what its processes take.

Bids padded to a kilobyte; the epoch writes each of them on, so all of it is read, sorted and published. Spark runs in
`local[2]`, where its executors are threads of one JVM: `--memory` is theirs. The JVM and Spark's Python workers are
watched four times a second.

    python bench/bounded.py [--memory 512] [--times 10]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import psutil
from rich.console import Console

from harness.broker import Kafka, temporary
from harness.command import command
from workload.app import FLOWS, names
from workload.bids import send_values

CORES = 2
PAD = "".join(map(chr, np.random.default_rng(7).integers(97, 123, 4096)))
"""A part of it, another for each bid, is what a bid is padded with: the same for all would be compressed away."""


@command(__doc__)
@click.option("--memory", default=512, show_default=True, help="MiB that Spark is given.")
@click.option("--times", default=10, show_default=True, help="How many times as much the epoch has.")
def main(memory: int, times: int) -> None:
    """Measure, and say what came out."""
    rows = times * memory * 1024
    with temporary(Console(stderr=True)) as (kafka, folder):
        kafka.make("bids")
        kafka.make("computed")
        send_values(kafka.brokers, "bids", padded(rows), waiting=100_000)
        print(f"{rows:,} bids of 1 KiB are {rows / 2**20:.1f} GiB; Spark has {memory} MiB", flush=True)
        seconds, most = run(kafka, folder, memory)
        published = kafka.end("computed")
    print(
        f"complete after {seconds:.0f} s; the sink's partitions end at {published:,} in all, transactions' ends included"
    )
    for name, size in most.items():
        print(f"{name:<24}{size / 2**20:>8,.0f} MiB at most")
    sys.exit(published < rows)


def padded(rows: int) -> Iterator[tuple[int, str]]:
    """The bids, each under its auction."""
    for n in range(rows):
        pad = PAD[n % 3000 : n % 3000 + 960]
        yield n % 100_003, f'{{"auction":{n % 100_003},"bidder":{n},"price":{n % 977},"pad":"{pad}"}}'


def run(kafka: Kafka, folder: Path, memory: int) -> tuple[float, dict[str, int]]:
    """Seconds, and the most that each kind of process has taken at one time."""
    started = [sys.executable, "-m", "falkirk", "run", f"{FLOWS}:padded", "--brokers", kafka.brokers, "--until", "end"]
    started += ["--state-dir", str(folder / "state"), "--spark", f"local[{CORES}]"]
    started += ["--spark-set", f"spark.driver.memory={memory}m"]
    began, most = time.monotonic(), {"Spark's JVM": 0, "Spark's Python workers": 0}
    environment = {**os.environ, **names("bounded", "bids", "computed"), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(started, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        now = dict.fromkeys(most, 0)
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                words = child.cmdline()
                kind = "Spark's JVM" if "java" in words[0] else "Spark's Python workers"
                if kind == "Spark's JVM" or "pyspark" in " ".join(words):
                    now[kind] += child.memory_info().rss
            except (psutil.NoSuchProcess, IndexError):
                continue
        most = {name: max(size, now[name]) for name, size in most.items()}
        time.sleep(0.25)
    if process.returncode:
        raise RuntimeError(f"falkirk run ended with code {process.returncode}")
    return time.monotonic() - began, most


if __name__ == "__main__":
    main()
