"""`falkirk run`, `falkirk dev` and `falkirk worker`: an app's processes.

A restarted run is as quick as its imports: so this file has few, and lets the workers start before it imports more.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from falkirk.cli.gateway_options import NOWHERE, gateway_from
from falkirk.cli.legend import LIVE
from falkirk.cli.options import (
    dev_options,
    http_option,
    listen_options,
    of_own_kafka,
    place_option,
    query_options,
    rebuild_options,
    run_options,
    settings_from,
    slot_option,
    traces_option,
    until_option,
    workers_option,
)
from falkirk.cli.stopping import stop_on_signals
from falkirk.errors import ConfigError
from falkirk.runtime.host.identity import hold_app
from falkirk.runtime.host.logs import say
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.processes.supervisor import Supervisor

SHORT = 5.0
"""Seconds of work until a run that ends by itself has a spare: in a shorter run the spare would only take processor time."""


@click.command(epilog=LIVE)
@run_options
@workers_option
@until_option
@place_option
@http_option
@query_options
@listen_options
@traces_option
def run(target: str, workers: int, until: str | None, place: str | None, **options: Any) -> None:
    """Run a flow on a Kafka cluster, with worker processes on this host, or on Spark's executors.

    Run it on as many hosts as you like. The tasks spread over all of them, and move when hosts join, leave or die. A worker
    that dies is replaced at once. Ctrl-C or SIGTERM stops cleanly: no step has to run again.

    \b
    falkirk run app:flow --brokers broker-1:9092 --workers 4 --state-dir /var/lib/app
    falkirk run app:flow --brokers broker-1:9092 --until end
    falkirk run app:flow --brokers broker-1:9092 --on spark --spark spark://master:7077 --workers 8 \\
        --checkpoints s3://bucket/app
    """
    how = gateway_from(options)
    given = click.get_current_context().get_parameter_source("state_dir") is not ParameterSource.DEFAULT
    there = str(options["state_dir"].absolute()) if given else ""
    settings = settings_from(workers=workers, executors_state_dir=there, **options)
    if place == "spark" and settings.query:
        raise ConfigError(
            "workers on Spark answer no questions about state",
            where="--query",
            hint="leave it out, or run without --on",
        )
    _run(target, settings, until, on_spark=place == "spark", how=how)


@click.command(epilog=LIVE)
@dev_options
@workers_option
@until_option
@http_option
@query_options
@listen_options
@traces_option
def dev(target: str, workers: int, until: str | None, **options: Any) -> None:
    """Run a flow on this machine, with an embedded Kafka that starts and stops with it.

    Missing source topics are created. If the flow reads from other clusters, the embedded Kafka stands in for each one that
    has no --cluster option.

    \b
    falkirk dev app:flow
    """
    from falkirk.connectors.embedded import EmbeddedKafka
    from falkirk.connectors.kafka.admin.topics import Topics
    from falkirk.runtime.app.sources import create_missing_sources, with_stand_ins
    from falkirk.stream.flow.load import load_flow

    if click.get_current_context().get_parameter_source("brokers") is ParameterSource.COMMANDLINE:
        raise ConfigError("falkirk dev starts a Kafka of its own", hint="to use another: falkirk run --brokers …")
    how = gateway_from(options)
    plan = load_flow(target).plan(options["prefix"])
    kafka = EmbeddedKafka(options["state_dir"] / "kafka")
    with kafka:
        given = settings_from(workers=workers, **of_own_kafka(options, kafka.bootstrap))
        settings = with_stand_ins(plan, given)
        for topic in create_missing_sources(plan, Topics(settings.cluster())):
            say(f"created topic {topic}, which the flow reads")
        say(f"Kafka at {kafka.bootstrap} (--brokers of falkirk send and peek)")
        _run(target, settings, until, how=how)


@click.command()
@rebuild_options
def rebuild(target: str, ids: tuple[str, ...], **options: Any) -> None:
    """Rebuild the state of changed operators from the records that their inputs still have, while the old version runs.

    Separate processes run the changed operators ID… on everything that the app has read. They publish nothing. The command
    ends when they have reached the app's position. If it is stopped, start it again: it continues. Then stop the app, and
    start the new version with --rebuild: it takes the rebuilt state over, processes the few records that are left, and
    publishes the results that differ.

    \b
    falkirk rebuild app:flow totals --brokers broker-1:9092 --workers 4
    falkirk run app:flow --rebuild totals --brokers broker-1:9092 --workers 4
    """
    _run(target, settings_from(rebuild=ids, beside=True, **options), "end")


@click.command()
@run_options
@slot_option
@http_option
@query_options
@traces_option
def worker(target: str, slot: int, **options: Any) -> None:
    """Run a single worker without a supervisor, for example in a pod that is restarted when it ends.

    Give it a state directory that outlives the pod. It holds the worker's identity and state, so that a restarted worker
    gets its tasks back at once. SIGTERM stops cleanly. Errors go to standard error; the exit code tells their kind.

    \b
    falkirk worker app:flow --brokers broker-1:9092 --state-dir /var/lib/app
    """
    from falkirk.cli.running import work_alone

    work_alone(target, settings_from(workers=1, **options), slot)


def _run(
    target: str, settings: Settings, until: str | None, *, on_spark: bool = False, how: Mapping[str, Any] = NOWHERE
) -> None:
    gateway = None
    if how["listen"]:
        from falkirk.runtime.gateway.options import GatewayOptions, check_options

        gateway = GatewayOptions(**how)
        check_options(gateway)
    live = sys.stderr.isatty() and settings.log_format == "text" and os.environ.get("TERM") not in ("dumb", "unknown")
    with ExitStack() as stack:
        supervisor = None
        if not on_spark:
            spare_after = 0.0 if until is None else SHORT
            supervisor = stack.enter_context(Supervisor(target, settings, listen=live, spare_after=spare_after))
        begun = None
        if (os.cpu_count() or 1) > settings.workers + 1:  # then nobody waits
            importlib.import_module("falkirk.cli.running")
        # A shadow reads as far as the app is when its workers begin: as far as the supervisor saw it before.
        if supervisor is not None and not settings.beside and (app := supervisor.ready()):
            stack.enter_context(hold_app(Path(settings.state_dir) / app, app))
            begun = stop_on_signals()
            supervisor.begin(begun.is_set)
        from falkirk.cli.running import supervise

        supervise(supervisor, target, settings, begun, live=live, until_end=until == "end", gateway=gateway)
