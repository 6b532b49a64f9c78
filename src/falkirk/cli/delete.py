"""`falkirk delete`: the end of an app."""

from __future__ import annotations

from typing import Any

import click

from falkirk.cli.options import state_options, state_settings
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.layout.deleting import Belongings, belongings, check_stopped
from falkirk.runtime.layout.deleting import delete as delete_app
from falkirk.runtime.rebuild.shadows import check_taken
from falkirk.stream.definition.names import control_topic
from falkirk.wording import counted


@click.command()
@click.argument("app")
@state_options
@click.option("--sinks", is_flag=True, help="Delete the topics that the app has published to, too: its sinks and its dead "
              "letters.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(app: str, sinks: bool, yes: bool, **options: Any) -> None:
    """Delete APP, which must not be running: its topics, its consumer group, its copied versions, and its folder in the
    state directory of this host.

    It shows what it would delete, and asks for the app's name. Sources are never touched, nor is a sink that the flow reads,
    too. Killed at any moment, it is run again and finishes what it began; until then nobody can run the app. A new app of the
    same name can start at once: it does not use what this one has left in the state directories of other hosts. Run the
    command there to remove that.

    \b
    falkirk delete auction-stats --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk delete auction-stats --brokers broker-1:9092 --state-dir /var/lib/app --sinks --yes

    The exit code is 0 when all is deleted; 2: there is no such app, or it is running.
    """
    settings = state_settings(**options)
    topics = Topics(settings.cluster())
    found = belongings(app, settings, topics)
    check_stopped(app, topics)
    check_taken(app, settings, topics)
    _show(found, control_topic(settings.prefix, app), sinks=sinks)
    confirm(app, "deleted", yes=yes)
    delete_app(found, settings, topics, lambda what: click.echo(f"deleted {what}", err=True), published=sinks)
    click.echo(f"{app}: deleted")


def _show(found: Belongings, control: str, *, sinks: bool) -> None:
    click.echo(f"{found.app}: this is deleted, for good:")
    for name in sorted([*found.topics, *([control] if found.groups else []), *(found.published if sinks else ())]):
        click.echo(f"  topic     {name}")
    say_state(found)
    if found.published and not sinks:
        click.echo(f"and this stays (but with --sinks): {', '.join(sorted(found.published))}")
    if found.read_back:
        click.echo(f"and this stays in any case, for the flow reads what it writes there: {', '.join(found.read_back)}")


def say_state(found: Belongings) -> None:
    """What exists of an app, apart from its topics."""
    for group in found.groups:
        click.echo(f"  group     {group}")
    if found.versions is not None:
        objects, size = found.versions.count()
        words = (
            f"{counted(objects, 'object')}, {size / (1 << 20):,.1f} MiB, under"
            if objects
            else "none (are they elsewhere? give the run's --checkpoints) under"
        )
        click.echo(f"  versions  {words} {found.versions.where}")
    if found.folder is not None:
        click.echo(f"  folder    {found.folder}")


def confirm(app: str, done: str, *, yes: bool) -> None:
    """Ask for the app's name. Raises ConfigError if the answer is another, or none."""
    if yes:
        return
    try:
        given = click.prompt(f"To go on, type the app's name ({app})", default="", show_default=False, err=True)
    except click.Abort:
        given = ""
    if given.strip() != app:
        raise ConfigError(
            f"app {app!r} is not {done}: its name was not given", hint="type it when asked, or give --yes"
        )
