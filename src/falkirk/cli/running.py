"""Runs an app on this host, with or without a supervisor: what is shown, and how it ends."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from falkirk.cli.ending import last_act
from falkirk.cli.stopping import stop_on_signals
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.spark.master import check_master
from falkirk.errors import ConfigError, UnreachableError
from falkirk.runtime.app import shadow_app
from falkirk.runtime.app.app import App
from falkirk.runtime.app.backfill_state import look
from falkirk.runtime.app.hosts import Hosts
from falkirk.runtime.app.outlets import meet_tables
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.app.warnings import one_task, unbounded
from falkirk.runtime.epochs.process import drive
from falkirk.runtime.gateway.options import GatewayOptions
from falkirk.runtime.host.identity import hold_app
from falkirk.runtime.host.logs import about, say, setup_logging, stamped
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.ends import recorded_end
from falkirk.runtime.messages.events import Line, Started, WorkerEvent
from falkirk.runtime.messages.protocol import EpochReport
from falkirk.runtime.messages.reports import ReportSender
from falkirk.runtime.messages.requests import current_requests
from falkirk.runtime.observe.board import Board
from falkirk.runtime.observe.console import clock
from falkirk.runtime.observe.watch import Watch
from falkirk.runtime.processes.companions import Companions
from falkirk.runtime.processes.draining import Draining, Following
from falkirk.runtime.processes.supervisor import Supervisor
from falkirk.runtime.worker.outlets import publish_rest
from falkirk.runtime.worker.work import work
from falkirk.stream.flow.load import load_flow
from falkirk.stream.stages.plan import USE_IT, Plan
from falkirk.wording import counted


def work_alone(target: str, settings: Settings, slot: int) -> None:
    """Be one worker, until stopped; then end this process."""
    setup_logging(settings.log_level, settings.log_format)
    app, topics = bound(target, settings)
    stop = stop_on_signals()
    watch = Watch(app, settings, 1, live=False)
    watch.start()
    watch.tell(Started(slot, os.getpid()))
    say_where(app, watch)

    def stopping() -> bool:
        watch.turned()
        return stop.is_set()

    with (
        last_act(),
        recorded_end(settings.cluster(), app.control),
        closing(watch),  # the error is printed last
        closing(Draining(app, settings, topics, lambda words: watch.tell(Line(words)))) as draining,
    ):
        work(app, settings, topics, slot, lambda: stopping() or draining.finished(), watch.tell)


def drive_alone(target: str, settings: Settings) -> None:
    """Drive the app's batch parts until stopped; then end this process."""
    setup_logging(settings.log_level, settings.log_format)
    app, topics = bound(target, settings)
    if not app.batches:
        raise ConfigError(f"flow {app.name!r} has no batch part", hint="falkirk run runs it")
    check_master(settings.spark)
    stop = stop_on_signals()
    board, announcing = Board(app, 0), ReportSender(settings.cluster(), app.control)

    def tell(report: EpochReport) -> None:
        if (event := board.take(report)) is not None:
            say(stamped(event))
        if announcing.due():
            announcing.say((), board.epochs.values())

    say(f"{app.name}: drives {', '.join(b.stage.id for b in app.batches)}, pid {os.getpid()}")
    with last_act(), closing(announcing):
        drive(app, settings, topics, stop.is_set, tell)


def say_where(app: App, watch: Watch) -> None:
    """Print the address of metrics and probes, if there is one."""
    if watch.url:
        say(f"{app.name}: metrics at {watch.url}/metrics, probes at /live and /ready")


class Workers(Protocol):
    """Keeps the workers of an app running: `Supervisor`, `SparkWorkers`."""

    def run(self, finished: Callable[[], bool], tell: Callable[[WorkerEvent], None]) -> None:
        """Until `finished()`; then they leave cleanly. Raises FalkirkError."""
        ...

    def kill(self) -> None:
        """Kill the remaining processes."""
        ...

    @property
    def working(self) -> bool:
        """Whether other things may start: they take the processor, or Spark's cores, from workers that start."""
        ...


def supervise(
    supervisor: Supervisor | None,
    target: str,
    settings: Settings,
    begun: threading.Event | None,
    *,
    live: bool,
    until_end: bool,
    gateway: GatewayOptions | None = None,
) -> None:
    """Run the workers until the end, or until stopped: under the supervisor, or else on Spark. `live`: show it in place, on a
    terminal. `begun`: they already work, this is the only run, and this event stops it. `gateway`: run one beside them."""
    setup_logging(settings.log_level, settings.log_format)
    app, topics = bound(target, settings, begun)
    if app.batches or supervisor is None:
        check_master(settings.spark)  # later, a master that is away is waited for
    with nullcontext() if begun else hold_app(Path(settings.state_dir) / app.name, app.name):
        workers: Workers = _on_spark(app, target, settings) if supervisor is None else supervisor
        there = supervisor is None
        with recorded_end(settings.cluster(), app.control):
            _supervise(
                workers,
                target,
                app,
                topics,
                settings,
                begun,
                live=live,
                until_end=until_end,
                there=there,
                gateway=gateway,
            )


