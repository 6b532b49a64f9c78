"""A worker process: `python -m falkirk.runtime.process APP SETTINGS`, started by a supervisor.

It loads the flow and meets the cluster as a spare, waits for one line that says which worker it is, and works until it is
told to stop (SIGTERM) or its supervisor ends (end of its standard input).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO

import msgspec

from falkirk.checkpoint.tasks import Phase
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import FalkirkError
from falkirk.runtime.app import App, prepare
from falkirk.runtime.identity import identity
from falkirk.runtime.parent import die_with_parent
from falkirk.runtime.protocol import Failed, Ready, Report, TaskReport, decode_to_worker, encode
from falkirk.runtime.settings import Settings
from falkirk.runtime.worker import Worker
from falkirk.stream.load import load_flow

BUG = 70
"""Exit code of what is no FalkirkError (EX_SOFTWARE): the supervisor tries again, a few times."""


def main() -> None:
    """Be a spare, then a worker."""
    die_with_parent()
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    # What a user's function prints must not end up among the reports.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to answer
    try:
        settings = msgspec.json.decode(sys.argv[2], type=Settings)
        setup_logging(settings.log_level)
        plan = load_flow(sys.argv[1]).plan()
        topics = Topics(settings.cluster())
        app = prepare(plan, settings, topics)
        tame_garbage_collector()
        out.write(encode(Ready()) + b"\n")
        line = sys.stdin.readline()
        if not line or stop.is_set():
            return
        slot = decode_to_worker(line).slot
        threading.Thread(target=watch_supervisor, daemon=True).start()
        work(app, settings, topics, slot, stop, out)
    except FalkirkError as error:
        out.write(encode(Failed(str(error), error.exit_code)) + b"\n")
        os._exit(error.exit_code)
    except BaseException:  # noqa: BLE001  # whatever it is, the process ends with it
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(BUG)


def work(app: App, settings: Settings, topics: Topics, slot: int, stop: threading.Event, out: IO[bytes]) -> None:
    """Be worker `slot` until told to stop."""
    worker = Worker(app, settings, identity(Path(settings.state_dir), app.name, slot), topics)
    reporter = Reporter(worker, slot, out)

    def stopping() -> bool:
        reporter.tick()
        return stop.is_set()

    worker.run(stopping)
    reporter.report()


def watch_supervisor() -> None:
    """The supervisor's end closes the pipe."""
    while os.read(sys.stdin.fileno(), 1024):  # not sys.stdin: a thread inside it would hold up the interpreter's end
        pass
    os._exit(1)


def tame_garbage_collector() -> None:
    """A step holds some hundred thousand messages, none of them in a cycle: looking for cycles among them costs a third."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


class Reporter:
    """Says once a second how the worker is."""

    def __init__(self, worker: Worker, slot: int, out: IO[bytes]) -> None:
        self._worker, self._slot, self._out = worker, slot, out
        self._last = 0.0

    def tick(self) -> None:
        """Report, if it is time."""
        if time.monotonic() - self._last >= 1.0:
            self.report()

    def report(self) -> None:
        """Report now."""
        self._last = time.monotonic()
        w = self._worker
        tasks = [
            TaskReport(
                str(t.owned.task.id),
                t.owned.phase.value,
                -1 if t.owned.last is None else t.owned.last.step,
                w.stats.rows.pop(t.owned.task.id, 0),
                t.rows,
                w.maintenance.version(t.owned.task.id),
            )
            for t in list(w.tasks.values())
        ]
        tasks += [
            TaskReport(str(o.task.id), Phase.NAMING.value if o.phase is Phase.IDLE else o.phase.value)
            for o in w.recovering()
        ]
        s = w.stats
        self._out.write(encode(Report(self._slot, tasks, s.step_ms, s.commit_ms, s.commits)) + b"\n")


def setup_logging(level: str) -> None:
    """Log lines with time and process on standard error."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s.%(msecs)03d {os.getpid()} %(levelname).1s %(message)s",
        datefmt="%H:%M:%S",
    )


if __name__ == "__main__":
    main()
