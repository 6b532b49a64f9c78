"""`falkirk peek`: the records of a topic, in the flow's formats."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.peek import Start, peek, peek_complete
from falkirk.runtime.observe.console import table
from falkirk.stream.access.endpoints import Row, View, views_named, views_of
from falkirk.stream.access.objects import as_object, as_text, in_words
from falkirk.stream.flow.load import load_flow


@click.command(name="peek")
@click.argument("target", metavar="APP:FLOW|TOPIC")
@click.argument("name", required=False)
@cluster_options
@click.option("--from", "start", metavar="earliest|latest|OFFSET", help="Where to start in each partition. latest: with "
              "the last records.  [default: latest]")  # fmt: skip
@click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="How many existing records to "
              "show; 0: all.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Continue with new records, until Ctrl-C.")
@click.option("--complete", is_flag=True, help="For a sink of a batch part: show only records of the newest complete "
              "epoch.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as it does if the output is not a terminal.")
def peek_command(
    target: str, name: str | None, start: str | None, count: int, follow: bool, complete: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Show records of a flow's source, table, sink or edge NAME, decoded with the flow's formats; or raw records of a TOPIC.

    Without NAME it lists the names. It reads committed records, and leaves no trace on the cluster. If several things have
    the same name, it shows the sink; for the others give table:NAME, source:NAME or edge:NAME.

    \b
    falkirk peek app:flow
    falkirk peek app:flow auction-stats --brokers broker-1:9092 --follow
    falkirk peek app:flow baselines --brokers broker-1:9092 --complete -n 0 --json
    falkirk peek bids --brokers broker-1:9092 --from earliest -n 3

    \b
    --json prints one object per record (for an edge: per row). Fields that do not apply are left out.
      partition, offset, timestamp
      key, value                bytes that are not UTF-8 are {"base64": …}; a value of null is a tombstone
      task, step, sequence      the step that wrote it
      epoch                     the epoch of a batch part that wrote it
      weight                    -1: the edge retracts this row
      unreadable                why it could not be decoded; key and value are then shown as text or base64
    """
    screen = Console(highlight=False)
    as_json = as_json or not screen.is_terminal
    is_topic = name is None and not target.endswith(".py") and not {":", "/"} & set(target)
    if complete and (follow or start is not None):
        raise ConfigError("--complete cannot be combined with --follow or --from", hint="leave them out")
    if is_topic:
        view, app = View(target, "topic", target), ""
    else:
        plan = load_flow(target).plan(options["prefix"])
        if name is None:
            _list(views_of(plan), screen, as_json=as_json)
            return
        view, app = chosen(views_of(plan), name), plan.app
    settings = cluster_settings(**options)
    topics = Topics(settings.cluster())
    if complete:
        epoch, rows = peek_complete(view, app, settings, topics)
        if not as_json:
            screen.print(f"[bold]{view.name}[/]  [dim]epoch[/] {epoch}  [dim]rows[/] {len(rows):,}")
        found: Iterable[list[Row]] = [rows[:count] if count else rows]
    else:
        found = peek(view, settings, topics, _start(start), count, follow=follow)
    show = Lines(view) if as_json else Rows(view, screen)
    try:
        for rows in found:
            show(rows)
    except KeyboardInterrupt:  # the end of following
        pass


def chosen(views: Sequence[View], name: str) -> View:
    """The view of this name. Where a name has several, it says which one it is, and how to see the others."""
    view, *others = views_named(views, name)
    if others:
        rest = ", ".join(f"for the {other.kind} give {other.kind}:{other.name}" for other in others)
        which = view.kind if view.name == name else f"{view.kind} {view.name}"
        click.echo(f"{name}: showing the {which}; {rest}", err=True)
    return view


def _start(text: str | None) -> Start:
    if text is None or text == "latest":
        return "latest"
    if text == "earliest" or text.isdigit():
        return "earliest" if text == "earliest" else int(text)
    raise ConfigError(
        f"{text!r} is not a valid position in a topic", where="--from", hint="give earliest, latest or an offset"
    )


def _list(views: Sequence[View], screen: Console, *, as_json: bool) -> None:
    if as_json:
        for v in views:
            click.echo(msgspec.json.encode({"name": v.name, "kind": v.kind, "topic": v.topic, "columns": v.columns}))
        return
    shown = table("", "name", "topic", "columns")
    for v in views:
        shown.add_row(Text(v.kind, "dim"), Text(v.name, "bold"), v.topic, ", ".join(v.columns))
    screen.print(shown)


class Lines:
    """One JSON object per line."""

    def __init__(self, view: View) -> None:
        self._raw = view.kind == "topic"

    def __call__(self, rows: Sequence[Row]) -> None:
        """Show some more."""
        for row in rows:
            click.echo(msgspec.json.encode(as_object(row, raw=self._raw)))
        sys.stdout.flush()


class Rows:
    """A table that grows: one head, and columns as wide as their widest content so far. Where the screen is too narrow for
    it, each record is a block of lines, because a table would lose its last columns."""

    def __init__(self, view: View, screen: Console) -> None:
        self._columns, self._screen, self._topic = view.columns, screen, view.topic
        self._widths: dict[int, int] = {}
        self._blocks = False

    def __call__(self, rows: Sequence[Row]) -> None:
        """Show some more."""
        if not rows:
            return
        first = not self._widths
        names = ["partition", "offset", "timestamp", "key", *self._columns, "made by", ""]
        shown = [names, *(self._cells(row) for row in rows)]
        for i in range(len(names)):
            self._widths[i] = max(self._widths.get(i, 0), *(len(cells[i]) for cells in shown))
        self._blocks = self._blocks or sum(self._widths.values()) + 2 * len(names) > self._screen.width
        if self._blocks:
            for cells in shown[1:]:
                self._screen.print(self._block(names, cells))
            return
        grown = table(*names)
        grown.show_header = first
        for column, width in zip(grown.columns, self._widths.values(), strict=True):
            column.min_width = width
            column.justify = "right" if column.header in ("partition", "offset") else "left"
        for cells in shown[1:]:
            grown.add_row(*map(Text, cells[:-1]), Text(cells[-1], "red"))
        self._screen.print(grown)

    def _block(self, names: Sequence[str], cells: Sequence[str]) -> Text:
        """One record, a line for each of its fields."""
        partition, offset, timestamp, *fields, made, note = cells
        shown = Text.assemble((f"{self._topic}[{partition}] {offset}", "bold"), f"  {timestamp}")
        if made:
            shown.append("  made by ", "dim").append(made)
        if note:
            shown.append(f"\n  {note}", "red")
        named = list(zip(names[3:], fields, strict=False))
        width = max(len(name) for name, _ in named)
        for name, value in named:
            if value:
                shown.append(f"\n  {name:<{width}}  ", "dim").append(value)
        return shown

    def _cells(self, row: Row) -> list[str]:
        made = "" if row.maker is None else f"{row.maker.task} {row.maker.step:,}"
        made = made if row.epoch is None else f"epoch {row.epoch}"
        note = "tombstone" if row.values is None else "taken back" if row.weight < 0 else ""
        note = f"unreadable: {row.unreadable}" if row.unreadable else note
        values = [as_text(row.values[c]) if row.values is not None else "" for c in self._columns]
        return [str(row.partition), str(row.offset), in_words(row.timestamp), as_text(row.key), *values, made, note]
