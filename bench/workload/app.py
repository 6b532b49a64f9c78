"""`falkirk run` as users start it, and what a benchmark asks of it: its workers, and their end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil

from harness.processes import Process, Processes

FLOWS = Path(__file__).with_name("flows.py")


def alive(process: psutil.Process) -> bool:
    """Whether it still runs. The dead may wait for seconds until somebody takes note of them: they are gone all the same."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def names(app: str, source: str, target: str) -> dict[str, str]:
    """What the flows are told by the environment: the app's name, and its topics."""
    return {"BENCH_APP": app, "BENCH_SOURCE": source, "BENCH_TARGET": target}


class App:
    """An app with a state directory of its own; it may be started again and again."""

    def __init__(
        self, processes: Processes, brokers: str, folder: Path, flow: str, name: str, source: str, target: str,
        workers: int = 1, memory: str = "256MiB",
    ) -> None:  # fmt: skip
        self.name, self.state = name, folder / name
        self._processes, self._workers = processes, workers
        self._command = [
            sys.executable, "-m", "falkirk", "run", f"{FLOWS}:{flow}", "--brokers", brokers,
            "--state-dir", str(self.state), "--workers", str(workers), "--memory", memory,
        ]  # fmt: skip
        self._environment = names(name, source, target)
        self._run: Process | None = None

    @property
    def steps(self) -> str:
        """Its steps topic."""
        return f"falkirk.{self.name}.steps"

    @property
    def run(self) -> Process:
        """The supervisor."""
        assert self._run is not None
        return self._run

    def start(self, *more: str) -> None:
        """Start the supervisor, and it its workers."""
        self._run = self._processes.start(self.name, [*self._command, *more], **self._environment)

    def until_end(self, timeout: float) -> None:
        """Process all that is in the source, and leave. Raises Failed."""
        self.start("--until", "end")
        self.run.wait(timeout)

    def worker_pids(self) -> list[int]:
        """The processes that are workers; a spare is none yet."""
        found = []
        for slot in range(self._workers):
            try:
                found.append(int((self.state / self.name / f"worker-{slot}" / "lock").read_text()))
            except (FileNotFoundError, ValueError):  # not there yet, or just being written
                continue
        return [pid for pid in found if psutil.pid_exists(pid)]

    def kill_worker(self) -> None:
        """kill -9 of the first worker."""
        psutil.Process(self.worker_pids()[0]).kill()

    def kill_all(self) -> None:
        """kill -9 of the supervisor and all its children. Returns when they are gone."""
        children = psutil.Process(self.run.pid).children(recursive=True)
        for child in children:
            child.kill()
        self.run.kill()
        for child in children:
            while alive(child):
                time.sleep(0.005)

    def stores(self) -> list[Path]:
        """The folders of its tasks' stores on this host."""
        return [path.parent for path in self.state.glob(f"{self.name}/worker-*/*/*/manifest.json")]
