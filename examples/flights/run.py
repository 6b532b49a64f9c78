"""The app as a real process, `falkirk run` with two workers, and ways to end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

FLOW = f"{Path(__file__).with_name('flow.py')}:flow"
WORKERS = 2


class Run:
    """One `falkirk run` after the other, with one state directory."""

    def __init__(self, brokers: str, folder: Path) -> None:
        self.log = folder / "run.log"
        falkirk = Path(sys.executable).with_name("falkirk")
        self._command = [str(falkirk), "run", FLOW, "--brokers", brokers, "--state-dir", str(folder / "state")]
        self._command += ["--workers", str(WORKERS)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start the supervisor, and it its workers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *more], stdout=log, stderr=log)

    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    def workers(self) -> dict[int, int]:
        """Process id by number of the worker, of those that have stores open. A spare has none, and is not among them."""
        found = {}
        for child in self._children():
            try:
                places = {part for file in child.open_files() for part in Path(file.path).parts}
            except psutil.Error:  # it ended meanwhile
                continue
            found |= {slot: child.pid for slot in range(WORKERS) if f"worker-{slot}" in places}
        return found

    def driver(self) -> int | None:
        """Process id of the driver of batch parts."""
        for child in self._children():
            try:
                if "falkirk.runtime.epochs.process" in child.cmdline():
                    return child.pid
            except psutil.Error:
                continue
        return None

    def kill_everything(self) -> None:
        """SIGKILL for the supervisor and all its processes."""
        children = self._children()
        assert self._process is not None
        self._process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.Error:  # it died with its supervisor
                continue
        self._process.wait()
        psutil.wait_procs(children, timeout=10)

    def leave(self) -> int:
        """SIGTERM, as an orchestrator sends it; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)

    def wait(self, timeout: float) -> int:
        """Until it ends by itself; the exit code."""
        assert self._process is not None
        return self._process.wait(timeout)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self.kill_everything()

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children(recursive=True) if self._process else []
        except psutil.NoSuchProcess:
            return []


def kill(pid: int) -> None:
    """SIGKILL, which no process can catch."""
    os.kill(pid, signal.SIGKILL)
