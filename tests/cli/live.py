"""What is done to apps that are killed while they run, and what their readers see of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from tests.reading import read_topics
from tests.waiting import PATIENCE_S


def workers(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """The living worker processes of a run, the oldest first: a warm spare comes last."""
    found = []
    for child in psutil.Process(run.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if child.status() != psutil.STATUS_ZOMBIE and "falkirk.runtime.processes.process" in child.cmdline():
                found.append((child.create_time(), child))
    # Not by process id: these begin again at the lowest one day.
    return [child for _, child in sorted(found, key=lambda one: one[0])]


def kill_one(run: subprocess.Popen[str]) -> None:
    """kill -9 of a worker."""
    workers(run)[0].kill()


def kill_all(run: subprocess.Popen[str]) -> None:
    """kill -9 of a run and all that it has started, at once."""
    for process in [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # workers end with their run
            process.kill()
    run.communicate()


@contextmanager
def asleep(run: subprocess.Popen[str]) -> Iterator[None]:
    """It and all that it has started do nothing meanwhile."""
    # The run sleeps before its workers and wakes after them: awake, it reaps those that were killed just now, and they could
    # be neither stopped nor woken.
    supervisor = psutil.Process(run.pid)
    supervisor.suspend()
    children = supervisor.children()
    for child in children:
        child.suspend()
    yield
    for process in [*children, supervisor]:
        process.resume()


def committed(brokers: str, topic: str) -> list[tuple[bytes | None, bytes | None, bytes]]:
    """Key, value and the mark of who made it: what is committed, partition by partition."""
    found = read_topics(brokers, topic)
    return [(m.key(), m.value(), dict(m.headers() or []).get("falkirk", b"")) for m in found]


def until(run: subprocess.Popen[str], holds: Callable[[], object]) -> None:
    """Wait for this, while the run goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def table(brokers: str, topic: str) -> set[tuple[Any, ...]]:
    """The last record of each key, as a reader of committed records sees them."""
    last = {key: value for key, value, _ in committed(brokers, topic)}
    return {tuple(json.loads(value).values()) for value in last.values() if value is not None}
