"""Processes that a benchmark starts, and none of them outlives it: not an abort, not a kill -9.

The kernel ends a child of ours when we end (Linux), and `Processes` ends what is left when a measurement is given up.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falkirk.runtime.processes.parent import die_with_parent

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent


class Failed(Exception):
    """A process did not do what it was started for."""


class Process:
    """A child, its errors in a log; what it says on its standard output is lines of JSON."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> None:
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # it calls the kernel, and nothing else
            )
        self.pid = self._child.pid
        self._name, self._log = " ".join(command[:3]), log
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def said(self, timeout: float) -> dict[str, Any] | None:
        """The next line; None if there is none in time. Raises Failed if the process died."""
        try:
            return self._said.get(timeout=timeout)
        except queue.Empty:
            self.check()
            return None

    def check(self) -> None:
        """Raises Failed if the process ended with an error."""
        if self._child.poll() not in (None, 0):
            raise Failed(f"{self._name} ended with code {self._child.returncode}: {self._last_words()}")

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def wait(self, timeout: float) -> None:
        """Until it ends by itself, with code 0. Raises Failed."""
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self._name} took longer than {timeout:.0f} s: {self._last_words()}") from None
        self._listener.join(5)
        self.check()

    def go(self) -> None:
        """Close its standard input: what a helper of ours waits for."""
        assert self._child.stdin is not None
        self._child.stdin.close()

    def finish(self, timeout: float = 30) -> None:
        """Close its standard input, which asks our own helpers to end, and wait."""
        self.go()
        self.wait(timeout)

    def terminate(self, timeout: float = 90) -> None:
        """SIGTERM, and wait."""
        self._child.terminate()
        self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._child.kill()
        self._child.wait()

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith(b"{"):
                self._said.put(json.loads(line))

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or f"nothing in {self._log}"


class Processes:
    """All that is running. Use it as a context: what is still there at its end is killed."""

    def __init__(self, logs: Path) -> None:
        self._logs, self._started = logs, list[Process]()
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], **environment: str) -> Process:
        """Start a command from the project's root. From the main thread alone: the kernel minds who the parent was."""
        return self._start(name, command, environment, ROOT)

    def helper(self, name: str, module: str, *arguments: object) -> Process:
        """Start a module of the bench, from its folder, so that it finds the other modules."""
        return self._start(name, [sys.executable, "-m", module, *map(str, arguments)], {}, BENCH)

    def _start(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Process:
        assert threading.current_thread() is threading.main_thread()
        process = Process(command, self._logs / f"{name}.log", environment, folder)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill all that is left."""
        for process in self._started:
            if process.alive:
                process.kill()
        self._started.clear()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
