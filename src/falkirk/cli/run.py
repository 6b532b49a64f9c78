"""`falkirk run`, `falkirk dev` and `falkirk worker`: an app's processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console

from falkirk.cli.main import tell
from falkirk.cli.options import run_options, settings_from
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.app import App, prepare
from falkirk.runtime.board import Line, Started
from falkirk.runtime.identity import hold
from falkirk.runtime.settings import Settings
from falkirk.runtime.sources import make_missing_sources
from falkirk.runtime.supervisor import Supervisor, WorkerFailed
from falkirk.runtime.until_end import UntilEnd
from falkirk.runtime.view import clock
from falkirk.runtime.watch import Watch
from falkirk.runtime.work import work
from falkirk.stream.load import load_flow


@click.command()
@run_options
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes on this host."
)
@click.option("--until", type=click.Choice(["end"]), help="Stop when all that is in the sources now is processed.")
def run(target: str, workers: int, until: str | None, **options: Any) -> None:
    """Run a flow on a Kafka cluster, with WORKERS processes on this host.

    Start it on as many hosts as you like: tasks spread over all of them, and move when hosts join, leave or die. Workers
    that die are replaced at once. Ctrl-C or SIGTERM leaves cleanly, so that nothing is run again.

    \b
    falkirk run app:flow --brokers broker-1:9092 --workers 4 --state-dir /var/lib/app
    falkirk run app:flow --brokers broker-1:9092 --until end
    """
    settings = settings_from(workers=workers, **options)
    supervise(target, settings, until_end=until == "end")


@click.command()
@run_options
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@click.option("--until", type=click.Choice(["end"]), help="Stop when all that is in the sources now is processed.")
def dev(target: str, workers: int, until: str | None, **options: Any) -> None:
    """Run a flow on this machine; a real embedded Kafka starts by itself and ends with it.

    Topics that the flow reads are made if they are not there.

    \b
    falkirk dev app:flow
    """
    from falkirk.connectors.embedded import EmbeddedKafka

    if options["brokers"]:
        raise ConfigError("falkirk dev starts a Kafka of its own", hint="to use another: falkirk run --brokers …")
    plan = load_flow(target).plan(options["prefix"])
    kafka = EmbeddedKafka(options["state_dir"] / "kafka")
    with kafka:
        options["brokers"] = kafka.bootstrap
        settings = settings_from(workers=workers, **options)
        for topic in make_missing_sources(plan, Topics(settings.cluster())):
            click.secho(f"made topic {topic}, which the flow reads", dim=True, err=True)
        click.secho(f"Kafka at {kafka.bootstrap}", dim=True, err=True)
        supervise(target, settings, until_end=until == "end")


@click.command()
@run_options
@click.option("--slot", type=click.IntRange(0, 255), default=0, show_default=True,
              help="Which worker of its state directory this is.")  # fmt: skip
def worker(target: str, slot: int, **options: Any) -> None:
    """Be one worker of an app, without a supervisor: for a pod, which is started again when it ends.

    Give it a state directory that outlives the pod, for its identity and its stores are there: then it has its tasks back
    at once. SIGTERM leaves cleanly. What is wrong goes to standard error, with the exit code that names its kind.

    \b
    falkirk worker app:flow --brokers broker-1:9092 --state-dir /var/lib/app
    """
    from falkirk.runtime.process import BUG, setup_logging

    settings = settings_from(workers=1, **options)
    setup_logging(settings.log_level)
    app, topics = bound(target, settings)
    stop = stop_on_signals(lambda: None)
    watch = Watch(app, settings, 1, live=False)
    watch.start()
    watch.tell(Started(slot, os.getpid()))
    code = 0
    try:
        work(app, settings, topics, slot, stop.is_set, watch.tell)
    except FalkirkError as error:
        watch.close()
        tell(error)
        code = error.exit_code
    except Exception:  # noqa: BLE001  # whatever it is, the process ends with it
        watch.close()
        traceback.print_exc()
        code = BUG
    else:
        watch.close()
    sys.stderr.flush()
    os._exit(code)  # a thread that waits for the cluster would hold up the interpreter's end


def supervise(target: str, settings: Settings, *, until_end: bool) -> None:
    """Run the workers until the end, or until told to stop."""
    from falkirk.runtime.process import setup_logging

    setup_logging(settings.log_level)
    console = Console(stderr=True)
    live = console.is_terminal and not console.is_dumb_terminal
    with Supervisor(target, settings, listen=live) as supervisor:
        app, topics = bound(target, settings)
        with hold(Path(settings.state_dir) / app.name / "lock", f"app {app.name!r}"):
            _supervise(supervisor, app, topics, settings, live=live, until_end=until_end)


def _supervise(
    supervisor: Supervisor, app: App, topics: Topics, settings: Settings, *, live: bool, until_end: bool
) -> None:
    end = UntilEnd(app, settings.cluster(), topics) if until_end else None
    watch = Watch(app, settings, settings.workers, live=live, progress=None if end is None else end.progress)
    stop = stop_on_signals(
        lambda: watch.tell(Line(f"{app.name} leaves: last steps, last versions; again to end at once"))
    )
    following = Following(end) if end is not None else None

    def finished() -> bool:
        return stop.is_set() or (following is not None and following.finished())

    click.echo(f"{app.name}: {len(app.tasks)} tasks, {settings.workers} workers, pid {os.getpid()}", err=True)
    watch.start()
    try:
        with closing(watch):  # what is wrong is said last
            supervisor.run(finished, watch.tell)
    except WorkerFailed as error:
        tell(error)
        sys.exit(error.code)
    if end is not None and not stop.is_set():
        everything = f"everything is processed: {end.progress()[1]:,} input records, in {clock(watch.board.seconds)}"
        click.echo(f"{app.name}: {everything}", err=True)


class Following:
    """Looks for the end in a thread of its own: a cluster that does not answer must not hold up the supervisor."""

    def __init__(self, end: UntilEnd) -> None:
        self._end = end
        self._error: FalkirkError | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def finished(self) -> bool:
        """Whether everything is processed. Raises FalkirkError where that cannot be told."""
        if self._error is not None:
            raise self._error
        return self._ended.is_set()

    def _follow(self) -> None:
        try:
            while not self._end.finished():
                time.sleep(0.1)
        except FalkirkError as error:
            self._error = error
        self._ended.set()


def stop_on_signals(leaving: Callable[[], None]) -> threading.Event:
    """Set by SIGTERM or SIGINT; the second one ends the process at once, and loses nothing but time."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        leaving()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def bound(target: str, settings: Settings) -> tuple[App, Topics]:
    """The flow, bound to the cluster."""
    plan = load_flow(target).plan(settings.prefix)
    topics = Topics(settings.cluster())
    return prepare(plan, settings, topics), topics
