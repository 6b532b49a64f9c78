"""`falkirk state`: the state of an app's operators."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
import polars as pl
from rich.console import Console

from falkirk.cli.options import state_options, state_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.state import States, TaskState, first_rows, key_of
from falkirk.runtime.observe.console import table as columns_of
from falkirk.state.cells import as_decimal
from falkirk.stream.access.endpoints import plain
from falkirk.stream.access.objects import as_text, in_words
from falkirk.stream.access.stored_state import Table
from falkirk.stream.dataflow.catching import rows_shown
from falkirk.stream.flow.load import load_flow


class StateGroup(click.Group):
    """Says what to write for a flow in the place of a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and ":" in args[0]:
            ctx.fail(
                f"{args[0]!r} is not a command: write falkirk state get {args[0]} OPERATOR KEY, or scan in place of get."
            )
        return super().resolve_command(ctx, args)


@click.group(cls=StateGroup)
def state() -> None:
    """Show the state that operators keep for their keys: for group_by, the parts of its aggregates; for a process, the tables
    that it declares; for a lookup, the rows of its table, whose key is the table's as its topic spells it.

    The state comes from the newest versions in the checkpoint store. For eager stages the changelog is applied, so the state
    is that of the last committed step. The app need not be running.
    """


@state.command()
@click.argument("target", metavar="APP:FLOW")
@click.argument("operator", metavar="OPERATOR[/TABLE]")
@click.argument("key")
@state_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as it does if the output is not a terminal.")
def get(target: str, operator: str, key: str, as_json: bool, **options: Any) -> None:
    """Show what OPERATOR keeps for KEY. If the key has several columns, give a JSON array.

    \b
    falkirk state get app:flow stats 17 --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk state get app:flow routes '["JFK","LAX"]' --brokers broker-1:9092 --state-dir /var/lib/app

    The exit code is 0, or 1 if there is no state for KEY.
    """
    states = _states(target, operator, options)
    wanted = key_of(states.table, key_texts(key, states.table))
    show = Show(states.table, as_json=as_json)
    for task in range(states.tasks):
        with states.open(task) as found:
            if pairs := found.get(wanted):
                show(found, states.table.frame(pairs))
                return
    click.echo(f"nothing is kept for {key}", err=True)
    sys.exit(1)


@state.command()
@click.argument("target", metavar="APP:FLOW")
@click.argument("operator", metavar="OPERATOR[/TABLE]")
@state_options
@click.option("--task", type=click.IntRange(0), help="Only this task of the stage.")
@click.option("--as-of", type=click.IntRange(0), metavar="STEP", help="Only use versions up to this step.")
@click.option(
    "-n", "count", type=click.IntRange(0), default=10, show_default=True, help="How many rows to show; 0: all."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as it does if the output is not a terminal.")
def scan(
    target: str, operator: str, task: int | None, as_of: int | None, count: int, as_json: bool, **options: Any
) -> None:  # fmt: skip
    """Show the rows that OPERATOR keeps, task by task.

    \b
    falkirk state scan app:flow stats --brokers broker-1:9092 --checkpoints s3://bucket/app
    falkirk state scan app:flow stats --task 3 -n 0 --json --brokers broker-1:9092 --state-dir /var/lib/app

    \b
    JSON lines have one object per row.
      key, value     objects, by column; for group_by, an object for each aggregate, with its parts
      task, step     the task that keeps it, and the step of that state; a running eager task may be further
    """
    states = _states(target, operator, options)
    if task is not None and task >= states.tasks:
        raise ConfigError(f"stage {states.table.stage!r} has no task {task}", hint=f"it has 0 to {states.tasks - 1}")
    show = Show(states.table, as_json=as_json)
    left = count
    for number in range(states.tasks) if task is None else [task]:
        with states.open(number, as_of) as found:
            rows = first_rows(found, left if count else 0)
            show(found, rows)
            left -= len(rows)
        if count and left <= 0:
            return


def _states(target: str, operator: str, options: dict[str, Any]) -> States:
    settings = state_settings(**options)
    return States(load_flow(target).plan(settings.prefix), operator, settings, Topics(settings.cluster()))


def key_texts(key: str, table: Table) -> list[str | None]:
    """The columns of a key, as text."""
    if len(table.keys) == 1:
        return [key]
    try:
        given = msgspec.json.decode(key, type=list[Any])
    except msgspec.DecodeError as error:
        names = ", ".join(table.asked)
        example = ",".join(f'"{name}"' for name in table.asked)
        raise ConfigError(
            f"{key!r} is not a valid key of this state, which has the columns {names}",
            hint=f"give a JSON array of them, for example: '[{example}]'",
        ) from error
    texts = [None if v is None else v if isinstance(v, str) else msgspec.json.encode(v).decode() for v in given]
    if len(texts) != len(table.asked):
        return texts  # which is an error
    by_name = dict(zip(table.asked, texts, strict=True))
    return [by_name[name] for name in table.keys]


class Show:
    """Rows of one table of state, on a terminal or as JSON lines."""

    def __init__(self, table: Table, *, as_json: bool) -> None:
        self._table, self._screen = table, Console(highlight=False)
        self._json = as_json or not self._screen.is_terminal

    def __call__(self, state: TaskState, rows: pl.DataFrame) -> None:
        """Rows of one task."""
        rows = rows.select(*self._table.asked, pl.exclude(*self._table.asked)).with_columns(
            as_decimal(rows[column], scale).alias(column) for column, scale in self._table.scales.items()
        )
        if self._json:
            for row in rows_shown(rows):
                click.echo(msgspec.json.encode(self._object(state, row)))
            return
        self._screen.print(f"[bold]{state.task}[/]  [dim]as of step[/] {state.step:,}  [dim]{in_words(state.at)}[/]")
        if rows.height:
            shown = columns_of(*rows.columns)
            for row in rows_shown(rows):
                shown.add_row(*map(as_text, row.values()))
            self._screen.print(shown)

    def _object(self, state: TaskState, row: dict[str, Any]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for name in self._table.shown:
            aggregate, _, part = name.rpartition(".") if self._table.parts else ("", "", "")
            if part:
                value.setdefault(aggregate, {})[part] = plain(row[name])
            else:
                value[name] = plain(row[name])
        key = {name: plain(row[name]) for name in self._table.asked}
        return {"key": key, "value": value, "task": state.task, "step": state.step}
