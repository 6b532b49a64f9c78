"""`falkirk status`: the status of an app, from any host that reaches its cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from falkirk.cli.legend import STATUS
from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import FalkirkError
from falkirk.runtime.inspect.low import Hold, LowWatermark, furthest
from falkirk.runtime.inspect.status import PartStatus, ProblemStatus, Status, TaskStatus, WatermarkStatus, read_status
from falkirk.runtime.observe.console import paused_words, table
from falkirk.wording import counted

COLOURS = {"running": "green", "degraded": "red", "recovering": "yellow", "paused": "yellow", "stopped": "red"}


@click.command(epilog=STATUS)
@click.argument("app")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as described above.")
def status(app: str, as_json: bool, **options: Any) -> None:
    """Show APP's status: its tasks, their owners and lag, and its workers. Reads it from the cluster, on any host.

    \b
    falkirk status auction-stats --brokers broker-1:9092

    \b
    --json prints one object. Unknown values are null.
      app, group, falkirk     names; the version of Falkirk that recorded the layout
      state                   "running", "degraded" (parts have stopped, the others run), "recovering", "paused" or
                              "stopped" (no workers)
      paused                  by, at (milliseconds since 1970): who paused it, if it is paused
      layout                  the layout's number
      lag                     records that are not processed yet, in all
      stages[]                stage, regime, stateful, tasks, running, lag, records_per_s
      tasks[]                 task, owner, host, phase, step, step_age_s, version, version_behind_s, lag,
                              inputs[]: topic, partition, position, lag; done (0 to 1, in the phases "rolling", "copying"
                              and "rebuilding"); waits (what for and since when, in the phase "waiting");
                              hot[]: operator, key, share (0 to 1): a key with most of the operator's rows in the task;
                              watermarks[]: source, at (milliseconds since 1970; null: no time is complete), held_by (the
                              partition that holds it back; "": all are idle);
                              silent_s (since when its worker has not reported, if that is 20 s or more)
      workers[]               worker, host, pid, member (of the group), tasks, records_per_s, step_ms, commit_ms,
                              commits_per_s, reported_s_ago, clock_ahead_ms (how far its clock is ahead of the broker's,
                              at least), waits (what it waits for; usually ""), query (the address
                              where it answers questions about its state; "" if it does not)
      silent[]                other clusters that do not answer; lag does not count their records
      held[]                  source partitions with an open transaction: topic, partition, stable (the last stable
                              offset: records after it cannot be read yet), end, since_s, words
      parts[]                 parts that have stopped by themselves: part, by, at (milliseconds since 1970), what, where,
                              hint, exit_code (of the error)
      problems[]              what keeps it from running: what, where, hint, exit_code (of the error); by and at, if a run
                              has ended with it and none has begun since (null: it was found now)
      low[]                   how far back a failure can take each task and batch part: of, at (the step, or the epoch; null:
                              it may begin with nothing), age_s, held_by[]: what holds it back, or rows that it sent: what
                              ("version", "copy", "idle", "worker", "part", "epoch", "reader", "outlet"), by (the task, batch
                              part or sink), at, age_s (of by's newest version, low-watermark or epoch), why, records
      batches[]               stage, epoch, state ("none", "open", "complete", "abandoned"), opened_s_ago, records (to read),
                              rows (published), published and partitions (of the result), complete (the newest complete
                              epoch), complete_s_ago, driver, spark_ui (the address of Spark's UI, while it runs)
    The exit code is 0 for any state, 2 if there is no such app, 3 if the app's cluster does not answer.
    """
    settings = cluster_settings(**options)
    found = read_status(app, settings, Topics(settings.cluster()))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        console = Console(highlight=False)
        # Nothing is cut off, unless the output is a terminal.
        (console if console.is_terminal else Console(highlight=False, width=200)).print(shown(found))


def shown(found: Status) -> RenderableType:
    """The status for people."""
    stages = table("stage", "regime", "tasks:7", "records/s:9", "lag:9")
    for s in found.stages:
        stages.add_row(
            Text(s.stage, "bold"), s.regime, f"{s.running}/{s.tasks}", f"{s.records_per_s:,.0f}", f"{s.lag:,}"
        )
    tasks = table("task", "owner", "", "step:7", "age:8", "version:8", "behind:7", "lag:9")
    for t in found.tasks:
        tasks.add_row(
            Text(t.task, "bold"), _short(found, t.owner), _phase(found, t), _number(t.step), _seconds(t.step_age_s),
            _number(t.version), _seconds(t.version_behind_s), f"{t.lag:,}",
        )  # fmt: skip
    workers = table(
        "worker", "host", "pid:7", "tasks:5", "records/s:9", "step ms:7", "commit ms:9", "commits/s:9", "clock:8",
        "reported:9",
    )  # fmt: skip
    for w in found.workers:
        note = "" if w.member else "  (not a member)"
        workers.add_row(
            f"{_short(found, w.worker)}{note}", w.host, _number(w.pid), str(w.tasks), _number(w.records_per_s),
            _number(w.step_ms), _number(w.commit_ms), _number(w.commits_per_s),
            _off(w.clock_ahead_ms), "–" if w.reported_s_ago is None else f"{_seconds(w.reported_s_ago)} ago",
        )  # fmt: skip
    epochs = table("batch", "epoch:7", "", "opened:8", "reads:9", "published:9", "partitions:10", "complete:8")
    for e in found.batches:
        epochs.add_row(
            Text(e.stage, "bold"), _number(e.epoch), e.state, _seconds(e.opened_s_ago), f"{e.records:,}", f"{e.rows:,}",
            f"{e.published}/{e.partitions}", _number(e.complete),
        )  # fmt: skip
    held = [
        Text.assemble(("waiting for ", "yellow"), words) for words in sorted({t.waits for t in found.tasks if t.waits})
    ]
    held += [
        Text(f"hot key in {t.task}: {hot.key} has {hot.share:.0%} of the rows of {hot.operator}", "yellow")
        for t in found.tasks
        for hot in t.hot
    ]
    held += [Text(one.words, "yellow") for one in found.held]
    held += [Text(words, "dim") for words in _watermarks(found.tasks, time.time())]
    held += [Text(words, "dim") for words in _low_watermarks([low for low in found.low if "/" in low.of])]
    pages = [Text(words, "dim") for words in _low_watermarks([low for low in found.low if "/" not in low.of])]
    pages += [Text.assemble((f"Spark of {e.stage}  ", "dim"), e.spark_ui) for e in found.batches if e.spark_ui]
    title = Text.assemble(
        (found.app, "bold"), "  ", (found.state, COLOURS[found.state]), ("  layout ", "dim"), str(found.layout),
        ("  lag ", "dim"), f"{found.lag:,}", *((f"  {words}", "yellow") for words in paused_words(found.paused)),
        *((f"  cluster {name} does not answer: without what is left there", "yellow") for name in found.silent),
    )  # fmt: skip
    asked = [Text.assemble((f"state at {_short(found, w.worker)}  ", "dim"), w.query) for w in found.workers if w.query]
    waits = [Text(f"{_short(found, w.worker)} waits: {w.waits}", "yellow") for w in found.workers if w.waits]
    nobody: RenderableType = Text("no workers", "dim")
    parts: list[RenderableType] = [
        "",
        stages,
        "",
        tasks,
        *held,
        "",
        workers if found.workers else nobody,
        *asked,
        *waits,
    ]
    batches: list[RenderableType] = ["", epochs, *pages]
    stopped = [text for part in found.parts for text in _stopped(found.app, part)]
    problems = [Text(_problem(problem), "red") for problem in found.problems]
    return Group(title, *problems, *stopped, *(parts if found.stages else []), *(batches if found.batches else []))


def _problem(problem: ProblemStatus) -> str:
    """What keeps the app from running.

    >>> print(_problem(ProblemStatus("topic 'bids' is gone", "read by stage stats", "restore it", 4)))
    it cannot run: topic 'bids' is gone
      where: read by stage stats
      to do: restore it
    >>> print(_problem(ProblemStatus("boom", "", "fix it", 5, "ann@host-1", 1_767_225_600_000)))
    a run ended at 2026-01-01 00:00:00 UTC by ann@host-1, exit code 5: boom
      to do: fix it
    """
    error = FalkirkError(problem.what, where=problem.where, hint=problem.hint)
    if problem.at is None:
        return f"it cannot run: {error}"
    return f"a run ended at {_moment(problem.at)} by {problem.by}, exit code {problem.exit_code}: {error}"


def _stopped(app: str, part: PartStatus) -> list[Text]:
    """Why a part has stopped, and how to let it go on."""
    since = f"at {_moment(part.at)} by {part.by.removeprefix(f'{app}.')}"
    error = FalkirkError(part.what, where=part.where, hint=part.hint)
    return [
        Text(f"part {part.part} was stopped {since}: {error}", "red"),
        Text(f"  and then: falkirk resume {app} --part {part.part}", "dim"),
    ]


def _watermarks(tasks: Sequence[TaskStatus], now: float) -> list[str]:
    """The watermark of each source: the least of its tasks'.

    >>> task = TaskStatus("bids/1", None, None, "running", 1, 0.0, None, None, 0, [])
    >>> at = [WatermarkStatus("bids", 1_767_225_600_000, "bids[1]"), WatermarkStatus("asks", None, "asks[0]")]
    >>> at += [WatermarkStatus("logs", -62_135_596_860_000, "logs[2]")]  # a minute before Go's zero time
    >>> for words in _watermarks([msgspec.structs.replace(task, watermarks=at)], 1_767_225_607.0):
    ...     print(words)
    watermark of bids: 2026-01-01 00:00:00 UTC, 7.0 s ago, held back by bids[1]
    watermark of asks: none yet, for want of rows in asks[0]
    watermark of logs: -62135596860000 ms since 1970, 17750784.0 h ago, held back by logs[2]
    """
    least: dict[str, WatermarkStatus] = {}
    for mark in (mark for task in tasks for mark in task.watermarks):
        known = least.get(mark.source)
        if known is None or (mark.at or 0) < (known.at or 0):
            least[mark.source] = mark
    words = []
    for mark in least.values():
        if mark.at is None:
            why = f"for want of rows in {mark.held_by}" if mark.held_by else "all partitions are idle"
            words.append(f"watermark of {mark.source}: none yet, {why}")
            continue
        why = f"held back by {mark.held_by}" if mark.held_by else "all partitions are idle"
        ago = now - mark.at / 1000
        age = f"{_seconds(ago)} ago" if ago >= 0 else f"{_seconds(-ago)} ahead"
        words.append(f"watermark of {mark.source}: {_moment(mark.at)}, {age}, {why}")
    return words


def _low_watermarks(found: Sequence[LowWatermark]) -> Iterator[str]:
    """How far back a failure can take each part: the task that it can take back furthest, and what holds that one back.

    >>> next_one = Hold("version", "s/0", 41, 2.3)
    >>> rows = [Hold("reader", "top/1", 30, 190.0, "lazy"), Hold("outlet", "files", records=12)]
    >>> for words in _low_watermarks([
    ...     LowWatermark("s/0", 40, 12.0, [next_one, *rows]), LowWatermark("s/1", 43, 9.0, rows),
    ...     LowWatermark("usual", 3, 70.0, [Hold("epoch", "usual", 4, 5.0, "1 of 2 partitions are published")]),
    ... ]):
    ...     print(words)
    low-watermark of s: step 40 of s/0, 12.0 s ago, held back by the next version of s/0: the newest is of step 41, 2.3 s ago
      what it sent stays for top/1 (lazy), from its step 30 on, 3 min ago
      what it sent waits for sink files: 24 records at most
    low-watermark of usual: epoch 3, 1 min ago, held back by epoch 4, open for 5.0 s: 1 of 2 partitions are published
    """
    by_part: dict[str, list[LowWatermark]] = {}
    for low in found:
        by_part.setdefault(low.of.rpartition("/")[0] or low.of, []).append(low)
    for part, some in by_part.items():
        low = furthest(some)
        what = f"epoch {low.at}" if part == low.of else f"step {low.at:,} of {low.of}" if low.at is not None else ""
        at = f"none yet in {low.of}" if low.at is None else f"{what}, {_seconds(low.age_s)} ago"
        own = [_holds(hold) for hold in low.held_by if hold.what not in ("reader", "outlet")]
        yield f"low-watermark of {part}: {at}" + "".join(f", held back by {words}" for words in own)
        for hold in (hold for hold in low.held_by if hold.what == "reader"):
            if hold.at is None:
                yield f"  all that it sent stays for {hold.by} ({hold.why})"
            else:
                at = f"from its step {hold.at:,} on, {_seconds(hold.age_s)} ago"
                yield f"  what it sent stays for {hold.by} ({hold.why}), {at}"
        waiting: dict[str, int] = {}
        for hold in (hold for one in some for hold in one.held_by if hold.what == "outlet"):
            waiting[hold.by] = waiting.get(hold.by, 0) + hold.records
        for sink, records in waiting.items():
            yield f"  what it sent waits for sink {sink}: {counted(records, 'record')} at most"


def _holds(hold: Hold) -> str:
    newest = "it has none yet" if hold.at is None else f"the newest is of step {hold.at:,}, {_seconds(hold.age_s)} ago"
    match hold.what:
        case "copy":
            return f"the version of {hold.by} of step {hold.at:,}, {_seconds(hold.age_s)} ago: it is not copied yet"
        case "idle":
            return f"{hold.by}: no step has followed its newest version"
        case "worker":
            return f"{hold.by}: " + (f"it is {hold.why}" if hold.why else "no worker reports it")
        case "part":
            return f"{hold.by}: its part is stopped"
        case "epoch":
            return f"epoch {hold.at}, open for {_seconds(hold.age_s)}: {hold.why}"
        case _:
            return f"the next version of {hold.by}: {newest}"


def _phase(found: Status, task: TaskStatus) -> str:
    """With its progress. What no report says is said by the app's state, or by since when there is none."""
    if task.silent_s is not None:
        return f"silent for {_seconds(task.silent_s)}"
    if task.phase is None:
        return found.state if found.state == "recovering" else ""
    return task.phase + ("" if task.done is None else f" {100 * task.done:.0f} %")


def _short(found: Status, worker: str | None) -> str:
    """A worker's name without the app's."""
    return "–" if worker is None else worker.removeprefix(f"{found.app}.")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _off(millis: int | None) -> str:
    """How far a clock is ahead or behind.

    >>> _off(None), _off(0), _off(1400), _off(-7_200_000)
    ('–', '±0.0 s', '+1.4 s', '-2.0 h')
    """
    if millis is None:
        return "–"
    sign = "+" if millis > 0 else "-" if millis < 0 else "±"
    return sign + _seconds(abs(millis) / 1000)


def _moment(millis: int) -> str:
    """A time for people; one that is in no calendar stays a number.

    >>> _moment(1_767_225_600_000), _moment(1 << 60)
    ('2026-01-01 00:00:00 UTC', '1152921504606846976 ms since 1970')
    """
    try:
        return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{millis} ms since 1970"


def _seconds(value: float | None) -> str:
    """A time span in short form.

    >>> _seconds(3.21), _seconds(75.0), _seconds(7300.0)
    ('3.2 s', '1 min', '2.0 h')
    """
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 60 else f"{value // 60:.0f} min" if value < 3600 else f"{value / 3600:.1f} h"
