"""The messages between supervisor and worker processes: lines of JSON on the worker's standard input and output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Literal

import msgspec

from falkirk.checkpoint.planning import Rates
from falkirk.errors import FalkirkError, retold
from falkirk.stream.dataflow.task_counts import CallCounts, HotKey, SourceWatermark, summed

BUG = 70
"""Exit code of an error that is not a FalkirkError (EX_SOFTWARE): the supervisor tries again, a few times."""


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds, in seconds, of the histograms of step and commit times."""


class Work(msgspec.Struct, frozen=True, tag="work"):
    """To a spare: be worker `slot`."""

    slot: int
    first: bool = False
    """Nobody has checked yet whether the app may run on this host: this worker must."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a spare: imported, planned and connected."""

    app: str = ""
    """Whose worker it can be at once; "" if workers have nothing to do, or if the run must record the app first."""


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """From a spare: no broker answers, and it keeps trying."""


REBUILDING = "rebuilding"
"""The phase of a running task that reads its earlier inputs again, for operators that are rebuilt."""


STOPPED = "stopped"
"""The phase of a task whose part has stopped by itself: its worker keeps it, and does not run it."""


WAITING = "waiting"
"""The phase of a task whose take-over must wait for something: the report says for what."""


LEFT = "left"
"""The phase of a task that its worker has no more: the report has nothing but what it counted."""


