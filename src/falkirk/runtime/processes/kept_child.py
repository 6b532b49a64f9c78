"""The supervisor's end of a process that works beside the workers: it restarts the process when it dies, and stops it at the
end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import IO, ClassVar

from falkirk.errors import CrashError, FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Line, WorkerEvent
from falkirk.runtime.messages.protocol import Failed, FromWorker, decode_from_worker, encode, error_of
from falkirk.runtime.processes.supervisor import CRASHES, ending, write_line

AGAIN = 2.0
"""Seconds until a dead process is restarted."""
LEAVE = 20.0
"""Seconds that it has to leave."""


class KeptChild:
    """Keeps a process running. `tell` receives its news, and must not wait."""

    soon: ClassVar[float] = inf
    """Its deaths are counted if they come within so many seconds of its start."""

    def __init__(
        self, what: str, arguments: Sequence[str], settings: Settings, tell: Callable[[WorkerEvent], None]
    ) -> None:
        """`what` it is, for people."""
        self._what, self._arguments, self._settings, self._tell = what, arguments, settings, tell
        self._failed: FalkirkError | None = None
        self._done = False
        self._crashes = 0
        """Its own deaths since it last worked."""
        self._leaving = threading.Event()
        self._process = self._spawn()
        self._thread = threading.Thread(target=self._keep, name="falkirk-kept", daemon=True)
        self._thread.start()

    def finished(self) -> bool:
        """Whether it has ended by itself, and well. Raises its error if no restart can fix it, and CrashError."""
        if self._failed is not None:
            raise self._failed
        return self._done

    def close(self) -> None:
        """Let it leave."""
        self._leaving.set()
        self._process.terminate()
        try:
            self._process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(LEAVE)

    def hear(self, said: FromWorker) -> None:
        """It said something, not that it failed."""

    def shows(self, line: str) -> bool:
        """Whether people should see this line of its standard error."""
        return bool(line.strip())

    def worked(self) -> None:
        """It has done something useful: deaths are counted from now on."""
        self._crashes = 0

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._started = time.monotonic()
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
            counts = code > 0 and time.monotonic() - self._started < self.soon
            self._crashes = self._crashes + 1 if counts else 0
            if self._crashes == CRASHES:
                self._failed = CrashError(f"{self._what} keeps dying ({CRASHES} times): see its tracebacks above")
                return
            self._tell(Line(f"{self._what} (pid {pid}) {ending(code)}; another is started"))
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
            said = decode_from_worker(line)
            if not isinstance(said, Failed):
                self.hear(said)
            elif said.passing:
                self._tell(Line(str(error_of(said))))
            else:
                self._failed = error_of(said)
        errors.join(1)

    def _pass_on(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            text = line.decode(errors="replace").rstrip("\n")
            if self.shows(text):
                self._tell(Line(text))
