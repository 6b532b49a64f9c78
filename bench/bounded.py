"""An epoch of ten times the memory that Spark is given: whether it completes, and what its processes take.

Bids padded to a kilobyte; the epoch writes each of them on, so all of it is read, sorted and published. Spark runs in
`local[2]`, where its executors are threads of one JVM: `--memory` is theirs. The JVM and Spark's Python workers are
watched four times a second.

python bench/bounded.py [--memory 512] [--times 10]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from broker import Kafka
from confluent_kafka import Producer
from rich.console import Console

CORES = 2
PAD = "".join(map(chr, np.random.default_rng(7).integers(97, 123, 4096)))
"""A part of it, another for each bid, is what a bid is padded with: the same for all would be compressed away."""


def main() -> None:
    """Measure, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--memory", type=int, default=512, help="MiB that Spark is given")
    parser.add_argument("--times", type=int, default=10, help="how many times as much the epoch has")
    given = parser.parse_args()
    rows = given.times * given.memory * 1024
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-") as folder:
        kafka = Kafka(Path(folder) / "kafka", Console(stderr=True))
        try:
            kafka.make("bids")
            kafka.make("computed")
            send(kafka.brokers, rows)
            print(f"{rows:,} bids of 1 KiB are {rows / 2**20:.1f} GiB; Spark has {given.memory} MiB", flush=True)
            seconds, most = run(kafka, Path(folder), given.memory)
        finally:
            published = kafka.end("computed") if sys.exc_info()[0] is None else 0
            kafka.close()
    print(
        f"complete after {seconds:.0f} s; the sink's partitions end at {published:,} in all, transactions' ends included"
    )
    for name, size in most.items():
        print(f"{name:<24}{size / 2**20:>8,.0f} MiB at most")
    sys.exit(published < rows)


def send(brokers: str, rows: int) -> None:
    """Fill the topic."""
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 100_000,
        }
    )
    for n in range(rows):
        value = f'{{"auction":{n % 100_003},"bidder":{n},"price":{n % 977},"pad":"{PAD[n % 3000 : n % 3000 + 960]}"}}'
        while True:
            try:
                producer.produce("bids", value, str(n % 100_003))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")


def run(kafka: Kafka, folder: Path, memory: int) -> tuple[float, dict[str, int]]:
    """Seconds, and the most that each kind of process has taken at one time."""
    names = {"BENCH_APP": "bounded", "BENCH_SOURCE": "bids", "BENCH_TARGET": "computed", "PYTHONWARNINGS": "ignore"}
    target = f"{Path(__file__).with_name('flows.py')}:padded"
    command = [sys.executable, "-m", "falkirk", "run", target, "--brokers", kafka.brokers, "--until", "end"]
    command += ["--state-dir", str(folder / "state"), "--spark", f"local[{CORES}]"]
    command += ["--spark-set", f"spark.driver.memory={memory}m"]
    began, most = time.monotonic(), {"Spark's JVM": 0, "Spark's Python workers": 0}
    process = subprocess.Popen(command, env={**os.environ, **names}, stderr=subprocess.DEVNULL)
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