RECOVERING = "recovering"
"""The phase of a task whose worker has died: its supervisor reports that in the worker's place."""


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task, as its worker sees it."""

    task: str
    phase: str
    step: int = -1
    """The last committed one."""
    rows: int = 0
    """Committed since the last report."""
    dead: int = 0
    """Of those, the failed rows that went to the dead letters."""
    version: int = 0
    """The newest; 0: none, or no state."""
    behind: float = 0.0
    """Seconds from that version to the last step."""
    ends: tuple[int, ...] = ()
    """Where the last committed step stopped reading, in the order of the task's inputs."""
    marks: tuple[int, ...] = ()
    """Where those inputs ended at that time."""
    places: tuple[tuple[str, int], ...] = ()
    """The topics and partitions of those inputs, if topics may join them while the app runs."""
    done: int = 0
    total: int = 0
    """How far a recovery or a rebuild is: records of a changelog, steps, bytes, or offsets."""
    waits: str = ""
    """What it waits for, and since when."""
    skipped: int = 0
    """Of `rows`, the failed ones that were left out."""
    late: int = 0
    """Rows that came too late (`late=` of a source)."""
    calls: dict[str, CallCounts] = {}
    """What its operators have called since the last report, by their ids."""
    hot: dict[str, HotKey] = {}
    """The keys that have most of their rows, by operator."""
    watermarks: dict[str, SourceWatermark] = {}
    """How far its sources are in event time, by their names."""
    answers: str = ""
    """The last `falkirk checkpoint` for which a version is in the checkpoint store; without state: the last heard."""
    versioned: tuple[int, int] = (-1, 0)
    """The step and the clock, in milliseconds, of the newest version."""
    copies: tuple[tuple[int, int], ...] = ()
    """The same of the last two that are in the checkpoint store, oldest first, once its worker has copied one."""
    took: float = 0.0
    """Seconds that its take-over took, without the wait for its turn; 0: it was not measured."""
    expected: float = 0.0
    """Seconds that it was predicted to take."""

    @property
    def copied(self) -> int:
        """The step of the newest version in the checkpoint store; −1: its worker has copied none yet."""
        return self.copies[-1][0] if self.copies else -1


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person's request to an app."""

    by: str
    at: int
    """Milliseconds since 1970, UTC."""
    id: str = ""
    """For a request that is answered once."""
    ends: dict[str, tuple[int, ...]] = {}
    """For a drain: where the sources end, by topic and partition."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag="report"):
    """From a worker, once a second, and at once when all its tasks run again."""

    slot: int
    owner: str
    pid: int
    tasks: list[TaskReport]
    seconds: float = 1.0
    """Since the last report."""
    step_ms: float = 0.0
    """The average time to run a step since the last report."""
    commit_ms: float = 0.0
    """And to commit it."""
    commits: int = 0
    """Since the last report."""
    step_times: tuple[int, ...] = ()
    """How many steps since then took up to each of `BOUNDS`, and longer than the last; empty if there were none."""
    commit_times: tuple[int, ...] = ()
    member: bool = False
    """Whether the group has given it tasks, or none."""
    paused: Request | None = None
    """By whom; None while steps are opened, or one is still in progress."""
    ahead_ms: int | None = None
    """By how much the host's clock is ahead of the broker's, at least; None if unknown."""
    waits: str = ""
    """What its transactions wait for; "" if nothing is unusual."""
    stopped: tuple[str, ...] = ()
    """The parts that it does not run, because they have stopped by themselves."""
    query: str = ""
    """Where it answers for its state; "": nowhere."""
    rates: dict[str, Rates] = {}
    """What take-overs have taken on its host, by stage."""
    session_ms: int = 0
    """The group notices that it is gone after this time at most."""
    checkpoints: str = ""
    """The URL that it copies versions to; "": a folder of its own state directory."""
    left: list[TaskReport] = []
    """What tasks counted since the last report that it has no more: their `LEFT` reports."""

    @property
    def counted(self) -> list[TaskReport]:
        """All that was counted since the last report, by task."""
        return [*self.tasks, *self.left]


def at_work(report: Report) -> bool:
    """Whether the group has given the worker tasks, or none, and all of them run.

    >>> tasks = [TaskReport("stats/0", phase) for phase in ("rolling", "running", "stopped")]
    >>> [at_work(Report(0, "app.a", 1, [task], member=True)) for task in tasks]
    [False, True, True]
    """
    return report.member and all(task.phase in ("running", REBUILDING, STOPPED) for task in report.tasks)


def answers(report: Report) -> object:
    """The part that a person who has asked the app for something waits for, or another worker that is asked for state: when
    it changes, it is reported at once."""
    serves = [(t.task, t.phase in ("running", REBUILDING)) for t in report.tasks] if report.query else ()
    return report.paused, report.stopped, [(t.task, t.answers) for t in report.tasks], report.query, serves


def lost(report: Report) -> Report:
    """The last report of a worker that has died, as its supervisor corrects it: none of its tasks runs, and what it counted
    is not counted again.

    >>> report = Report(0, "app.a", 1, [TaskReport("stats/0", "running", 7, rows=5), TaskReport("stats/1", "stopped")])
    >>> [(task.phase, task.step, task.rows) for task in lost(report).tasks]
    [('recovering', 7, 0), ('stopped', -1, 0)]
    """
    tasks = [
        TaskReport(
            t.task, t.phase if t.phase == STOPPED else RECOVERING, t.step, version=t.version, behind=t.behind,
            ends=t.ends, marks=t.marks, places=t.places, answers=t.answers,
            versioned=t.versioned, copies=t.copies,
        )
        for t in report.tasks
    ]  # fmt: skip
    return Report(
        report.slot, report.owner, report.pid, tasks, member=report.member, paused=report.paused, stopped=report.stopped,
        ahead_ms=report.ahead_ms, rates=report.rates, session_ms=report.session_ms, checkpoints=report.checkpoints,
    )  # fmt: skip


def merged(reports: Sequence[Report]) -> Report:
    """Consecutive reports of one worker, as one.

    Its seconds are those from the first to the last report with a commit, if there is one: a rate over them says how fast the
    worker is when something comes, no matter how long ago that was.
    """
    last, commits = reports[-1], sum(r.commits for r in reports)
    rows: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    late: Counter[str] = Counter()
    calls: dict[str, dict[str, CallCounts]] = {}
    for report in reports:
        for task in report.counted:
            calls[task.task] = summed(calls.get(task.task, {}), task.calls)
            rows[task.task] += task.rows
            dead[task.task] += task.dead
            skipped[task.task] += task.skipped
            late[task.task] += task.late
    names = {t.task for t in last.tasks}
    return msgspec.structs.replace(
        last,
        left=[
            TaskReport(name, LEFT, rows=count, dead=dead[name], skipped=skipped[name], late=late[name])
            for name, count in rows.items()
            if name not in names
        ],
        tasks=[
            msgspec.structs.replace(
                t, rows=rows[t.task], dead=dead[t.task], skipped=skipped[t.task], late=late[t.task], calls=calls[t.task]
            )
            for t in last.tasks
        ],
        seconds=_active_seconds(reports),
        step_ms=_mean([(r.step_ms, r.commits) for r in reports]),
        commit_ms=_mean([(r.commit_ms, r.commits) for r in reports]),
        commits=commits,
        step_times=added(*(r.step_times for r in reports)),
        commit_times=added(*(r.commit_times for r in reports)),
    )


def _active_seconds(reports: Sequence[Report]) -> float:
    whole = sum(r.seconds for r in reports)
    busy = [i for i, report in enumerate(reports) if report.commits]
    if not busy:
        return whole
    # A worker may report at once, after some milliseconds: no rate is taken of so little.
    return max(sum(r.seconds for r in islice(reports, busy[0], busy[-1] + 1)), min(1.0, whole))


def added(*counts: Sequence[int]) -> tuple[int, ...]:
    """Counts for `BOUNDS`, added one by one; no counts mean all zero.

    >>> added((1, 0), (), (2, 3))
    (3, 3)
    """
    return tuple(map(sum, zip(*filter(None, counts), strict=True)))


def _mean(pairs: list[tuple[float, int]]) -> float:
    weight = sum(w for _, w in pairs)
    return sum(x * w for x, w in pairs) / weight if weight else 0.0


class EpochReport(msgspec.Struct, frozen=True, omit_defaults=True, tag="epoch"):
    """From a driver: the state of an epoch."""

    stage: str
    epoch: int
    state: Literal["opened", "running", "complete", "abandoned"]
    words: str
    """What is being done, or was."""
    done: int = 0
    of: int = 0
    """Spark's tasks for it; 0: not known."""
    ui: str = ""
    """The address of Spark's UI for it; "": none."""

    @property
    def shown(self) -> str:
        """In one line.

        >>> EpochReport("usual", 3, "running", "sorts", 1, 2).shown
        'epoch 3 of usual: sorts 50 %'
        """
        return f"epoch {self.epoch} of {self.stage}: {self.words}{f' {percent(self.done, self.of)}' if self.of else ''}"


