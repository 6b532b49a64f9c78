"""A driver process, started by a supervisor (`processes.parent`), which gets its settings as a line on standard input.

It waits until it is elected, and then drives every batch part of the app, each in its own thread. Spark starts with the first
epoch to compute. The process ends on SIGTERM or when its supervisor ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.spark.errors import SparkEnded
from falkirk.errors import UnreachableError
from falkirk.runtime.app.app import App
from falkirk.runtime.epochs.driver import Driver, Tell
from falkirk.runtime.epochs.election import Election
from falkirk.runtime.epochs.parts import BatchParts
from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.runtime.host.clock import timekeeper
from falkirk.runtime.host.identity import word
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.protocol import Ready
from falkirk.runtime.processes.process import Pipe, be_child, load_app, watch_supervisor

NICE = 10

TURN = 0.1
"""Seconds between two checks of the group and of the drivers."""


def main() -> None:
    """Drive until SIGTERM."""
    be_child(_drive, passing=(UnreachableError, SparkEnded))


def _drive(settings: Settings, pipe: Pipe, stop: threading.Event) -> None:
    if settings.spark.startswith("local"):
        os.nice(NICE)  # Spark's processes will be as nice: the stream beside them must not wait for them
    app, topics = load_app(settings, pipe)
    threading.Thread(target=watch_supervisor, daemon=True).start()
    pipe.say(Ready())
    drive(app, settings, topics, stop.is_set, pipe.say, until_end="end" in sys.argv[2:])


def drive(
    app: App, settings: Settings, topics: Topics, stopping: Callable[[], bool], tell: Tell, *, until_end: bool = False
) -> None:
    """Be a driver of the app, whenever elected, until `stopping()`; with `until_end`, until epochs have read what is in the
    sources now. Raises FalkirkError."""
    who = f"{word(Path(settings.state_dir))}-driver"
    keeper = timekeeper(settings.cluster(), app.control, who, settings.clock_bound_ms)
    while keeper.now() is None:  # epochs are dated by this host's clock
        if stopping():
            return
        time.sleep(TURN / 10)
    compute = SparkCompute(app, settings)
    election = Election(app, settings)
    parts = BatchParts(app, settings, who, until_end=until_end)
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
            known=app.recorded,
        )
        for batch in app.batches
    ]

    def meanwhile() -> None:
        election.poll()
        keeper.now()

    try:
        while not stopping() and not all(driver.done or parts.given_up(driver.part) for driver in drivers):
            election.poll()
            if election.elected and keeper.now() is not None:
                _term(drivers, parts, lambda: stopping() or not election.elected, meanwhile)
            time.sleep(TURN)
    finally:
        keeper.close()
        parts.close()
        election.leave()
        compute.close()


def _term(
    drivers: Sequence[Driver], parts: BatchParts, over: Callable[[], bool], meanwhile: Callable[[], None]
) -> None:
    """Let each drive its batch part, in its own thread, until it is over or all are done. Raises the first error of any of
    them, unless its part stops alone."""
    failed: list[BaseException] = []
    threads: dict[Driver, threading.Thread] = {}

    def stopping() -> bool:
        return bool(failed) or over()

    def run(driver: Driver) -> None:
        try:
            with parts.guard(driver.part):
                driver.drive(stopping)
        except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
            failed.append(error)

    while not stopping() and not all(driver.done or parts.given_up(driver.part) for driver in drivers):
        for driver in drivers:
            runs = driver in threads and threads[driver].is_alive()
            if not runs and not driver.done and parts.may_run(driver.part):
                threads[driver] = threading.Thread(target=run, args=(driver,), name="falkirk-driver", daemon=True)
                threads[driver].start()
        meanwhile()
        time.sleep(TURN)
    while any(thread.is_alive() for thread in threads.values()):
        meanwhile()
        time.sleep(TURN)
    if failed:
        raise failed[0]
