"""`falkirk reset`: an app begins again, at chosen offsets."""

from __future__ import annotations

from typing import Any

import click

from falkirk.cli.commands.delete import confirm, say_state
from falkirk.cli.options import state_options, state_settings
from falkirk.cli.stopping import half_deleted, interruptible
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.layout.deleting import app_resources, check_stopped
from falkirk.runtime.layout.resetting import own_topics, parse_to, starts_at
from falkirk.runtime.layout.resetting import reset as reset_app
from falkirk.runtime.messages.parts import resume_part
from falkirk.runtime.messages.requests import current_requests
from falkirk.runtime.observe.console import paused_words
from falkirk.stream.definition.names import control_topic


@click.command()
@click.argument("app")
@state_options
@click.option("--to", "to", multiple=True, metavar="earliest|latest|TIME|TOPIC:PARTITION=OFFSET,…", help="Where the "
              "sources start. Can be repeated: for all sources, and for single partitions.  "
              "[default: earliest]")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(app: str, to: tuple[str, ...], yes: bool, **options: Any) -> None:
    """Clear the state of APP, and choose where its sources start. APP must not be running.

    It deletes the app's step records, edges, changelogs, versions, and the state on this host. Sinks keep what they hold; new
    results are appended. The start of the sources is fixed now: "latest" is the present end, a time means the first record
    at or after it. The state is always cleared, because otherwise records that are read again would count twice. Batch parts
    and their epochs do not change.

    The command shows what it will do, and asks for the app's name. If it is killed, run it again: until it has finished, APP
    cannot run.

    \b
    falkirk reset auction-stats --brokers broker-1:9092 --to earliest --checkpoints s3://bucket/app
    falkirk reset auction-stats --brokers broker-1:9092 --to 2026-11-21T10:00:00Z --yes
    falkirk reset auction-stats --brokers broker-1:9092 --to latest --to bids:0=1200,1=1187

    The exit code is 0 if APP is reset, 2 if there is no such app, if it is running, or if it has only batch parts.
    """
    settings = state_settings(**options)
    topics = Topics(settings.cluster())
    wanted = [parse_to(text) for text in to]
    found = app_resources(app, settings, topics)
    if found.known.last is None or not found.known.last.stages:
        raise ConfigError(f"app {app!r} has no streams to reset", hint="it has not run yet, or it has only batch parts")
    check_stopped(app, topics)
    starts = starts_at(found.known.last, wanted, topics)
    click.echo(f"{app}: starts from scratch, with empty state, at")
    for topic, start in starts.items():
        for partition, offset in enumerate(start.offsets):
            click.echo(f"  {f'{topic}[{partition}]':<40} {offset:>12,}")
    click.echo("and this will be deleted:")
    for name in sorted(own_topics(found, settings)):
        click.echo(f"  topic     {name}")
    say_state(found)
    if found.published:
        click.echo(f"and this keeps what it holds: {', '.join(sorted(found.published))}")
    confirm(app, "reset", yes=yes)
    with interruptible(half_deleted("reset", app)):
        reset_app(found, settings, topics, starts, lambda what: click.echo(f"deleted {what}", err=True))
    cluster, control = settings.cluster(), control_topic(settings.prefix, app)
    standing = current_requests(cluster, control)
    for part in standing.stopped().keys() - set(found.known.last.batches):
        resume_part(cluster, control, part)  # it starts from scratch, and not at what it failed at
        click.echo(f"part {part}, which had stopped, is resumed", err=True)
    click.echo(f"{app}: reset; falkirk run starts it from scratch")
    if standing.pause is not None:
        click.echo(f"{app} is {paused_words(standing.pause)[0]}: what starts waits until falkirk resume {app}")