def percent(done: int, total: int) -> str:
    """How much of it is done; of nothing, all is.

    >>> percent(1, 3), percent(0, 0)
    ('33 %', '100 %')
    """
    return f"{100 * done // total if total else 100} %"


class SentReport(msgspec.Struct, frozen=True):
    """A worker's report on the control topic."""

    host: str
    at: int
    """Milliseconds since 1970, UTC."""
    report: Report
    """For the last seconds; it says how many."""
    run: str = ""
    """Which run of workers on Spark it belongs to; "" for workers of a supervisor on their host."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a worker that ends: what is wrong, in words for people."""

    what: str
    exit_code: int
    passing: bool = False
    """It passes by itself: another worker may try."""
    where: str = ""
    hint: str = ""
    kind: str = ""
    """The error's class, by its name."""


def error_of(said: Failed) -> FalkirkError:
    """As the worker raised it."""
    return retold(said.kind, said.what, said.exit_code, where=said.where, hint=said.hint)


class SentEpochReport(msgspec.Struct, frozen=True):
    """An epoch in progress, as reported on the control topic."""

    host: str
    at: int
    """Milliseconds since 1970, UTC."""
    report: EpochReport


FromWorker = Ready | Waiting | Report | EpochReport | Failed
encode = msgspec.json.Encoder().encode
decode_from_worker = msgspec.json.Decoder(Ready | Waiting | Report | EpochReport | Failed).decode
decode_to_worker = msgspec.json.Decoder(Work).decode
