"""The board as people see it: a frame on a terminal, a line elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Group, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from falkirk.runtime.messages.protocol import Report, Request, percent
from falkirk.runtime.observe.board import Board, Recovery, StageState
from falkirk.wording import counted, listed

MOST = 8
"""This many rows of a table are shown; the rest is counted."""

EPOCHS = {"opened": "cyan", "running": "yellow", "complete": "green", "abandoned": "red"}

COLOURS = {"running": "green", "paused": "yellow", "recovering": "yellow", "starting": "cyan", "waiting": "dim"}


def frame(board: Board, brokers: str, progress: tuple[int, int] | None = None) -> RenderableType:
    """Everything at a glance. `progress`: input records processed and in total, if the run has an end."""
    seconds = board.seconds
    parts: list[RenderableType] = [Rule(_title(board, brokers, seconds), style="dim", align="left")]
    if board.app.tasks:
        waits = [Text(words, "yellow") for words in board.waits()[:MOST]]
        parts += ["", _workers(board), *waits, "", _stages(board.stages())]
    if board.app.batches:
        parts += ["", _epochs(board)]
    if recoveries := board.recovering():
        parts += ["", _recoveries(recoveries)]
    if progress is not None:
        parts += ["", *([_progress(*progress, seconds)] if board.app.tasks else [])]
        parts += [Text(words, "yellow") for words in _waits_for(board, *progress)]
    return Group(*parts)


def line(board: Board, progress: tuple[int, int] | None = None) -> str:
    """The same for a log, on one line."""
    stages, reports = board.stages(), board.lately()
    parts = [f"up {clock(board.seconds)}", *paused_words(board.paused())]
    figures = [
        f"{sum(s.running for s in stages)} of {counted(sum(s.tasks for s in stages), 'task')} here",
        f"{counted(board.read, 'record')} read",
        f"{sum(s.rows_per_s for s in stages):,.0f} records/s",
        f"lag {board.lag():,}",
        f"step {_slowest(r.step_ms for r in reports):.1f} ms",
        f"commit {_slowest(r.commit_ms for r in reports):.1f} ms",
    ]
    parts += figures if board.app.tasks else []
    if dead := sum(s.dead for s in stages):
        parts.append(counted(dead, "dead letter"))
    if skipped := sum(s.skipped for s in stages):
        parts.append(f"{skipped:,} skipped")
    parts += [f"part {part} has stopped" for part in board.stopped()]
    parts += board.waits()
    waits_for = [] if progress is None else _waits_for(board, *progress)
    parts += waits_for or [e.shown for e in board.epochs.values() if e.state == "running"]
    if recoveries := board.recovering():
        parts.append(f"recovering {listed([_in_words(r) for r in recoveries], most=3)}")
    if progress is not None and board.app.tasks:
        done, total = progress
        parts.append(f"{percent(done, total)} of {counted(total, 'input record')}")
    return f"{board.app.name}: {' · '.join(parts)}"


def _waits_for(board: Board, done: int, total: int) -> list[str]:
    """What a run until the end waits for, once the records that its workers are to read are read."""
    left = board.epochs_left() if done >= total else []
    return [f"waits for Spark: {', '.join(left)}"] if left else []


def clock(seconds: float) -> str:
    """A time span as a clock shows it.

    >>> clock(75), clock(3723.4)
    ('1:15', '1:02:03')
    """
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _title(board: Board, brokers: str, seconds: float) -> Text:
    return Text.assemble(
        (board.app.name, "bold"), ("  on ", "dim"), brokers, ("  up ", "dim"), clock(seconds),
        ("  read ", "dim"), counted(board.read, "record"), ("  recoveries ", "dim"), str(board.recoveries), " ",
        *((f" {words} ", "yellow") for words in paused_words(board.paused())),
        *((f" part {part} has stopped ", "red") for part in board.stopped()),
    )  # fmt: skip


def paused_words(asked: Request | None) -> list[str]:
    """Since when, and by whom; nothing if nobody has.

    >>> paused_words(Request("ann@host-1", 1763769600000)), paused_words(None)
    (['paused since 2025-11-22 00:00:00 UTC by ann@host-1'], [])
    """
    if asked is None:
        return []
    since = datetime.fromtimestamp(asked.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return [f"paused since {since} by {asked.by}"]


def table(*columns: str) -> Table:
    """Names to the left, figures to the right, each under its name. On a narrow screen long names go on in the next line."""
    table = Table(box=None, header_style="dim", pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        name, _, width = column.partition(":")
        justify: JustifyMethod = "right" if width else "left"
        least = int(width or 0) or None
        table.add_column(name, justify=justify, min_width=least, no_wrap=bool(width), overflow="fold")
    return table


def _workers(board: Board) -> Table:
    rows = table("worker", "pid:7", "", "tasks:5", "records/s:9", "step ms:7", "commit ms:9", "commits/s:9")
    shown = sorted(board.workers.values(), key=lambda w: w.slot)
    for worker in shown[:MOST]:
        report = worker.lately()
        figures = _figures(report) if report is not None else [""] * 5
        phase = Text(worker.phase, COLOURS[worker.phase])
        rows.add_row(str(worker.slot), str(worker.pid), phase, *figures)
    for slot in range(len(shown), min(board.size, MOST)):
        rows.add_row(str(slot), "", Text("starting", COLOURS["starting"]))
    if more := _more(max(len(shown), board.size), MOST):
        rows.add_row(Text(more.strip(), "dim"))
    return rows


def _figures(report: Report) -> list[str]:
    return [
        str(len(report.tasks)),
        f"{sum(t.rows for t in report.tasks) / report.seconds:,.0f}",
        f"{report.step_ms:.1f}",
        f"{report.commit_ms:.1f}",
        f"{report.commits / report.seconds:.1f}",
    ]


def _stages(stages: list[StageState]) -> Table:
    rows = table(
        "stage", "regime", "tasks:7", "records/s:9", "lag:9", "step:7", "version:9", "behind:7", "dead letters:12",
        *(["skipped:9"] if any(s.skipped for s in stages) else []),
    )  # fmt: skip
    for s in stages[: 2 * MOST]:
        rows.add_row(
            Text(s.id, "bold"),
            s.regime,
            Text(f"{s.running}/{s.tasks}", "" if s.running == s.tasks else "yellow"),
            f"{s.rows_per_s:,.0f}",
            f"{s.lag:,}",
            f"{s.step:,}" if s.step >= 0 else "–",
            "–" if s.versions is None else "–".join(map(str, sorted(set(s.versions)))),
            "–" if s.versions is None else f"{s.behind:.0f} s",
            Text(f"{s.dead:,}", "red" if s.dead else "dim"),
            *([Text(f"{s.skipped:,}", "red")] if any(x.skipped for x in stages) else []),
        )
    if more := _more(len(stages), 2 * MOST):
        rows.add_row(Text(more.strip(), "dim"))
    return rows


def _epochs(board: Board) -> Table:
    """The reports of the drivers here; an app's driver is on one of its hosts."""
    rows = table("batch", "epoch:7", "", "", "")
    for batch in board.app.batches[:MOST]:
        e = board.epochs.get(batch.stage.id)
        if e is None:
            rows.add_row(Text(batch.stage.id, "bold"), "–", Text("waiting", "dim"))
        else:
            bar: RenderableType = ProgressBar(e.of, e.done, width=30) if e.of and e.state == "running" else Text("")
            words = Text.assemble(e.words, "  ", (e.ui if e.state == "running" else "", "dim"))
            rows.add_row(Text(e.stage, "bold"), str(e.epoch), Text(e.state, EPOCHS[e.state]), bar, words)
    return rows


