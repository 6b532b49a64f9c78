"""What the figures were measured on, and whether somebody else was busy there."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from falkirk.connectors.embedded import kafka_version
from falkirk.connectors.java import find_java

WORK = """
import time
words = [b'{"key":%d,"n":%d}' % (i * 7919 % 10_007, i) for i in range(200_000)]
import json
seen = {}
for word in words * 2:
    row = json.loads(word)
    seen[row["key"]] = seen.get(row["key"], 0) + row["n"]
sorted(seen.items())
print(time.process_time())
"""
"""What `crowding` measures: Python's own work on memory, much as a worker's."""

QUIET = 0.15
"""Cores that others may use while nothing of ours runs; with more, the figures say less."""


def facts(root: Path) -> dict[str, Any]:
    """The machine, and the versions of what was compared."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(root),
        "cores": psutil.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "java": str(find_java()),
        "kafka": kafka_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        **{name: version(name) for name in ("falkirk", "confluent-kafka", "polars", "rocksdict")},
    }


def at_rest(seconds: float = 1.0) -> dict[str, float]:
    """How busy the machine is with nothing of ours running but an idle broker: cores in use, and the load average."""
    busy = psutil.cpu_percent(interval=seconds) / 100 * (psutil.cpu_count() or 1)
    return {"busy_cores": round(busy, 2), "load_average": round(os.getloadavg()[0], 2)}


def crowding() -> float:
    """How much more processor time one and the same work takes when all cores do it at once.

    Cores share caches, clock and, as virtual ones, often a real core. CPU times of jobs that leave a core idle, and of jobs
    that do not, differ by up to as much for no doing of their own.
    """
    alone = statistics.median(_work(1) for _ in range(3))
    return statistics.median(_work(psutil.cpu_count() or 1) for _ in range(3)) / alone


def _work(processes: int) -> float:
    """Mean CPU seconds of so many processes that decode, group and sort at the same time."""
    running = [subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE) for _ in range(processes)]
    return statistics.mean(float(process.communicate()[0]) for process in running)


def _commit(root: Path) -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" and changes" if changed else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
