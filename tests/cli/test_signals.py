"""A signal in the first moments of a command: it ends as it does later, with the code that is documented and a line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.test_app import Running
from tests.waiting import PATIENCE_S

LATE = "stops: it commits the last steps"
"""What a run says that works already."""
EARLY = "told to stop before it began"


@pytest.fixture
def running(kafka: str, topic_prefix: str, tmp_path: Path) -> Running:
    return Running(kafka, topic_prefix, tmp_path)


def listens(process: subprocess.Popen[str]) -> bool:
    """Whether the process has a handler of its own for SIGTERM: Python has none, so some of our code has run."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def stopped(process: subprocess.Popen[str], number: signal.Signals, delay: float) -> tuple[int, str]:
    """Send a signal so many seconds after the process has begun to listen; its code, and what it said."""
    while not listens(process):
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["run", "worker"])
def test_whenever_a_signal_comes_it_is_a_clean_end(running: Running, command: str, number: signal.Signals) -> None:
    for delay in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0):
        code, said = stopped(running.start(command, "app.py:flow"), number, delay)
        told = EARLY in said or LATE in said or command == "worker"
        assert (delay, code, told, "Traceback" in said, "Aborted" in said) == (delay, 0, True, False, False), said


NAMES = """
import time
class Slow:
    def __set_name__(self, owner, name):
        time.sleep(60)
class Flow:
    name = Slow()
"""
"""Before 3.12, Python makes another error of what is raised there."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(
    ("command", "code", "app", "delay"),
    [("run", 0, "import time\ntime.sleep(60)\n", 0.0), ("backfill", 1, NAMES, 3.0)],
)
def test_a_command_that_is_still_imported_ends_cleanly(
    tmp_path: Path, command: str, code: int, app: str, delay: float
) -> None:
    (tmp_path / "app.py").write_text(app)
    arguments = [sys.executable, "-m", "falkirk", command, "app.py:flow", "--brokers", "127.0.0.1:1"]
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert stopped(process, number, delay) == (code, f"falkirk {command}: {EARLY}\n")


SWALLOWED = """
import os, signal
from falkirk.cli.stopping import StopRequested, listen, stop_on_signals
listen()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except StopRequested:
    print("told")
print(stop_on_signals(lambda: print("leaves")).is_set())
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_what_was_told_is_known_though_something_swallowed_it_and_a_second_time_ends_it_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-uc", SWALLOWED], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "told\nleaves\nTrue\n")


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_spare_that_is_still_imported_has_nothing_to_leave() -> None:
    arguments = [
        sys.executable,
        "-m",
        "falkirk.runtime.processes.parent",
        "falkirk.runtime.processes.process",
        "app:flow",
    ]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert stopped(process, signal.SIGTERM, 0.0) == (0, "")
