"""`falkirk run`, `falkirk dev` and `falkirk worker`: an app's processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click

from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.app import App, prepare
from falkirk.runtime.settings import Settings
from falkirk.runtime.sources import make_missing_sources
from falkirk.runtime.supervisor import Supervisor, WorkerFailed
from falkirk.runtime.until_end import UntilEnd
from falkirk.stream.load import load_flow

DEFAULT_STATE = Path(".falkirk")


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that all three commands share."""
    options = [
        click.argument("target", metavar="APP:FLOW"),
        click.option("--brokers", "--bootstrap-server", metavar="HOST:PORT,…", envvar="FALKIRK_BROKERS",
                     help="Kafka's addresses."),
        click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_STATE,
                     envvar="FALKIRK_STATE_DIR", show_default=True, help="Where stores and the worker's identity are kept."),
        click.option("--checkpoints", metavar="URL", default="", help="Where versions are copied to: file://, s3://, gs://, "
                     "az://.  [default: a folder in the state directory]"),
        click.option("--session-timeout", metavar="DURATION", default="10s", show_default=True,
                     help="How long a worker may be silent before others take its tasks."),
        click.option("--replication", type=int, default=-1, help="Replication factor of the topics that the app makes.  "
                     "[default: the broker's]"),
        click.option("--prefix", default="falkirk", show_default=True, help="Internal topics are called PREFIX.APP.…"),
        click.option("--memory", metavar="SIZE", default="256MiB", show_default=True,
                     help="Block cache and write buffers of each worker's stores."),
        click.option("--set", "client", metavar="KEY=VALUE", multiple=True, help="A librdkafka setting, e.g. "
                     "security.protocol=SASL_SSL. May be given several times."),
        click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning",
                     show_default=True),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_options
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes on this host.")
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
@_options
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
    plan = load_flow(target).plan()
    kafka = EmbeddedKafka(options["state_dir"] / "kafka")
    with kafka:
        options["brokers"] = kafka.bootstrap
        settings = settings_from(workers=workers, **options)
        for topic in make_missing_sources(plan, Topics(settings.cluster())):
            click.secho(f"made topic {topic}, which the flow reads", dim=True, err=True)
        click.secho(f"Kafka at {kafka.bootstrap}", dim=True, err=True)
        supervise(target, settings, until_end=until == "end")


def settings_from(*, client: tuple[str, ...], brokers: str | None, **options: Any) -> Settings:
    """Settings from options. Raises ConfigError."""
    from falkirk.durations import parse_duration, parse_size

    if not brokers:
        raise ConfigError(
            "no brokers given",
            hint="name your cluster with --brokers HOST:PORT (or FALKIRK_BROKERS); to try a flow on this machine alone, with "
            "a Kafka that starts by itself: falkirk dev",
        )
    pairs = {}
    for setting in client:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting!r} is no KEY=VALUE", hint="for instance --set security.protocol=SASL_SSL")
        pairs[key] = value
    return Settings(
        brokers=brokers,
        state_dir=str(options["state_dir"]),
        workers=options["workers"],
        session_timeout_ms=int(parse_duration(options["session_timeout"]).total_seconds() * 1000),
        checkpoints=options["checkpoints"],
        replication=options["replication"],
        prefix=options["prefix"],
        cache_bytes=parse_size(options["memory"]),
        log_level=options["log_level"],
        client=pairs,
    )


def supervise(target: str, settings: Settings, *, until_end: bool) -> None:
    """Run the workers until the end, or until told to stop."""
    from falkirk.runtime.process import setup_logging

    setup_logging(settings.log_level)
    app, topics = bound(target, settings)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    end = UntilEnd(app, settings.cluster(), topics) if until_end else None
    supervisor = Supervisor(target, settings, lambda line: click.echo(line, err=True))

    def finished() -> bool:
        return stop.is_set() or (end is not None and end.finished())

    click.echo(f"{app.name}: {len(app.tasks)} tasks, {settings.workers} workers, pid {os.getpid()}", err=True)
    try:
        supervisor.run(finished)
    except WorkerFailed as error:
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(error.what, err=True)
        sys.exit(error.code)
    if end is not None and not stop.is_set():
        click.echo(f"{app.name}: everything is processed", err=True)


def bound(target: str, settings: Settings) -> tuple[App, Topics]:
    """The flow, bound to the cluster."""
    plan = load_flow(target).plan()
    topics = Topics(settings.cluster())
    return prepare(plan, settings, topics), topics
