"""What can be killed, found from outside by what processes are called."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import psutil
from tests.soak.system import Run, signal_to

from falkirk.connectors.embedded import EmbeddedKafka

Find = Callable[[list[psutil.Process]], list[psutil.Process]]


def _called(*words: str) -> Find:
    def find(processes: list[psutil.Process]) -> list[psutil.Process]:
        return [p for p in processes if any(word in _line(p) for word in words)]

    return find


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


TARGETS: dict[str, Find] = {
    "driver": _called("falkirk.runtime.epochs.process"),
    "spark's jvm": _called("org.apache.spark.deploy.SparkSubmit"),
    "spark's python workers": _called("pyspark.daemon", "pyspark/daemon"),
    "streaming worker": _called("falkirk.runtime.processes.process"),
}
ALL = [*TARGETS, "run", "broker"]


def harm(what: str, run: Run, broker: EmbeddedKafka, rng: random.Random) -> bool:
    """kill -9. Returns whether there was anything to kill."""
    if what == "run":
        run.kill_all()
        run.start()
        return True
    if what == "broker":
        broker.kill()
        broker.start()
        return True
    found = TARGETS[what](run.children())
    return bool(found) and signal_to(rng.choice(found), signal.SIGKILL)
