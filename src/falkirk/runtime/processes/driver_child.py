"""The supervisor's end of a driver process: it restarts the process when it dies, and stops it at the end."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import IO

from falkirk.errors import CrashError, FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Line, WorkerEvent
from falkirk.runtime.messages.protocol import EpochReport, Failed, decode_from_worker, encode, error_of
from falkirk.runtime.processes.parent import command
from falkirk.runtime.processes.supervisor import CRASHES, ending, write_line

AGAIN = 2.0
"""Seconds until a dead driver is restarted. Its epoch waits; no reader does."""
LEAVE = 20.0
"""Seconds that a driver has to leave."""


class DriverChild:
    """Keeps a driver process running. `tell` receives its news, and must not wait."""

    def __init__(
        self, target: str, settings: Settings, tell: Callable[[WorkerEvent], None], *, until_end: bool = False
    ) -> None:
        """With `until_end`, it is finished when epochs have read all that the sources held when it began."""
        self._arguments = command("falkirk.runtime.epochs.process", target, *(["end"] if until_end else []))
        self._settings, self._tell = settings, tell
        self._failed: FalkirkError | None = None
        self._done = False
        self._crashes = 0
        """Its own deaths since it last completed an epoch."""
        self._leaving = threading.Event()
        self._process = self._spawn()
        self._thread = threading.Thread(target=self._keep, name="falkirk-driver", daemon=True)
        self._thread.start()

    def finished(self) -> bool:
        """Whether nothing is left to drive. Raises its error if no restart can fix it, and CrashError."""
        if self._failed is not None:
            raise self._failed
        return self._done

    def close(self) -> None:
        """Let it leave; an open epoch continues with the next driver."""
        self._leaving.set()
        self._process.terminate()
        try:
            self._process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(LEAVE)

    def _spawn(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            self._arguments, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONWARNINGS": "ignore"}
        )
        write_line(process, encode(self._settings))
        return process

    def _keep(self) -> None:
        while True:
            self._follow(self._process)
            if self._leaving.is_set() or self._failed is not None:
                return
            pid, code = self._process.pid, self._process.wait()
            if code == 0:
                self._done = True
                return
            self._crashes = self._crashes + 1 if code > 0 else 0
            if self._crashes == CRASHES:
                what = f"the driver of batch parts keeps dying ({CRASHES} times): see its tracebacks above"
                self._failed = CrashError(what)
                return
            self._tell(Line(f"the driver of batch parts (pid {pid}) {ending(code)}; another is started"))
            if self._leaving.wait(AGAIN):
                return
            self._process = self._spawn()

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on all its news."""
        assert process.stdout is not None
        assert process.stderr is not None
        errors = threading.Thread(target=self._pass_on, args=(process.stderr,), daemon=True)
        errors.start()
        for line in process.stdout:
            match decode_from_worker(line):
                case Failed(passing=passing) as said:
                    failed = error_of(said)
                    if passing:
                        self._tell(Line(str(failed)))
                    else:
                        self._failed = failed
                case EpochReport() as report:
                    self._crashes = 0 if report.state == "complete" else self._crashes
                    self._tell(report)
                case _:
                    pass
        errors.join(1)

    def _pass_on(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            text = line.decode(errors="replace").rstrip("\n")
            if not chatter(text):
                self._tell(Line(text))


def chatter(line: str) -> bool:
    """Spark writes long greetings, and a JVM logs it when it is ended."""
    return not line.strip() or " WARN " in line or line.startswith(_GREETINGS)


_GREETINGS = (
    "WARNING:",
    "Setting default log level",
    "Setting Spark log level",
    "To adjust logging",
    "Using Spark's default log4j profile",
)
