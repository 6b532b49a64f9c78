"""`falkirk pause`, `resume`, `checkpoint` and `drain`: requests of people to a running app."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click
from rich.console import Console

from falkirk.blame import did_you_mean
from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.cli.setting import DURATION
from falkirk.cli.stopping import interruptible
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.inspect.drained import not_drained
from falkirk.runtime.inspect.status import read_status
from falkirk.runtime.messages import request_progress
from falkirk.runtime.messages.request_progress import AppRequest, follow
from falkirk.runtime.observe.console import paused_words, table
from falkirk.wording import counted, listed


def _timeout(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--timeout", type=DURATION, default=default, show_default=True, help="How long to wait.")


@click.command()
@click.argument("app")
@cluster_options
@_timeout("60s")
def pause(app: str, timeout: timedelta, **options: Any) -> None:
    """Pause APP: its workers run no steps until falkirk resume.

    Steps that have begun are committed. The workers keep their tasks and stay in the group; timers wait, and lag grows. A
    worker that starts while APP is paused is paused, too. You can also pause an app that is not running. Batch parts
    continue.

    \b
    falkirk pause auction-stats --brokers broker-1:9092

    The exit code is 0 if all workers are paused (or there are none), 1 if some have not answered in time. The pause stays in
    force.
    """
    asked, seconds = _app(app, options, begun=False), timeout.total_seconds()
    if (word := asked.paused()) is not None:
        _say(f"{app} is {paused_words(word)[0]}")
    else:
        asked.ask("pause")
    if not asked.workers():
        click.echo(f"{app}: paused; it has no workers now. Workers that start will wait until falkirk resume {app}")
        return
    hint = f"the pause stays in force, and reaches them later; falkirk resume {app} ends it"
    _wait_for_workers(app, asked.pausing, seconds, "be paused", hint)
    click.echo(f"{app}: paused, {counted(len(asked.workers()), 'worker')} waiting; falkirk resume {app} resumes them")


@click.command()
@click.argument("app")
@cluster_options
@click.option("--part", help="A part that has stopped by itself: a stage or a batch part.")
@_timeout("60s")
def resume(app: str, part: str | None, timeout: timedelta, **options: Any) -> None:
    """Resume APP after falkirk pause, or a part of it that has stopped by itself, from where it stopped.

    A part stops by itself if it fails and its flow has on_failure="part". falkirk status shows why. Solve that first: with
    another version of the flow, for example, or with another topic or right on the cluster.

    \b
    falkirk resume auction-stats --brokers broker-1:9092
    falkirk resume auction-stats --part prices --brokers broker-1:9092

    The exit code is 0 if all workers run again (or there are none), 1 if some have not answered in time. If the part stops
    again meanwhile, its error is printed, and the exit code is that of the error.
    """
    asked, seconds = _app(app, options, streams=part is None, begun=False), timeout.total_seconds()
    if part is not None:
        _resume_part(asked, part, seconds)
        return
    if asked.paused() is None:
        click.echo(f"{app}: is not paused")
        for stopped in asked.stopped():
            click.echo(f"{app}: part {stopped} has stopped; falkirk resume {app} --part {stopped} resumes it")
        return
    asked.take_back("pause")
    if not asked.workers():
        click.echo(f"{app}: resumed; it has no workers now")
        return
    hint = f"they resume when the request reaches them; falkirk status {app} shows it"
    _wait_for_workers(app, asked.resuming, seconds, "work again", hint)
    click.echo(f"{app}: resumed, {counted(len(asked.workers()), 'worker')} running")


def _resume_part(asked: AppRequest, part: str, seconds: float) -> None:
    app = asked.app
    if part not in asked.stopped():
        if part not in (parts := asked.parts()):
            raise ConfigError(f"app {app!r} has no part {part!r}", hint=did_you_mean(part, parts))
        click.echo(f"{app}: part {part} has not stopped")
        return
    asked.resume(part)
    if part in asked.layout.batches:
        click.echo(f"{app}: part {part} is resumed, for its driver")
        return
    if not asked.workers():
        click.echo(f"{app}: part {part} is resumed; the app has no workers now")
        return
    hint = f"they resume it when the request reaches them; falkirk status {app} shows it"
    _wait_for_workers(app, lambda: asked.still_stopped(part), seconds, f"run part {part} again", hint)
    click.echo(f"{app}: part {part} is resumed")


@click.command()
@click.argument("app")
@cluster_options
@_timeout("2m")
def checkpoint(app: str, timeout: timedelta, **options: Any) -> None:
    """Save a version of the state of every task of APP now, in the checkpoint store.

    Use it before maintenance, for example: recovery then starts from these versions. It also works while APP is paused; then
    no step follows the versions. Tasks without state have no versions.

    \b
    falkirk checkpoint auction-stats --brokers broker-1:9092

    The exit code is 0 if all versions are in the checkpoint store, 1 if not in time, or if APP has no workers. The request
    then ends, but versions that have begun are finished. Parts that have stopped by themselves make no versions: then the
    exit code is that of their error.
    """
    asked = _app(app, options)
    if not any(stage.stateful for stage in asked.layout.stages):
        click.echo(f"{app}: keeps no state, so it has no versions")
        return
    with interruptible("the request is withdrawn; versions that have begun are finished"):
        made = request_progress.checkpoint(asked, timeout.total_seconds(), _say)
    shown = table("task", "step:9", "version:9", "worker")
    for one in made:
        shown.add_row(one.task, f"{one.step:,}", f"{one.version:,}", one.worker.removeprefix(f"{app}."))
    Console(highlight=False, width=200).print(shown)
    _check_parts(asked, [stage.id for stage in asked.layout.stages if stage.stateful], "has no new version")


@click.command()
@click.argument("app")
@cluster_options
@_timeout("10m")
def drain(app: str, timeout: timedelta, **options: Any) -> None:
    """Process what is in the sources of APP now, then stop its workers.

    Like falkirk run --until end, but for an app that is running. When all of it is committed, every falkirk run and falkirk
    worker stops with exit code 0. Workers that start later run as usual. An open epoch of a batch part stays open, for the
    next driver.

    \b
    falkirk drain auction-stats --brokers broker-1:9092

    The exit code is 0 if all of it is processed and all workers have stopped, 1 if not in time (they continue, and stop when
    they are done) or if they have stopped before, 2 if APP has no workers, or is paused. If a part has stopped by itself, it
    is that of the part's error.
    """
    asked, seconds = _app(app, options), timeout.total_seconds()
    if not (before := asked.workers()):
        raise ConfigError(
            f"app {app!r} has no workers",
            hint="falkirk run app:flow --until end starts some, and stops when all is processed",
        )
    if (who := asked.paused()) is not None:
        raise ConfigError(f"app {app!r} is {paused_words(who)[0]}", hint=f"falkirk resume {app} first")
    earlier = asked.standing().ended
    ends = asked.source_ends()
    asked.ask("drain", ends)
    settings = cluster_settings(**options)
    topics = Topics(settings.cluster())

    def look() -> str:
        left = asked.workers() & before
        if not left:
            return ""
        status = read_status(app, settings, topics)
        paused = "" if status.paused is None else f"; {app} is {paused_words(status.paused)[0]}, so it does not go on"
        return f"{request_progress.waiting_for(left, before, 'workers')}; lag {status.lag:,}{paused}"

    hint = f"its workers continue, and stop when they are done; falkirk status {app} shows how far they are"
    if still := _follow(look, seconds, hint):
        raise FalkirkError(f"app {app!r} is not drained after {seconds:.0f} s", where=still, hint=hint)
    joined = asked.workers()
    _check_parts(asked, [stage.id for stage in asked.layout.stages], "has not processed everything")
    if undone := not_drained(read_status(app, settings, topics), ends, settings.cluster(), topics, alone=not joined):
        if (ended := asked.standing().ended) is not None and ended != earlier:
            raise ended.error
        raise FalkirkError(
            f"the workers of app {app!r} have stopped, but not all is processed",
            where=listed(undone),
            hint="were they stopped or killed? falkirk run app:flow --until end processes the rest",
        )
    words = f"; started since, and running: {', '.join(sorted(joined))}" if joined else ""
    click.echo(f"{app}: drained, {counted(len(before), 'worker')} stopped{words}")


def _check_parts(asked: AppRequest, parts: Sequence[str], so: str) -> None:
    """Raises the error of the first of these parts that has stopped by itself."""
    stopped = asked.stopped()
    for part in (part for part in parts if part in stopped):
        raise stopped[part].error_of(part, so)


def _wait_for_workers(app: str, look: Callable[[], str], seconds: float, what: str, hint: str) -> None:
    """Until all have answered. Raises FalkirkError if some have not in time."""
    if left := _follow(look, seconds, hint):
        raise FalkirkError(
            f"not all workers of app {app!r} are known to {what} after {seconds:.0f} s", where=left, hint=hint
        )


def _follow(look: Callable[[], str], seconds: float, hint: str) -> str:
    """What is still waited for in the end. `hint`: what becomes of the request, whether or not somebody waits for it."""
    with interruptible(f"nobody waits for it now: {hint}"):
        return follow(look, seconds, _say)


def _app(app: str, options: dict[str, Any], *, streams: bool = True, begun: bool = True) -> AppRequest:
    settings = cluster_settings(**options)
    return AppRequest(app, settings, Topics(settings.cluster()), streams=streams, begun=begun)


def _say(words: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {words}", err=True)
