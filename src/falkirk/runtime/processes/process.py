"""A worker process, started by a supervisor (`falkirk.runtime.processes.parent`).

It reads its settings, a line on standard input, loads the flow and connects to the cluster as a spare. Then it waits for
another line that says which worker it is, and works until SIGTERM or its supervisor's end (end of standard input).
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, TypeVar

import msgspec

from falkirk.connectors.garbage import collect_rarely
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import FalkirkError, UnreachableError
from falkirk.runtime.app.app import App
from falkirk.runtime.app.hosts import Hosts
from falkirk.runtime.app.shadow_app import prepare_app, prepared_app
from falkirk.runtime.host.logs import print_trace, setup_logging
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.protocol import BUG, Failed, FromWorker, Ready, Report, Waiting, decode_to_worker, encode
from falkirk.runtime.observe.traces import warm_up
from falkirk.runtime.worker.work import work
from falkirk.stream.flow.load import load_flow
from falkirk.stream.stages.plan import Plan

Bound = TypeVar("Bound")


def main() -> None:
    """Be a spare, then a worker."""
    be_child(_work)


def _work(settings: Settings, pipe: Pipe, stop: threading.Event) -> None:
    # A run may be refused by what this process has not seen. So what is new is recorded by the run, and not by a spare.
    early, topics = load(settings, pipe, prepared_app)
    warm_up(settings)
    collect_rarely()
    pipe.say(Ready(early.name if early is not None and early.tasks else ""))
    line = sys.stdin.readline()
    if line and not stop.is_set():
        order = decode_to_worker(line)
        threading.Thread(target=watch_supervisor, daemon=True).start()
        app = early
        if app is None or settings.beside:  # beside it, the supervisor waits until we are where it saw the app
            app, topics = load_app(settings, pipe)
        if order.first:
            Hosts(app, settings, topics).check_alone()
        work(app, settings, topics, order.slot, stop.is_set, pipe.say)


def be_child(
    do: Callable[[Settings, Pipe, threading.Event], None], passing: tuple[type[FalkirkError], ...] = (UnreachableError,)
) -> None:
    """Be a supervisor's child: do something until SIGTERM sets the event, then end this process, however it ended. Errors
    that are `passing` are marked so: another child may succeed."""
    pipe = Pipe(os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0))
    # The prints of a user's function, or of Spark, must not get into the reports.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        if not (line := sys.stdin.readline()):
            os._exit(1)  # the supervisor has ended already
        settings = msgspec.json.decode(line, type=Settings)
        setup_logging(settings.log_level, settings.log_format)
        do(settings, pipe, stop)
        sys.stderr.flush()
        os._exit(0)  # a thread that waits for the cluster, or Spark, would block the interpreter's end
    except FalkirkError as error:
        kind = type(error).__name__
        pipe.say(Failed(error.what, error.exit_code, isinstance(error, passing), error.where, error.hint, kind))
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001  # whatever it is, the process ends with it
        print_trace()
        os._exit(BUG)


def load_app(settings: Settings, pipe: Pipe) -> tuple[App, Topics]:
    """The flow that the command line names, prepared on its cluster (see `load`)."""
    return load(settings, pipe, prepare_app)


def load(settings: Settings, pipe: Pipe, bind: Callable[[Plan, Settings, Topics], Bound]) -> tuple[Bound, Topics]:
    """The flow that the command line names, bound to its cluster. Tries until a broker answers: the supervisor decides
    whether the run survives that."""
    plan = load_flow(sys.argv[1]).plan(settings.prefix)
    topics = Topics(settings.cluster())
    while True:
        try:
            return bind(plan, settings, topics), topics
        except UnreachableError as error:
            logging.getLogger("falkirk").info("a spare waits: %s", error.what)
            pipe.say(Waiting())
            time.sleep(0.5)


def watch_supervisor() -> None:
    """The supervisor's end closes the pipe."""
    while os.read(sys.stdin.fileno(), 1024):  # not sys.stdin: a thread inside it would block the interpreter's end
        pass
    os._exit(1)


class Pipe:
    """The worker's standard output, as its supervisor reads it."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def say(self, message: FromWorker) -> None:
        """Write a line. A report is dropped rather than waited for: a supervisor that sleeps must not block the work."""
        if not isinstance(message, Report) or select.select([], [self._out], [], 0)[1]:
            self._out.write(encode(message) + b"\n")
