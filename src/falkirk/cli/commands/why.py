"""`falkirk why`: the input behind a record."""

from __future__ import annotations

from typing import Any, TypeAlias

import click
import msgspec
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from falkirk.checkpoint.ids import TopicPartition
from falkirk.cli.commands.peek import Rows
from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.lineage import Answer, LineageReader
from falkirk.runtime.inspect.lineage_step import LineageNode, Read, sources_of, trimmed
from falkirk.stream.access.endpoints import Row, View, plain, view_of, views_of
from falkirk.stream.access.objects import as_object, in_words
from falkirk.stream.dataflow.provenance import Provenance
from falkirk.stream.flow.load import load_flow
from falkirk.wording import counted

KEEP = "run the app with --keep-steps 1h: then steps stay on record for an hour (falkirk dev keeps them for 10 minutes)"
"""What to do if steps are gone: it helps with what is written from then on."""

Step: TypeAlias = tuple[str | None, int | None, str | None, int | None]
"""What a step, or an epoch, is known by: task, step, batch part, epoch."""


@click.command(name="why")
@click.argument("place", metavar="TOPIC:PARTITION:OFFSET")
@cluster_options
@click.option(
    "--app", help="The app that wrote the record, if several apps write to the topic.  [default: found by the header]"
)
@click.option("--records", is_flag=True, help="Also show the source records in these ranges that have the record's "
              "key.")  # fmt: skip
@click.option("--all-keys", is_flag=True, help="With --records: show records with any key.")
@click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="With --records: at most so many of "
              "each range; 0: all.")  # fmt: skip
