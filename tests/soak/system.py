"""The processes of a soak: the broker, `falkirk run` as users start it, and our own generator and reader."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import psutil

ROOT = Path(__file__).parents[2]
FLOWS = Path(__file__).with_name("flows.py").relative_to(ROOT)
DAILY = FLOWS.with_name("daily_flow.py")
RELATIONAL = FLOWS.with_name("relational") / "flow.py"
ORPHANS_S = 5.0
"""How long workers may outlive their supervisor."""

T = TypeVar("T", bound=msgspec.Struct)


class Helper(Generic[T]):
    """One of our own processes: it speaks JSON lines on its standard output, and obeys lines on its standard input."""

    def __init__(self, module: str, arguments: Sequence[str], said: type[T], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
            )
        self.module, self.log = module, log
        self._lines: queue.Queue[T] = queue.Queue()
        self._decoder = msgspec.json.Decoder(said)
        threading.Thread(target=self._listen, daemon=True).start()

    def news(self) -> list[T]:
        """All that it said since the last call. Raises RuntimeError if it died."""
        said = [self._lines.get() for _ in range(self._lines.qsize())]
        if not said and self.process.poll() not in (None, 0):
            raise RuntimeError(f"{self.module} ended with {self.process.returncode}: see {self.log}")
        return said

    def tell(self, line: str) -> None:
        """A line for its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Ask it to finish what it does."""
        self.process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(self._decoder.decode(line))


class Run:
    """`falkirk run`, again and again on one state directory."""

    def __init__(self, target: str, options: Sequence[str], workers: int, session_s: float, folder: Path) -> None:
        self.command = [
            sys.executable, "-m", "falkirk", "run", target, *options, "--workers", str(workers),
            "--state-dir", str(folder / "state"), "--session-timeout", f"{session_s:g}s", "--log-level", "info",
        ]  # fmt: skip
        self.logs = folder / "logs"
        self.count, self.started = 0, 0.0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Start it, with further arguments."""
        self.count, self.started = self.count + 1, now()
        with self.log.open("ab") as log:
            # A session of its own: a Ctrl-C meant for the soak is none for the run.
            self.process = subprocess.Popen(
                [*self.command, *more], stdout=log, stderr=log, cwd=ROOT, start_new_session=True
            )

    @property
    def log(self) -> Path:
        """What it says."""
        return self.logs / f"run-{self.count:04}.log"

    @property
    def worked(self) -> bool:
        """Whether one of its tasks ran."""
        return " runs from step " in self.log.read_text(errors="replace")

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.supervisor.poll()

    def children(self) -> list[psutil.Process]:
        """Its worker processes, spares among them."""
        try:
            return [child for child in psutil.Process(self.supervisor.pid).children(recursive=True) if _lives(child)]
        except psutil.NoSuchProcess:
            return []

    def kill_supervisor(self) -> list[psutil.Process]:
        """kill -9 of the supervisor. Returns the workers that did not end with it; they are killed then."""
        children = self.children()
        self.supervisor.kill()
        self.supervisor.wait()
        alive = wait_for_end(children, ORPHANS_S)
        for orphan in alive:
            signal_to(orphan, signal.SIGKILL)
        return alive

    def kill_all(self) -> None:
        """kill -9 of everything at the same time."""
        if self.process is None:
            return
        everyone = [*self.children(), psutil.Process(self.supervisor.pid)] if self.ended() is None else []
        for one in reversed(everyone):
            signal_to(one, signal.SIGKILL)
        self.supervisor.wait()
        wait_for_end(everyone, ORPHANS_S)

    def workers(self) -> list[psutil.Process]:
        """The children that own tasks: from outside it shows in files that are open in the state directory."""
        state = self.command[self.command.index("--state-dir") + 1]
        return [child for child in self.children() if _has_open(child, state)]

    def leave(self, timeout: float) -> int | None:
        """SIGTERM: a clean end. Its exit code, or None if it had to be killed."""
        self.supervisor.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int | None:
        """Its exit code when it ends by itself, or None if it had to be killed."""
        try:
            return self.supervisor.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            return None


def wait_for_end(processes: Sequence[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Those that have not ended in time. One that nobody has reaped yet has ended."""
    deadline = time.monotonic() + timeout
    alive = [p for p in processes if _lives(p)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.01)
        alive = [p for p in alive if _lives(p)]
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _has_open(process: psutil.Process, folder: str) -> bool:
    try:
        return any(file.path.startswith(folder) for file in process.open_files())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def signal_to(process: psutil.Process, number: int) -> bool:
    """Send a signal; False if the process is gone."""
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def now() -> float:
    """Wall time in seconds: what the reader's arrivals and the steps' clocks are in."""
    return time.time()
