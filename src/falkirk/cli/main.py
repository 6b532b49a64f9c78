"""The command line's root: it knows the commands by name, and imports one only when it is run.

`falkirk --help` therefore imports none of Polars, Arrow or Kafka's client, and answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from dataclasses import dataclass

import click

from falkirk.cli.stopping import came_of_stop
from falkirk.cli.words import WORDS
from falkirk.errors import FalkirkError
from falkirk.runtime.host import logs


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is found, and its line in `falkirk --help`."""

    module: str
    """In `falkirk.cli.commands`."""
    attribute: str
    help: str


SECTIONS: dict[str, dict[str, LazyCommand]] = {
    "Before a run": {
        "explain": LazyCommand("explain", "explain", "Show the stages, topics and tasks of a flow. Needs no cluster."),
        "plan": LazyCommand("plan", "plan", "Compare a changed flow with its app, or plan a recovery."),
        "check": LazyCommand("check", "check_command", "Run preflight checks."),
        "topics": LazyCommand("topics", "topics", "Print or create the topics and permissions that a flow needs."),
        "send": LazyCommand("send", "send_command", "Write rows to a topic that a flow reads."),
        "kafka": LazyCommand("kafka", "kafka", "Start, stop or inspect the embedded Kafka."),
        "spark": LazyCommand("spark", "spark", "Prepare Spark on this machine, so that it starts sooner."),
    },
    "Run a flow": {
        "dev": LazyCommand("run", "dev", "Run a flow on this machine, with an embedded Kafka."),
        "run": LazyCommand("run", "run", "Run a flow on a Kafka cluster."),
        "sql": LazyCommand("sql", "sql", "Run a file of SQL on a Kafka cluster, or a prompt with --dev."),
        "worker": LazyCommand("run", "worker", "Run a single worker (for example in a pod)."),
        "serve": LazyCommand("serve", "serve", "Run a gateway, which answers HTTP requests."),
        "rebuild": LazyCommand("run", "rebuild", "Rebuild state of changed operators while the old version runs."),
        "driver": LazyCommand("epoch", "driver", "Run only the driver of batch parts (for example in a pod)."),
        "backfill": LazyCommand("backfill", "backfill", "Compute the initial state of a new flow with Spark."),
    },
    "Inspect an app": {
        "status": LazyCommand("status", "status", "Show an app's status."),
        "peek": LazyCommand("peek", "peek_command", "Show decoded records of a flow's topics."),
        "state": LazyCommand("state", "state", "Show the state that operators keep for their keys."),
        "why": LazyCommand("why", "why_command", "Show which input records an output record comes from."),
        "dlq": LazyCommand("dlq", "dlq", "List, show or replay dead letters (records that failed)."),
    },
    "Control an app": {
        "epoch": LazyCommand("epoch", "epoch", "Start an epoch of a batch part, and follow it."),
        "checkpoint": LazyCommand("requests", "checkpoint", "Save a version of every task's state now."),
        "pause": LazyCommand("requests", "pause", "Pause an app."),
        "resume": LazyCommand("requests", "resume", "Resume a paused app."),
        "drain": LazyCommand("requests", "drain", "Process what is in the sources now, then stop the app."),
        "rescale": LazyCommand("rescale", "rescale", "Divide an app's state among another number of tasks."),
        "reset": LazyCommand("reset", "reset", "Clear an app's state, and choose where its sources start."),
        "delete": LazyCommand("delete", "delete", "Delete an app: its topics, its consumer group, its state."),
    },
}
"""As `falkirk --help` shows them."""

COMMANDS = {name: lazy for section in SECTIONS.values() for name, lazy in section.items()}


class LazyGroup(click.Group):
    """A group whose commands are listed in COMMANDS and imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (lazy := COMMANDS.get(cmd_name)) is None:
            return None
        command = getattr(importlib.import_module(f"falkirk.cli.commands.{lazy.module}"), lazy.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests commands of a similar name. Click would look for them among commands that are imported."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            close = "".join(difflib.get_close_matches(name, COMMANDS, n=1))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The words that the lines above use."""
        width = max(map(len, COMMANDS))
        with formatter.section("Words"):
            formatter.write_dl([(word.ljust(width), meaning) for word, meaning in WORDS.items()])
            formatter.write_text("falkirk explain --help shows a picture of all of them.")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), lazy.help) for name, lazy in commands.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="falkirk", message="falkirk %(version)s")
def falkirk() -> None:
    """Exactly-once stream processing on Kafka.

    To begin: falkirk dev app:flow runs a flow on this machine. `app:flow` is a module or a file (folder/app.py:flow), and the
    name of the flow in it.
    """


def main() -> None:
    """Run the command line; a FalkirkError becomes its text on standard error and its exit code."""
    try:
        falkirk()
    except FalkirkError as error:
        if came_of_stop(error):
            raise
        tell(error)
        sys.exit(error.exit_code)


def tell(error: FalkirkError) -> None:
    """Print the error, without a trace."""
    if logs.as_json():
        click.echo(logs.error_line(error), err=True)
        return
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(str(error), err=True)
