"""How long a new flow takes over its history: streamed from the start, and backfilled by Spark on the same cores.

Bids as JSON, four partitions: count and maximum of each auction. Both are the commands that people use, on an app of its own
each, one after the other, start-up included: what a person waits. The tables in the sinks are compared.

python bench/backfill.py [--records 20000000] [--keys 100000] [--by auction|bidder]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import bids
from broker import PARTITIONS, Kafka
from rich.console import Console

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.reader import BoundedReader

CORES = 2


def main() -> None:
    """Measure, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--by", choices=["auction", "bidder"], default="auction", help="bidder: through an exchange")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-") as folder:
        kafka = Kafka(Path(folder) / "kafka", Console(stderr=True))
        try:
            measure(kafka, Path(folder), given.records, given.keys, given.by)
        finally:
            kafka.close()


def measure(kafka: Kafka, folder: Path, records: int, keys: int, by: str) -> None:
    """Both, one after the other."""
    kafka.make("bids")
    bids.send(kafka.brokers, "bids", bids.job(records, keys))
    flow = "eager" if by == "auction" else "exchange"
    spark = ["--spark", f"local[{CORES}]"]
    took = {}
    for name, command, more in (
        ("backfilled", "backfill", spark),
        ("streamed", "run", ["--workers", str(CORES), "--until", "end"]),
    ):
        kafka.make(f"{name}-stats")
        began = time.monotonic()
        falkirk(kafka, folder, name, command, flow, *more)
        took[name] = time.monotonic() - began
        print(f"{name:<11}{took[name]:>8.1f} s{records / took[name]:>12,.0f} rec/s", flush=True)
    began = time.monotonic()
    falkirk(kafka, folder, "backfilled", "run", flow, "--until", "end")
    print(f"a run that goes on from the backfill is at the end after {time.monotonic() - began:.1f} s")
    same = table(kafka, "backfilled-stats") == table(kafka, "streamed-stats")
    print(f"ratio {took['streamed'] / took['backfilled']:.2f}; the tables are {'the same' if same else 'NOT the same'}")
    sys.exit(not same)


def falkirk(kafka: Kafka, folder: Path, name: str, command: str, flow: str, *more: str) -> None:
    """A command on an app of its own."""
    target = f"{Path(__file__).with_name('flows.py')}:{flow}"
    names = {"BENCH_APP": name, "BENCH_SOURCE": "bids", "BENCH_TARGET": f"{name}-stats", "PYTHONWARNINGS": "ignore"}
    arguments = [command, target, "--brokers", kafka.brokers, "--state-dir", str(folder / name), *more]
    subprocess.run(
        [sys.executable, "-m", "falkirk", *arguments],
        env={**os.environ, **names},
        stderr=subprocess.DEVNULL,
        check=True,
    )


def table(kafka: Kafka, topic: str) -> dict[bytes | None, bytes | None]:
    """The last record of each key."""
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    found: dict[bytes | None, bytes | None] = {}
    with closing(BoundedReader(Cluster(kafka.brokers))) as reader:
        ends = reader.watermarks(places, end=True)
        for place in places:
            at = Offset(0)
            while at < ends[place]:
                read = reader.read({place: (at, ends[place])}, committed=True)[place]
                found |= {r.key: r.value for r in read.records}
                at = read.position
    return {key: value for key, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
