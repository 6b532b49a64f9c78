"""`falkirk delete`: the end of an app."""

from __future__ import annotations

from typing import Any

import click

from falkirk.cli.options import state_options, state_settings
from falkirk.cli.stopping import half_deleted, interruptible
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.layout.deleting import AppResources, app_resources, check_stopped
from falkirk.runtime.layout.deleting import delete as delete_app
from falkirk.runtime.rebuild.shadows import check_taken
from falkirk.stream.definition.names import control_topic
from falkirk.wording import counted


@click.command()
@click.argument("app")
@state_options
@click.option("--sinks", is_flag=True, help="Also delete the topics that the app writes for others: its sinks and dead "
              "letters.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(app: str, sinks: bool, yes: bool, **options: Any) -> None:
    """Delete APP: its topics, its consumer group, its versions in the checkpoint store, and its folder in the state
    directory of this host. APP must not be running.

    The command shows what it will delete, and asks for the app's name. It never deletes sources, nor a sink that the flow
    also reads. If it is killed, run it again: it finishes what it began, and until then the app cannot run. A new app of the
    same name can start at once. It does not use what this one has left in the state directories of other hosts; to remove
    that, run the command there.

    \b
    falkirk delete auction-stats --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk delete auction-stats --brokers broker-1:9092 --state-dir /var/lib/app --sinks --yes

    The exit code is 0 if everything is deleted, 2 if there is no such app, or if it is running.
    """
    settings = state_settings(**options)
    topics = Topics(settings.cluster())
    found = app_resources(app, settings, topics)
    check_stopped(app, topics)
    check_taken(app, settings, topics)
    _show(found, control_topic(settings.prefix, app), sinks=sinks)
    confirm(app, "deleted", yes=yes)

    def still_free() -> None:
        """A run may have begun to take it over since."""
        check_taken(app, settings, topics)

    def tell(what: str) -> None:
        click.echo(f"deleted {what}", err=True)

    with interruptible(half_deleted("delete", app)):
        delete_app(found, settings, topics, tell, published=sinks, check=still_free)
    click.echo(f"{app}: deleted")


def _show(found: AppResources, control: str, *, sinks: bool) -> None:
    click.echo(f"{found.app}: this will be deleted for good:")
    for name in sorted([*found.topics, *([control] if found.groups else []), *(found.published if sinks else ())]):
        click.echo(f"  topic     {name}")
    say_state(found)
    if found.published and not sinks:
        click.echo(f"and this stays, without --sinks: {', '.join(sorted(found.published))}")
    if found.read_back:
        click.echo(f"and this stays in any case, because the flow also reads it: {', '.join(found.read_back)}")


def say_state(found: AppResources) -> None:
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
