"""`falkirk dlq`: the dead letters of an app."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from falkirk import wording
from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.dead_letters import Count, DeadLetters, FoundLetter, Kind, Replay, ReplayPlan, counted
from falkirk.runtime.inspect.letters import Choice, Marks
from falkirk.stream.access.endpoints import plain
from falkirk.stream.access.objects import in_words
from falkirk.stream.flow.load import load_flow

Command = Callable[..., Any]

_CHOICE = [
    click.option("--stage", help="Only letters of this stage."),
    click.option("--reason", metavar="TEXT", help="Only letters whose reason contains this text."),
    click.option("--topic", help="Only letters of records of this topic."),
    click.option("--partition", type=click.IntRange(0), help="Only of this partition of the topic."),
    click.option("--offset", "offsets", metavar="N|N-M", help="Only of this offset, or of the offsets from N to M."),
]


def choice_options(command: Command) -> Command:
    """The letters to choose."""
    for option in reversed(_CHOICE):
        command = option(command)
    return command


@click.group()
def dlq() -> None:
    """List, show or replay the dead letters of an app: records that failed and were set aside.

    \b
    falkirk dlq list auction-stats --brokers broker-1:9092
    falkirk dlq show auction-stats --reason "cannot read" -n 3 --brokers broker-1:9092
    falkirk dlq replay auction-stats --stage stats --dry-run --brokers broker-1:9092

    APP is the app's name, or its flow (app:flow).
    """


@dlq.command(name="list", short_help="Count dead letters by stage, operator, topic and reason.")
@click.argument("app")
@choice_options
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def list_command(app: str, as_json: bool, **options: Any) -> None:
    """Count the dead letters of APP by stage, operator, topic and reason, the most frequent first.

    \b
    falkirk dlq list auction-stats --brokers broker-1:9092

    \b
    --json prints one object per line:
      stage, operator, topic, reason    … stands for the part that differs from letter to letter
      letters, replayed, failed_again   the number of letters; of those whose record was replayed; of those whose record
                                        failed again after a replay
      first, last                       timestamps of their records
    """
    letters, choice = _letters(app, options), _choice(options)
    counts = counted(letters, choice)
    screen = Console(highlight=False)
    if as_json or not screen.is_terminal:
        for kind, count in counts.items():
            told = {"letters": count.letters, "replayed": count.replayed, "failed_again": count.failed_again}
            click.echo(
                msgspec.json.encode(
                    {**kind._asdict(), **told, "first": in_words(count.first), "last": in_words(count.last)}
                )
            )
        return
    for kind, count in counts.items():
        screen.print(_kind(kind, count))
    if not counts:
        screen.print(Text("no dead letters", "dim"))
    if letters.foreign:
        screen.print(Text(f"{wording.counted(letters.foreign, 'other record')} in {', '.join(letters.where)}", "dim"))


@dlq.command(short_help="Show dead letters: address, reason, payload.")
@click.argument("app")
@choice_options
@cluster_options
@click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="Show the last N; 0: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, as where the output is no terminal.")
def show(app: str, count: int, as_json: bool, **options: Any) -> None:
    """Show dead letters of APP: where the record is, why it failed, and what it holds.

    \b
    falkirk dlq show auction-stats --topic bids --partition 3 --offset 17-20 --brokers broker-1:9092

    \b
    --json prints one object per line. Fields that do not apply are null.
      stage, operator, reason
      source, topic, partition, offset, timestamp     of the record
      key, payload      bytes that are not UTF-8 are {"base64": …}
      row               the operator's input row, if the record is not known
      replayed          where the record was written again: topic, partition, offset; null if it was not
      attempt           how often the record had been replayed when it failed
      letter            where the letter is: topic, partition, offset
    """
    letters, choice = _letters(app, options), _choice(options)
    marks = letters.marks()
    last: deque[FoundLetter] = deque(maxlen=count or None)
    for found in letters.found(choice):
        last += found
    screen = Console(highlight=False)
    for found_one in last:
        if as_json or not screen.is_terminal:
            click.echo(msgspec.json.encode(_object(found_one, marks), enc_hook=str))
        else:
            screen.print(_block(found_one, marks))
    sys.stdout.flush()


@dlq.command(short_help="Write the records of dead letters again, exactly once.")
@click.argument("app")
@choice_options
@cluster_options
@click.option(
    "--to", metavar="TOPIC", help="Write the records to this topic, by key.  [default: to the partition they came from]"
)
@click.option("--again", is_flag=True, help="Also replay records that failed again after a replay.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def replay(app: str, to: str | None, again: bool, dry_run: bool, **options: Any) -> None:
    """Write the records of dead letters of APP again, each exactly once. Fix the flow or the producer first.

    \b
    falkirk dlq replay auction-stats --reason "cannot read" --dry-run --brokers broker-1:9092
    falkirk dlq replay auction-stats --reason "cannot read" --brokers broker-1:9092

    Key, value and timestamp are those of the record; so are the headers, if the record is still in its topic. A header
    falkirk-replayed counts the replays. Several letters of one record are replayed once. Every stage that reads the topic
    reads the record again: a stage that did not fail the first time then has it twice. To avoid that, use --to.

    You can stop, kill and restart the command: no record is written twice. A record that fails again has a new letter, which
    later replays skip unless --again is given.
    """
    letters, choice = _letters(app, options), _choice(options)
    plan = letters.plan(choice, again=again)
    for words in _words(plan, to):
        click.echo(words, err=True)
    plan.check(to)
    if dry_run or not plan.due:
        click.echo(0)
        return
    with _progress(plan.due) as on_progress:
        written = Replay(letters, choice, to, again, on_progress).run()
    click.echo(f"{wording.counted(written, 'record')} written again", err=True)
    click.echo(written)


def _words(plan: ReplayPlan, to: str | None) -> Iterator[str]:
    yield f"{wording.counted(plan.due, 'record')} to write {'to ' + to if to else 'back to their topics'}"
    if plan.settled:
        yield f"{plan.settled:,} replayed already"
    if plan.failed_again:
        yield f"{plan.failed_again:,} replayed, and failed again: skipped, unless --again is given"
    if plan.unknown:
        yield f"{wording.counted(plan.unknown, 'letter')} of rows, not of records: they cannot be replayed"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else a line every few seconds."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        said = time.monotonic()

        def say(done: int) -> None:
            nonlocal said
            if time.monotonic() - said > 5:
                said = time.monotonic()
                click.echo(f"{done:,} of {total:,}", err=True)

        yield say
        return
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("replaying", total=total)
        yield lambda done: bar.update(task, completed=done)


def _letters(app: str, options: dict[str, Any]) -> DeadLetters:
    settings = cluster_settings(**options)
    name = load_flow(app).name if ":" in app or app.endswith((".py", ".sql")) else app
    return DeadLetters(name, settings, Topics(settings.cluster()))


def _choice(options: dict[str, Any]) -> Choice:
    offsets = None
    if (text := options["offsets"]) is not None:
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        if found is None:
            raise ConfigError(f"{text!r} is not an offset", where="--offset", hint="write 17, or 17-20")
        offsets = (int(found[1]), int(found[2] or found[1]))
    return Choice(options["stage"], options["reason"], options["topic"], options["partition"], offsets)


def _kind(kind: Kind, count: Count) -> Text:
    """Letters of one kind for people: lines instead of a table, which few screens are wide enough for.

    >>> print(_kind(Kind("stats", "source bids", "bids", "not JSON"), Count(2_000, 3, 1, 1_000, 2_000)))
    2,000 letters  stage stats  source bids  topic bids
      not JSON
      from 1970-01-01T00:00:01.000Z to 1970-01-01T00:00:02.000Z
      3 replayed, 1 failed again
    """
    shown = Text.assemble(
        (wording.counted(count.letters, "letter"), "bold"), ("  stage ", "dim"), kind.stage, f"  {kind.operator}",
        ("  topic ", "dim"), kind.topic or "–", "\n  ", (kind.reason, "red"),
        ("\n  from ", "dim"), in_words(count.first), (" to ", "dim"), in_words(count.last),
    )  # fmt: skip
    if count.replayed:
        shown.append(f"\n  {count.replayed:,} replayed, {count.failed_again:,} failed again")
    return shown


def _object(found: FoundLetter, marks: Marks) -> dict[str, Any]:
    letter = found.letter
    moved = None if letter.address is None else marks.moves.get(letter.address)
    return {
        "stage": letter.stage, "operator": letter.operator, "reason": letter.reason, "source": letter.source,
        "topic": letter.topic, "partition": letter.partition, "offset": letter.offset,
        "timestamp": in_words(letter.timestamp), "key": plain(letter.key), "payload": plain(letter.payload),
        "row": letter.row,
        "replayed": None if moved is None else moved.now._asdict(), "attempt": marks.attempt(letter),
        "letter": found.place._asdict(),
    }  # fmt: skip


def _block(found: FoundLetter, marks: Marks) -> Text:
    """A letter for people.

    >>> from falkirk.runtime.inspect.letters import Address, Letter, Move
    >>> letter = Letter("a", "stats", "not JSON", 1_000, "bids", "bids", 0, 7, b"k", b"{")
    >>> marks = Marks({letter.address: Move(letter.address, Address("bids", 0, 9), 1)}, {letter.address: 2})
    >>> print(_block(FoundLetter(letter, Address("letters", 0, 0)), marks))
    bids[0] 7  1970-01-01T00:00:01.000Z  stage stats  source bids
      not JSON
      key      k
      payload  {
      it failed again, after 2 replays
      replayed, and is now bids[0] 9
    >>> print(_block(FoundLetter(Letter("a", "s", "?", 0, operator="process p", row={"n": 1}), Address("d", 0, 0)), marks))
    –[–]   1970-01-01T00:00:00.000Z  stage s  process p
      ?
      row      {"n":1}
    """
    letter, told = found.letter, _object(found, marks)
    where = f"{letter.topic or '–'}[{letter.partition if letter.partition is not None else '–'}]"
    shown = Text.assemble(
        (f"{where} {letter.offset if letter.offset is not None else ''}", "bold"), "  ", told["timestamp"],
        ("  stage ", "dim"), letter.stage, ("  ", ""), letter.operator or f"source {letter.source}", "\n  ",
        (letter.reason, "red"),
    )  # fmt: skip
    if letter.address is None:
        shown.append(f"\n  row      {msgspec.json.encode(letter.row).decode()}")
    else:
        shown.append(f"\n  key      {_bytes(letter.key)}\n  payload  {_bytes(letter.payload)}")
    if told["attempt"]:
        shown.append(f"\n  it failed again, after {wording.counted(told['attempt'], 'replay')}", "yellow")
    if (now := told["replayed"]) is not None:
        shown.append(f"\n  replayed, and is now {now['topic']}[{now['partition']}] {now['offset']}", "green")
    return shown


def _bytes(data: bytes | None) -> str:
    """Text if it is UTF-8, else hex.

    >>> _bytes(b"17"), _bytes(b"\\xff\\x00"), _bytes(None)
    ('17', 'hex ff 00', '–')
    """
    if data is None:
        return "–"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"hex {data.hex(' ')}"
    return text if text.isprintable() else repr(text)[1:-1]