@click.option("--flow", "target", metavar="APP:FLOW", help="Decode records with the formats of this flow.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def why_command(
    place: str, app: str | None, records: bool, all_keys: bool, count: int, target: str | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Show which input records an output record comes from: the step that wrote it, and the offset ranges that it read.

    If the step read an edge, the steps before it follow, back to the sources. For a grouped result, the ranges are those of
    its last change.

    OFFSET can be latest: the last record of the partition.

    Step records and edges are deleted about 20 seconds after they were written. Run the app with --keep-steps 1h to look
    back an hour; falkirk dev keeps them for 10 minutes. If they are deleted, the answer is only the task and the step.

    \b
    falkirk why auction-stats:0:1234 --brokers broker-1:9092
    falkirk why auction-stats:0:latest --brokers broker-1:9092
    falkirk why auction-stats:0:1234 --records --flow app:flow --brokers broker-1:9092

    \b
    --json prints an object with
      app, topic, partition, offset, key, timestamp
      task, step, sequence      or epoch; if several tasks share a record of an edge: parts[], with these and made for each
      made                      clock, owner, rows, dead, and reads[]: topic, partition, start, end (exclusive), kind
                                ("source", "edge"); for an edge by[]: the steps that wrote it, like made;
                                known, upto: if the step record is deleted, the first and last step that remain, and what
                                the task had read by the first of them
      sources[]                 the ranges of all sources: topic, partition, start, end
      hint                      if step records are deleted: what to do
      records[]                 with --records: topic, and the fields of falkirk peek --json
    """
    settings = cluster_settings(**options)
    at, offset = _place(place)
    views = [] if target is None else views_of(load_flow(target).plan(settings.prefix))
    with LineageReader(settings, Topics(settings.cluster())) as lineage:
        answer = lineage.ask(at, offset, app)
        sources = sources_of(LineageNode(reads=[r for made in answer.made for r in made.reads]))
        found: list[tuple[View, list[Row]]] = []
        for r in sources if records else ():
            view = view_of(views, r.topic) or View(r.topic, "topic", r.topic)
            messages = lineage.messages(TopicPartition(r.topic, r.partition), r.start, r.end)
            if not all_keys and answer.record.key() is not None:
                messages = [m for m in messages if m.key() == answer.record.key()]
            messages = messages[-count:] if count else messages
            found.append((view, view.rows(messages)))  # type: ignore[arg-type]  # the client's types allow for no record
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_object(answer, sources, found, records)), indent=2))
        return
    screen = Console(highlight=False)
    screen = screen if screen.is_terminal else Console(highlight=False, width=200)
    _show(screen, answer, sources)
    if records:
        _show_records(screen, found, all_keys=all_keys)


def _place(text: str) -> tuple[TopicPartition, int | None]:
    """A partition, and an offset or None for the last."""
    topic, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not numbers[0].isdigit() or not (numbers[1].isdigit() or numbers[1] == "latest"):
        raise ConfigError(
            f"{text!r} is not TOPIC:PARTITION:OFFSET", hint="for example auction-stats:0:1234 or auction-stats:0:latest"
        )
    partition, offset = numbers
    return TopicPartition(topic, int(partition)), None if offset == "latest" else int(offset)


def _object(answer: Answer, sources: list[Read], found: list[tuple[View, list[Row]]], records: bool) -> dict[str, Any]:
    record = answer.record
    made = [_by(origin, made) for origin, made in zip(answer.origins, answer.made, strict=True)]
    shown: dict[str, Any] = {
        "app": answer.app,
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "key": plain(record.key()),
        "timestamp": in_words(record.timestamp()[1]),
        **(made[0] if len(made) == 1 else {"parts": made}),
        "sources": sources,
        **({"hint": KEEP} if any(map(trimmed, answer.made)) else {}),
    }
    if records:
        shown["records"] = [
            {"topic": view.topic, **as_object(row, raw=view.kind == "topic")} for view, rows in found for row in rows
        ]
    return shown


def _by(origin: Provenance, made: LineageNode) -> dict[str, Any]:
    said = {"task": origin.task, "step": origin.step, "sequence": origin.sequence, "epoch": origin.epoch}
    return {**{name: value for name, value in said.items() if value is not None}, "made": made}


def _show(screen: Console, answer: Answer, sources: list[Read]) -> None:
    record = answer.record
    address = f"{record.topic()}:{record.partition()}:{record.offset()}"
    shown: set[Step] = set()
    for origin, made in zip(answer.origins, answer.made, strict=True):
        which = f"record {origin.sequence} to this partition of " if origin.sequence is not None else "by "
        tree = Tree(Text.assemble((address, "bold"), f"  {which}", _who(made), f"  of app {answer.app}"))
        _grow(tree, made, shown)
        screen.print(tree)
    if sources:
        ranges = ", ".join(f"{_range(r)}" for r in sources)
        screen.print(Text.assemble(("from the sources  ", "dim"), ranges))
    if any(map(trimmed, answer.made)):
        screen.print(Text(f"to do: {KEEP}", "yellow"))


def _grow(tree: Tree, made: LineageNode, shown: set[Step]) -> None:
    """What a step read, and what is behind that. Several inputs may lead to one step, which is `shown` once."""
    if made.clock is None:
        tree.add(Text(_gone(made), "yellow"))
        for r in made.upto:
            tree.add(Text(f"an unknown range of {r.topic}[{r.partition}] below offset {r.end:,}"))
        return
    facts = [in_words(made.clock), made.owner and f"by {made.owner}"]
    facts += [
        counted(made.rows, "row") if made.rows is not None else None,
        counted(made.dead, "dead letter") if made.dead else None,
    ]
    tree.add(Text(", ".join(fact for fact in facts if fact), "dim"))
    if made.corrects is not None:
        first, last = made.corrects
        tree.add(Text(f"it corrects steps {first:,} to {last:,}, which other code had run: they read"))
    elif made.moved:
        tree.add(Text("it read nothing new: what an earlier version of the flow had kept was moved, or rebuilt"))
    elif not made.reads:
        tree.add(Text("it read nothing: a timer was due"))
    for r in made.reads:
        branch = tree.add(Text.assemble(("edge " if r.kind == "edge" else "", "dim"), _range(r)))
        if r.kept_from is not None:
            branch.add(Text(f"what lies below {r.kept_from:,} is deleted", "yellow"))
        for by in r.by:
            step = (by.task, by.step, by.stage, by.epoch)
            if step in shown:
                branch.add(Text.assemble(_who(by), (", as above", "dim")))
                continue
            shown.add(step)
            _grow(branch.add(_who(by)), by, shown)


def _who(made: LineageNode) -> Text:
    if made.epoch is not None:
        part = f" of {made.stage}" if made.stage is not None else ""
        return Text.assemble((f"epoch {made.epoch:,}{part}", "bold"))
    return Text.assemble((f"step {made.step:,} of task {made.task}", "bold"))


def _gone(made: LineageNode) -> str:
    if made.epoch is not None:
        return "its opening is deleted: the last hundred complete epochs are on record"
    if made.known is None:
        return "no step of the task is on record: all are deleted, or the app was deleted or reset"
    first, last = made.known
    if made.step is not None and made.step > last:
        return f"no such step: the task is at step {last:,}. The record is of an earlier app of this name"
    return f"its step record is deleted; those of steps {first:,} to {last:,} remain"


def _show_records(screen: Console, found: list[tuple[View, list[Row]]], *, all_keys: bool) -> None:
    for view, rows in found:
        if rows:
            screen.print(Text(f"\n{view.topic}", "bold"))
            Rows(view, screen)(rows)
    if not any(rows for _, rows in found):
        screen.print(
            Text("no record of them has its key; --all-keys shows all" if not all_keys else "they are gone", "dim")
        )


def _range(r: Read) -> str:
    return f"{r.topic}[{r.partition}] {r.start:,}..{r.end:,}"