def _recoveries(recoveries: list[Recovery]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for r in recoveries[:MOST]:
        bar: RenderableType = ProgressBar(r.total, r.done, width=30) if r.total else Text("")
        share = percent(r.done, r.total) if r.total else ""
        left = "" if r.seconds_left is None else f"{clock(r.seconds_left)} left"
        table.add_row(Text("recovering", "yellow"), Text(r.task, "bold"), r.phase, bar, share, left)
    if more := _more(len(recoveries), MOST):
        table.add_row("", Text(more.strip(), "dim"))
    return table


def _progress(done: int, total: int, seconds: float) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    left = f"{clock(seconds * (total - done) / done)} left" if 0 < done < total else ""
    bar = ProgressBar(total or 1, done if total else 1, width=40)
    table.add_row(Text("until end", "dim"), bar, percent(done, total), f"{done:,} of {total:,}", left)
    return table


def _in_words(r: Recovery) -> str:
    share = f" {percent(r.done, r.total)}" if r.total else ""
    left = "" if r.seconds_left is None else f", {clock(r.seconds_left)} left"
    return f"{r.task} ({r.phase}{share}{left})"


def _more(count: int, shown: int) -> str:
    return f" and {count - shown} more" if count > shown else ""


def _slowest(values: Iterable[float]) -> float:
    return max(values, default=0.0)