def _on_spark(app: App, target: str, settings: Settings) -> Workers:
    if not find_spec("pyspark"):
        raise ConfigError("--on spark needs PySpark", hint="pip install 'falkirk[spark]'")
    from falkirk.runtime.spark_workers.workers import SparkWorkers

    return SparkWorkers(app, target, settings)


def _supervise(
    supervisor: Workers,
    target: str,
    app: App,
    topics: Topics,
    settings: Settings,
    begun: threading.Event | None,
    *,
    live: bool,
    until_end: bool,
    there: bool,
    gateway: GatewayOptions | None,
) -> None:
    end = UntilEnd(app, settings.cluster(), topics, app.until) if until_end else None
    progress = None if end is None else end.progress
    watch = Watch(app, settings, settings.workers, live=live, progress=progress, elsewhere=there)
    stop = stop_on_signals(
        lambda: watch.tell(
            Line(f"{app.name} stops: it commits the last steps and saves the last versions; Ctrl-C again stops at once")
        ),
        begun,
    )
    following = Following(lambda: end) if end is not None else None
    draining = Draining(app, settings, topics, lambda words: watch.tell(Line(words)))
    companions = Companions(app, target, settings, gateway, watch.tell, until_end=until_end)

    def finished() -> bool:
        watch.turned()
        companions.turn(working=supervisor.working or not app.tasks)
        ended = following is not None and following.finished() and companions.driven
        return stop.is_set() or ended or draining.finished()

    _say_begin(app, settings, there=there)
    say_where(app, watch)
    watch.start()
    with closing(watch), closing(draining), closing(companions):  # the error is printed last
        if app.tasks:
            supervisor.run(finished, watch.tell)
        else:
            supervisor.kill()  # workers have nothing to do
            while not finished():
                time.sleep(0.05)
    if end is None or following is None or not (following.finished() and companions.driven):
        return
    if app.tasks:
        publish_rest(app, settings.cluster(), settings.databases)
    _check_parts(app, settings)
    if app.tasks:
        _say_end(app, target, settings, end.progress()[1], watch.board)


def _say_begin(app: App, settings: Settings, *, there: bool) -> None:
    drives = f", batch parts {', '.join(b.stage.id for b in app.batches)}" if app.batches else ""
    place = f" on Spark at {settings.spark}" if there else ""
    workers = f"{counted(settings.workers, 'worker')}{place}"
    say(f"{app.name}: {counted(len(app.tasks), 'task')}, {workers}{drives}, pid {os.getpid()}")


def _say_end(app: App, target: str, settings: Settings, read: int, board: Board) -> None:
    records, took = counted(read, "input record"), clock(board.seconds)
    dead, skipped = board.failed()
    if settings.beside:
        again = " ".join(f"--rebuild {id_}" for id_ in settings.rebuild)
        say(f"{app.name}: read all that the app had read when this began: {records}, in {took}. Now stop the app, and "
            f"start its new version: falkirk run {target} {again}")  # fmt: skip
    else:
        # Those of earlier runs are among them, which a run that reads none has too.
        say(f"{app.name}: everything is processed: {records} in the sources; this run took {took}")
        if dead:
            say(f"{app.name}: {counted(dead, 'dead letter')} of this run: falkirk dlq list {app.name} shows why")
        if skipped:
            say(f"{app.name}: {skipped:,} failed and were skipped by this run, because of on_error=")


def _check_parts(app: App, settings: Settings) -> None:
    """Raises the error of a part that has stopped by itself: then not everything is processed."""
    parts = {*(stage.id for stage in app.plan.stages), *(batch.stage.id for batch in app.batches)}
    stopped = current_requests(settings.cluster(), app.control).stopped()
    for part in sorted(parts & stopped.keys()):
        raise stopped[part].error_of(part, "has not processed everything")


def bound(target: str, settings: Settings, begun: threading.Event | None = None) -> tuple[App, Topics]:
    """The flow, bound to the cluster. Raises ConfigError if its state could not move between its hosts, StateError while a
    backfill is open, and UnreachableError. `begun`: its workers run already, until this event. They outlive a cluster that is
    away, so that is waited for here too."""
    plan = load_flow(target).plan(settings.prefix)
    topics = Topics(settings.cluster())
    about(app=plan.app)
    while True:
        try:
            return _bind(plan, settings, topics), topics
        except UnreachableError as error:
            if begun is None or begun.wait(1.0):
                raise
            logger.warning("the workers run, and what shows them waits: %s", error.what)


def _bind(plan: Plan, settings: Settings, topics: Topics) -> App:
    app = shadow_app.prepare_app(plan, settings, topics)
    meet_tables(app, settings.databases)
    if app.backfill is not None:
        look(app, settings.cluster())  # an open one would stop each worker
    Hosts(app, settings, topics).check_alone()
    for words in one_task(app.plan, Counter(bound.task.id.stage for bound in app.tasks)):
        logger.warning("%s", words)
    for words, hint in [*unbounded(app.plan), *((words, USE_IT) for words in app.plan.unused)]:
        logger.warning("%s. To do: %s", words, hint)
    return app
