"""`falkirk pause`, `resume`, `checkpoint` and `drain`: requests of people to a running app."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.topics import Topics
from falkirk.durations import parse_duration
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.inspect.status import read_status
from falkirk.runtime.messages import request_progress
from falkirk.runtime.messages.request_progress import AppRequest, follow
from falkirk.runtime.observe.console import paused_words, table
from falkirk.wording import counted


def _timeout(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--timeout", metavar="DURATION", default=default, show_default=True, help="How long to wait.")


@click.command()
@click.argument("app")
@cluster_options
@_timeout("60s")
def pause(app: str, timeout: str, **options: Any) -> None:
    """Pause APP: its workers open no more steps, and wait until falkirk resume.

    What is under way is committed. The workers keep their tasks and their places in the group, timers wait, and lag grows. A
    worker that starts while APP is paused is paused too, and so is all of an app that is not running. Batch parts go on.

    \b
    falkirk pause auction-stats --brokers broker-1:9092

    The exit code is 0 when all workers are paused (or there are none); 1: some have not said so in time. The pause stands.
    """
    asked, seconds = _app(app, options), _seconds(timeout)
    if (word := asked.paused()) is not None:
        _say(f"{app} is {paused_words(word)[0]}")
    else:
        word = asked.ask("pause")
    if not asked.workers():
        click.echo(f"{app}: paused; it has no workers now, and those that start will wait until falkirk resume {app}")
        return
    if left := follow(lambda: asked.still(word), seconds, _say):
        raise FalkirkError(
            f"not all workers of app {app!r} are known to be paused after {seconds:.0f} s",
            where=left,
            hint=f"the pause stands, and they follow it when they hear of it; falkirk resume {app} takes it back",
        )
    click.echo(
        f"{app}: paused, {counted(len(asked.workers()), 'worker')} waiting; falkirk resume {app} lets them go on"
    )


@click.command()
@click.argument("app")
@cluster_options
@_timeout("60s")
def resume(app: str, timeout: str, **options: Any) -> None:
    """Let APP go on after falkirk pause, from where it stopped.

    \b
    falkirk resume auction-stats --brokers broker-1:9092

    The exit code is 0 when all workers work again (or there are none); 1: some have not said so in time.
    """
    asked, seconds = _app(app, options), _seconds(timeout)
    if asked.paused() is None:
        click.echo(f"{app}: is not paused")
        return
    asked.take_back("pause")
    if not asked.workers():
        click.echo(f"{app}: resumed; it has no workers now")
        return
    if left := follow(lambda: asked.still(None), seconds, _say):
        raise FalkirkError(
            f"not all workers of app {app!r} are known to work again after {seconds:.0f} s",
            where=left,
            hint=f"they go on when they hear of it; falkirk status {app} tells",
        )
    click.echo(f"{app}: resumed, {counted(len(asked.workers()), 'worker')} running")


@click.command()
@click.argument("app")
@cluster_options
@_timeout("2m")
def checkpoint(app: str, timeout: str, **options: Any) -> None:
    """Have every task of APP make a version of its state now, copied to the checkpoint store.

    Before maintenance, say: what follows a crash after it begins there. It works while APP is paused, too: then nothing
    follows the versions. Tasks without state have none.

    \b
    falkirk checkpoint auction-stats --brokers broker-1:9092

    The exit code is 0 when all versions are in the checkpoint store; 1: not in time, or nobody runs APP. It is asked no more
    then, but versions that were begun are finished.
    """
    asked = _app(app, options)
    if not any(stage.stateful for stage in asked.layout.stages):
        click.echo(f"{app}: keeps no state, so there is nothing to make versions of")
        return
    made = request_progress.checkpoint(asked, _seconds(timeout), _say)
    shown = table("task", "step:9", "version:9", "worker")
    for one in made:
        shown.add_row(one.task, f"{one.step:,}", f"{one.version:,}", one.worker.removeprefix(f"{app}."))
    Console(highlight=False, width=200).print(shown)


@click.command()
@click.argument("app")
@cluster_options
@_timeout("10m")
def drain(app: str, timeout: str, **options: Any) -> None:
    """Let the workers of APP process what is in its sources now, and leave.

    Like falkirk run --until end, for an app that is running: when all of that is committed, every falkirk run and falkirk
    worker leaves cleanly, with exit code 0. What is started later runs as usual. An epoch of a batch part that is open
    stays so, for the next driver.

    \b
    falkirk drain auction-stats --brokers broker-1:9092

    The exit code is 0 when all have left; 1: not in time (they go on, and leave when they are done); 2: nobody runs APP, or
    it is paused.
    """
    asked, seconds = _app(app, options), _seconds(timeout)
    if not (before := asked.workers()):
        raise ConfigError(
            f"app {app!r} has no workers that could drain it", hint="falkirk run app:flow --until end does"
        )
    if (who := asked.paused()) is not None:
        raise ConfigError(f"app {app!r} is {paused_words(who)[0]}", hint=f"falkirk resume {app} first")
    ends = asked.source_ends()
    asked.ask("drain", ends)
    settings = cluster_settings(**options)
    topics = Topics(settings.cluster())

    def look() -> str:
        left = asked.workers() & before
        if not left:
            return ""
        lag = read_status(app, settings, topics).lag
        return f"{request_progress.waiting_for(left, before, 'workers')}; lag {lag:,}"

    if still := follow(look, seconds, _say):
        raise FalkirkError(
            f"app {app!r} is not drained after {seconds:.0f} s",
            where=still,
            hint=f"its workers go on, and leave when they are done; falkirk status {app} tells how far they are",
        )
    joined = asked.workers()
    words = f"; started since, and at work: {', '.join(sorted(joined))}" if joined else ""
    click.echo(f"{app}: drained, {counted(len(before), 'worker')} stopped{words}")


def _app(app: str, options: dict[str, Any]) -> AppRequest:
    settings = cluster_settings(**options)
    return AppRequest(app, settings, Topics(settings.cluster()))


def _seconds(timeout: str) -> float:
    return parse_duration(timeout, where="--timeout").total_seconds()


def _say(words: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {words}", err=True)
