"""What is done to apps that are killed while they run, and what their readers see of them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
from tests.reading import read_topics


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
