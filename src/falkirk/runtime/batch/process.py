"""A driver process, started by a supervisor (`falkirk.runtime.parent`), with its settings as a line on its standard input.

It waits to be elected, and drives every batch part of the app, each in a thread of its own. Spark is started when the first
epoch is to be computed. It ends when it is told to (SIGTERM) or when its supervisor ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from falkirk.connectors.kafka.topics import Topics
from falkirk.connectors.spark.errors import SparkEnded
from falkirk.errors import UnreachableError
from falkirk.runtime.app import App
from falkirk.runtime.batch.driver import Driver, Tell
from falkirk.runtime.batch.election import Election
from falkirk.runtime.batch.spark import SparkCompute
from falkirk.runtime.process import Pipe, be_child, met, watch_supervisor
from falkirk.runtime.protocol import Ready
from falkirk.runtime.settings import Settings

NICE = 10

TURN = 0.1
"""Seconds between two looks at the group, and at the drivers."""


def main() -> None:
    """Drive until told to stop."""
    be_child(_drive, passing=(UnreachableError, SparkEnded))


def _drive(settings: Settings, pipe: Pipe, stop: threading.Event) -> None:
    if settings.spark.startswith("local"):
        os.nice(NICE)  # Spark's processes will be as nice: the stream beside them must not wait for them
    app, topics = met(settings, pipe)
    threading.Thread(target=watch_supervisor, daemon=True).start()
    pipe.say(Ready())
    drive(app, settings, topics, stop.is_set, pipe.say, until_end="end" in sys.argv[2:])


def drive(
    app: App, settings: Settings, topics: Topics, stopping: Callable[[], bool], tell: Tell, *, until_end: bool = False
) -> None:
    """Be a driver of the app, whenever elected, until `stopping()`; with `until_end`, until epochs have read what is in the
    sources now. Raises FalkirkError."""
    compute = SparkCompute(app, settings)
    election = Election(app, settings)
    drivers = [
        Driver(
            app.name,
            batch,
            settings.cluster(),
            topics,
            compute,
            tell,
            until_end=until_end,
            transaction_timeout_ms=settings.transaction_timeout_ms,
        )
        for batch in app.batches
    ]
    try:
        while not stopping() and not all(driver.done for driver in drivers):
            election.poll()
            if election.elected:
                _term(drivers, lambda: stopping() or not election.elected, election.poll)
            time.sleep(TURN)
    finally:
        election.leave()
        compute.close()


def _term(drivers: Sequence[Driver], over: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    """Let each drive its batch part, in a thread of its own, until it is over. Raises what the first of them raised."""
    failed: list[BaseException] = []

    def stopping() -> bool:
        return bool(failed) or over()

    def run(driver: Driver) -> None:
        try:
            driver.drive(stopping)
        except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(d,), name="falkirk-driver", daemon=True) for d in drivers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meanwhile()
        time.sleep(TURN)
    if failed:
        raise failed[0]
