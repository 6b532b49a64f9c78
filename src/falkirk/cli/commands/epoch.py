"""`falkirk epoch` and `falkirk driver`: the batch parts of an app."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from falkirk.cli.options import cluster_options, cluster_settings, run_options, settings_from
from falkirk.cli.stopping import interruptible
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import UnreachableError
from falkirk.runtime.messages.deleted import offsets
from falkirk.runtime.messages.epochs import BatchPart, EpochStatus, batch_part, driven, reason
from falkirk.runtime.messages.parts import StoppedPart
from falkirk.runtime.messages.requests import CurrentRequests, RequestListener, current_requests
from falkirk.stream.definition.names import control_topic
from falkirk.wording import counted

LOOK = 0.5
"""Seconds between two looks."""
DRIVEN = 5.0
"""Seconds between two looks whether there is a driver."""


@click.command()
@click.argument("app")
@click.argument("stage")
@cluster_options
@click.option("--abandon", is_flag=True, help="End the open epoch before it is complete.")
@click.option("--detach", is_flag=True, help="Do not wait for the epoch.")
@click.option("--skip-deleted", is_flag=True, help="Start no epoch, but let the next one begin behind records that were "
              "deleted before an epoch read them.")  # fmt: skip
def epoch(app: str, stage: str, abandon: bool, detach: bool, skip_deleted: bool, **options: Any) -> None:
    """Start an epoch of STAGE, a batch part of APP, and follow it until it is complete.

    The epoch reads what is in its sources when it is opened. If another epoch is open, the new one starts after it. Ctrl-C
    stops following, but not the epoch. The app must be running somewhere: its driver does the work.

    \b
    falkirk epoch shop baselines --brokers broker-1:9092
    falkirk epoch shop baselines --brokers broker-1:9092 --abandon

    An abandoned epoch publishes nothing more. What it has published stays until the next epoch replaces it.
    --skip-deleted is for a batch part with history="new" that has stopped because retention, or a person, has deleted
    records that no epoch had read. They are lost; the command says which they are, and puts it on record.
    The exit code is 0 if the epoch is complete (with --abandon: abandoned; with --skip-deleted: if no records are in the way
    now), 1 if it ended in another way. If the part has stopped by itself, or a run of APP ends with an error meanwhile, it
    is that of the error; the request stands.
    """
    if skip_deleted and (abandon or detach):
        raise click.UsageError("--skip-deleted is given alone: it starts no epoch, and ends none")
    settings = cluster_settings(**options)
    topics = Topics(settings.cluster())
    topics.check_reachable(timeout=5.0)
    with batch_part(app, stage, settings, topics) as part:
        if skip_deleted:
            _skip(app, stage, part, topics)
            return
        control = control_topic(settings.prefix, app)
        driving = Driving(app, topics, current_requests(settings.cluster(), control).ended)
        before = part.ask("abandon" if abandon else "open")
        driving.check(None)
        if detach:
            return
        wanted = before.epoch if abandon and before.epoch is not None else _following(before)
        with closing(RequestListener(settings.cluster(), control)) as requests:

            def check() -> None:
                heard = requests.heard()
                _check_runs(app, stage, heard)
                driving.check(heard)

            with interruptible(f"it is not followed any longer, and goes on: falkirk status {app} shows it"):
                found = _follow(part, wanted, before, check)
    done = "abandoned" if abandon else "complete"
    what = f"{app}: epoch {found.epoch} of {stage} is {found.state}"
    click.echo(
        f"{what}, {counted(found.rows, 'record')} of {counted(found.records, 'input record')}"
        + (f": {why}" if abandon and (why := reason(part.epochs)) else "")
    )
    sys.exit(0 if found.state == done else 1)


def _skip(app: str, stage: str, part: BatchPart, topics: Topics) -> None:
    number, gone = part.skip_deleted(topics)
    if number is None:
        click.echo(f"{app}: nothing is deleted that epochs of {stage} have not read")
        return
    for one in gone:
        click.echo(f"{one} are left out")
    click.echo(
        f"{app}: {offsets(gone)} left out, as epoch {number} of {stage}; the next epoch continues from there. "
        f"If the part has stopped: falkirk resume {app} --part {stage}, or falkirk run"
    )


def _following(before: EpochStatus) -> int:
    """The number that the epoch will have."""
    return 0 if before.epoch is None else before.epoch + 1


def _check_runs(app: str, stage: str, heard: CurrentRequests | None) -> None:
    """Raises the error of a part that has stopped by itself: nobody drives it."""
    if heard is None or (stopped := heard.stopped().get(stage)) is None:
        return
    error = stopped.error_of(stage, "its epoch waits")
    error.hint = "; ".join(filter(None, (error.hint, f"and then: falkirk resume {app} --part {stage}")))
    raise error


class Driving:
    """Whether anybody drives the app's epochs."""

    def __init__(self, app: str, topics: Topics, ended: StoppedPart | None) -> None:
        """`ended`: the error that a run had ended with before."""
        self._app, self._topics, self._ended = app, topics, ended
        self._driven, self._look_at = True, 0.0

    def check(self, heard: CurrentRequests | None) -> None:
        """Say once that nobody does. Raises the error that a run has ended with since: the next one would meet it, too."""
        if time.monotonic() < self._look_at:
            return
        with suppress(UnreachableError):  # its brokers may come back
            before, self._driven = self._driven, driven(self._app, self._topics)
            if before and not self._driven:
                words = f"no driver of {self._app} is running: the epoch waits until the app runs again (falkirk run)"
                click.secho(words, fg="yellow", err=True)
            self._look_at = time.monotonic() + DRIVEN
        if not self._driven and heard is not None and heard.ended not in (None, self._ended):
            error = heard.ended.error
            error.what = f"a run of app {self._app!r} has ended, and the epoch waits: {error.what}"
            raise error


def _follow(part: BatchPart, epoch: int, before: EpochStatus, check: Callable[[], None]) -> EpochStatus:
    """Until that epoch has ended. Raises what `check` does."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} partitions"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("waiting for the driver", total=None)
        now = before
        while True:
            now = part.look_at(epoch, now)
            if now.epoch is not None and now.epoch >= epoch:
                if now.state != "open":
                    return now
                bar.update(shown, description=f"epoch {now.epoch}", completed=now.published, total=now.partitions)
            check()
            time.sleep(LOOK)


@click.command()
@run_options
def driver(target: str, **options: Any) -> None:
    """Run only the driver of an app's batch parts, without workers, for example in a pod that is restarted when it ends.

    Of all running drivers, one is elected; falkirk run has a driver, too. SIGTERM stops this driver; the next driver
    continues an open epoch.

    \b
    falkirk driver app:flow --brokers broker-1:9092 --spark spark://master:7077
    """
    from falkirk.cli.running import drive_alone

    drive_alone(target, settings_from(workers=1, **options))
