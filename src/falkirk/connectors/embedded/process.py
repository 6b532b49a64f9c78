"""The JVM as a process: found again by its pid file, and either detached or ended with its owner."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

# Waits for the JVM, and kills it when the owner's end of standard input closes. The kernel closes it even if the owner
# was killed with -9. A parent-death signal would follow the thread that started the JVM, not the process, and only
# Linux has it.
_GUARD = """
log=$1; shift
exec 3<&0
"$@" 3<&- </dev/null >>"$log" 2>&1 &
jvm=$!
( read -r _ <&3; kill -9 $jvm ) >/dev/null 2>&1 &
guard=$!
echo $jvm
exec >&- 3<&-
wait $jvm
code=$?
kill $guard
exit $code
"""


ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
"""The status of a process that has ended: not reaped yet, or just being reaped."""


@dataclass(frozen=True, slots=True)
class RunningNode:
    """A broker's process, from its pid file: which one it is (pids are used again), and where it answers."""

    pid: int
    created: float  # seconds since the epoch, by the system
    port: int
    version: str

    def alive(self) -> bool:
        """Whether this process still runs; another one with its pid does not count."""
        try:
            process = psutil.Process(self.pid)
            return abs(process.create_time() - self.created) < 2 and process.status() not in ENDED
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        if self.alive():
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether the process ended within `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def write(self, path: Path) -> None:
        """Make this the node of the pid file `path`, atomically."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> RunningNode | None:
        """The node of the pid file `path`, alive or not; None if the pid file is missing or makes no sense."""
        try:
            return cls(**json.loads(path.read_text()))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None


def spawn(
    command: Sequence[str], folder: Path, console: Path, *, detached: bool
) -> tuple[subprocess.Popen[bytes], int]:
    """Start `command` in `folder`, its output in the file `console`. Returns what to wait for, and its own pid.

    If not detached, it is killed when this process ends in any way. In both cases a Ctrl-C in the terminal reaches only
    the owner, which stops the broker when its own work is done.
    """
    if detached:
        with console.open("ab") as output:
            child = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return child, child.pid
    child = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "falkirk-kafka", str(console), *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert child.stdout is not None
    with child.stdout as answer:
        return child, int(answer.readline())
