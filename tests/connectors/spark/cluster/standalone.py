"""A standalone Spark cluster on loopback: a master and workers, processes of their own, from PySpark's own jars."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import psutil
import pyspark

from falkirk.connectors.java import find_java
from falkirk.connectors.spark import fast_start
from falkirk.connectors.spark.session import java_home

HOME = Path(pyspark.__file__).parent
JARS = [HOME / "conf", *(HOME / "jars").glob("slf4j-api-*.jar"), HOME / "jars" / "*"]
"""As Spark itself starts its JVMs: an archive of classes holds only for one order of jars."""
AT = re.compile(r"Starting Spark master at (spark://\S+)")
T = TypeVar("T")

PATIENCE = 180.0
"""Seconds that a process of Spark's has to do what is waited for."""


@cache
def jvm_flags() -> tuple[str, ...]:
    """For JVMs that start for little work (tests/conftest.py). A session of this process may have added the archive."""
    fast_start.use(find_java())
    return tuple(shlex.split(os.environ[fast_start.OPTIONS]))


def executor_flags() -> str:
    """The setting that gives them to executors."""
    return f"spark.executor.extraJavaOptions={shlex.join(jvm_flags())}"


class Standalone:
    """`with Standalone(folder) as cluster: … cluster.master …`: two workers of a core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder, self._java = folder, java_home(find_java())
        self._masters: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._count = workers
        self.master = ""

    def __enter__(self) -> Standalone:
        self.start_master()
        self.start_workers(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        executors = self.executors()
        for process in [*self._workers, *self._masters]:
            process.kill()
            process.wait()
        for executor in executors:
            end(executor)

    def start_master(self) -> None:
        """At the address of the one before, if there was one."""
        port = self.master.rpartition(":")[2] or "0"
        master, log = self._start("master.Master", "--port", port)
        self._masters.append(master)
        self.master = until(lambda: (found := AT.search(said(master, log))) and found[1], "the master listens")

    def start_workers(self, count: int = 1) -> None:
        """So many more, of a core each."""
        logs: list[tuple[subprocess.Popen[bytes], Path]] = []
        for _ in range(count):
            work = self.folder / f"work-{self._started}"
            arguments = ["--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master]
            worker, log = self._start("worker.Worker", *arguments)
            self._workers.append(worker)
            logs.append((worker, log))
        until(lambda: all("Successfully registered" in said(*one) for one in logs), "workers are registered")

    def kill_master(self) -> None:
        """kill -9."""
        self._masters[-1].kill()
        self._masters[-1].wait()

    def kill_worker(self) -> None:
        """kill -9 of the oldest worker's daemon; its executors see that, and end."""
        worker = self._workers.pop(0)
        worker.kill()
        worker.wait()

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks."""
        return [
            child
            for worker in self._workers
            if worker.poll() is None
            for child in psutil.Process(worker.pid).children(recursive=True)
            if "CoarseGrainedExecutorBackend" in " ".join(line(child))
        ]

    def pythons(self) -> list[psutil.Process]:
        """The Python workers of all executors, without the daemons that fork them."""
        daemons = [c for e in self.executors() for c in children(e) if "pyspark.daemon" in line(c)]
        return [worker for daemon in daemons for worker in children(daemon)]

    def _start(self, main: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.folder / f"{main.partition('.')[0]}-{self._started}.log"
        self._started += 1
        command = [
            str(self._java / "bin" / "java"),
            "-Xmx256m",
            *jvm_flags(),
            "-cp",
            ":".join(map(str, JARS)),
            f"org.apache.spark.deploy.{main}",
        ]
        home = {"JAVA_HOME": str(self._java), "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13"}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdout=out,
                stderr=out,
                env={**os.environ, **home, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        return process, log


def said(process: subprocess.Popen[bytes], log: Path) -> str:
    """What it has logged. Raises AssertionError if it has ended: nothing comes any more."""
    assert process.poll() is None, log.read_text()[-2000:]
    return log.read_text()


def line(process: psutil.Process) -> Sequence[str]:
    """How it was started; nothing, where it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def children(process: psutil.Process) -> Sequence[psutil.Process]:
    """Its children; none, where it has ended."""
    try:
        return process.children()
    except psutil.Error:
        return []


def end(process: psutil.Process) -> None:
    """kill -9, unless it has ended."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def until(look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """What `look` finds, when it finds something. Raises TimeoutError."""
    late = time.monotonic() + patience
    while time.monotonic() < late:
        if found := look():
            return found
        time.sleep(0.25)
    raise TimeoutError(what)
