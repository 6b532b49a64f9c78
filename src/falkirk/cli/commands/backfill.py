"""`falkirk backfill`: Spark computes the states that a new flow begins with, from all that its sources hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Completed, EpochRequest, Epochs, propose
from falkirk.checkpoint.ids import TopicPartition
from falkirk.cli.main import tell as tell_error
from falkirk.cli.options import run_options, settings_from
from falkirk.cli.stopping import stop_on_signals
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.connectors.spark.master import check_master, is_local, is_on_loopback
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.app.backfill_state import read
from falkirk.runtime.epochs.backfill import driving, prepared
from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import hold
from falkirk.runtime.host.logs import about, print_trace, say, setup_logging, stamped
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.protocol import BUG, EpochReport
from falkirk.stream.backfill import History
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.flow.load import load_flow
from falkirk.wording import counted


@click.command()
@run_options
@click.option(
    "--history",
    "histories",
    multiple=True,
    metavar="SOURCE=FORMAT:PATH",
    help="A Spark table (parquet:PATH, table:NAME …) to read in place of the source's records before its start=.",
)
@click.option("--abandon", is_flag=True, help="Abandon an open backfill.")
def backfill(target: str, histories: tuple[str, ...], abandon: bool, **options: Any) -> None:
    """Compute the state and the results of a new flow with Spark, from all records that its sources hold now.

    falkirk run continues from there, as if the flow had streamed from the start. It needs the same checkpoint store
    (--checkpoints, or else the same state directory). If the command is killed, run it again: it finishes what it began.
    Workers refuse to start until it has finished.

    \b
    falkirk backfill app:flow --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk run      app:flow --brokers broker-1:9092 --checkpoints s3://bucket/app

    Records that Kafka no longer holds can come from a Spark table with the columns of the source
    (--history bids=parquet:s3a://lake/bids). Its rows come before all records of the source, in the order of their
    timestamps.

    The exit code is 0 if the backfill is complete (with --abandon: abandoned), 1 if it was stopped before.
    """
    settings = settings_from(workers=1, **options)
    setup_logging(settings.log_level, settings.log_format)
    plan = load_flow(target).plan(settings.prefix)
    given = [History.parse(history) for history in histories]
    backfill_stage(plan, given)
    about(app=plan.app)
    topics = Topics(settings.cluster())
    check_shared(settings)
    with hold(Path(settings.state_dir) / plan.app / "lock", f"app {plan.app!r}"):
        if abandon:
            app = prepare(plan, settings, topics)
            _ask_to_abandon(app, settings)
        else:
            app = prepared(plan, settings, topics)
            if (known := _known(app, settings)).complete is not None:
                click.echo(f"{app.name}: the backfill is complete: {_words(known)}; falkirk run goes on from there")
                return
            check_master(settings.spark)
        code = _drive(app, settings, topics, given, abandon=abandon)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # Spark's threads would block the interpreter's end


def check_shared(settings: Settings) -> None:
    """Workers must find what Spark's executors write. Raises ConfigError if they cannot."""
    if is_local(settings.spark) or is_on_loopback(settings.spark):
        return
    if not settings.checkpoints:
        raise ConfigError(
            "no checkpoint store is given, and Spark's executors cannot write into a folder of this machine",
            where=f"--spark {settings.spark}",
            hint="give --checkpoints URL, one that they and all hosts of the app reach, such as s3://bucket/app",
        )
    if settings.checkpoints.startswith("file:"):
        where = f"--checkpoints {settings.checkpoints}"
        click.secho(f"{where} must be a folder that all of Spark's executors share", fg="yellow", err=True)


def _drive(app: App, settings: Settings, topics: Topics, histories: Sequence[History], *, abandon: bool) -> int:
    """Until it has ended, or is stopped. Returns the exit code."""
    stop = stop_on_signals(lambda: say(f"{app.name}: stops; run it again to finish it"))
    said = ""

    def tell(report: EpochReport) -> None:
        nonlocal said
        line = report.words if report.state == "running" else f"{report.state}, {report.words}"
        if line != said:
            say(stamped(f"backfill {line}"))
        said = line

    compute = SparkCompute(app, settings)
    try:
        driver = driving(app, settings, topics, compute, tell, stop.is_set, histories=histories, abandon=abandon)
    except FalkirkError as error:
        tell_error(error)
        return error.exit_code
    except Exception:  # noqa: BLE001  # whatever it is, the process ends with it
        print_trace()
        return BUG
    finally:
        compute.close()
    if driver.abandoned:
        click.echo(f"{app.name}: the backfill is abandoned; what it has published stays in the sinks")
        return 0 if abandon else 1
    if not driver.done:
        return 1
    click.echo(f"{app.name}: the backfill is complete: {_words(_known(app, settings))}; falkirk run goes on from there")
    return 1 if abandon else 0


def _ask_to_abandon(app: App, settings: Settings) -> None:
    epochs = Epochs() if app.backfill is None else _known(app, settings)
    if app.backfill is None or not epochs.open:
        words = "is complete, and stays" if epochs.complete is not None else "is not open"
        raise ConfigError(f"the backfill of app {app.name!r} {words}", hint="falkirk run runs the app")
    with closing(KafkaEpochLog(settings.cluster())) as log:
        run(propose(log, TopicPartition(app.backfill, 0), epochs, EpochRequest("abandon", WallClock().now())))


def _known(app: App, settings: Settings) -> Epochs:
    assert app.backfill is not None
    return read(app.backfill, settings.cluster())


def _words(epochs: Epochs) -> str:
    assert epochs.complete is not None
    assert isinstance(epochs.ended, Completed)
    records = sum(r.end - r.start for r in epochs.complete.division)
    seconds = (epochs.ended.clock - epochs.complete.clock) / 1000
    return f"{counted(records, 'input record')}, {counted(epochs.ended.rows, 'result')}, in {seconds:.1f} s"
