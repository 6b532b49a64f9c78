"""What supervisor and worker processes say to each other: lines of JSON on the worker's standard input and output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

BUG = 70
"""Exit code of what is no FalkirkError (EX_SOFTWARE): the supervisor tries again, a few times."""


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds by which the times of steps and commits are told apart."""


class Work(msgspec.Struct, frozen=True, tag="work"):
    """To a spare: be worker `slot`."""

    slot: int
    first: bool = False
    """Nobody has looked yet whether the app may run on this host: it is to."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a spare: imported, planned and connected."""

    app: str = ""
    """Whose worker it can be; "" where there is nothing for workers to do."""


class Waiting(msgspec.Struct, frozen=True, tag="waiting"):
    """From a spare: no broker answers, and it tries on."""


REBUILDING = "rebuilding"
"""The phase of a task that runs, and reads again what it had read, for operators that are rebuilt."""


class TaskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task, as its worker sees it."""

    task: str
    phase: str
    step: int = -1
    """The last that is committed."""
    rows: int = 0
    """Committed since the last report."""
    dead: int = 0
    """Of those, what failed and went to the dead letters."""
    version: int = 0
    """The newest; 0: none, or no state."""
    behind: float = 0.0
    """Seconds by which that version is older than the last step."""
    ends: tuple[int, ...] = ()
    """Where the last committed step stopped reading, in the order of the task's inputs."""
    marks: tuple[int, ...] = ()
    """Where those inputs ended just then."""
    places: tuple[tuple[str, int], ...] = ()
    """The topics and partitions of those inputs, where topics may join them while the app runs."""
    done: int = 0
    total: int = 0
    """How far a recovery is, or a rebuild: records of a changelog, steps, bytes, or offsets."""
    skipped: int = 0
    """Of `rows`, what failed and was left out."""
    answers: str = ""
    """The last `falkirk checkpoint` for which a version is in the checkpoint store; without state: that was heard of."""
    copied: int = -1
    """The step of that version."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person has asked of an app."""

    by: str
    at: int
    """Milliseconds since 1970, UTC."""
    id: str = ""
    """Of what is answered once."""
    ends: dict[str, tuple[int, ...]] = {}
    """Of a drain: where the sources end, by topic and partition."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag="report"):
    """From a worker, once a second, and at once when all its tasks run again."""

    slot: int
    owner: str
    pid: int
    tasks: list[TaskReport]
    seconds: float = 1.0
    """Since the last report."""
    step_ms: float = 0.0
    """What a step took to run, on average since the last report."""
    commit_ms: float = 0.0
    """And to commit."""
    commits: int = 0
    """Since the last report."""
    step_times: tuple[int, ...] = ()
    """How many steps since then took up to each of `BOUNDS`, and longer than the last; nothing where none did."""
    commit_times: tuple[int, ...] = ()
    member: bool = False
    """Whether the group has given it tasks, or none."""
    paused: Asked | None = None
    """By whom; None while steps are opened, or one is still under way."""


def at_work(report: Report) -> bool:
    """Whether the group has given the worker tasks, or none, and all of them run.

    >>> rolling, running = (TaskReport("stats/0", phase) for phase in ("rolling", "running"))
    >>> [at_work(Report(0, "app.a", 1, [task], member=True)) for task in (rolling, running)]
    [False, True]
    """
    return report.member and all(task.phase in ("running", REBUILDING) for task in report.tasks)


def answers(report: Report) -> object:
    """What of it somebody waits for who has asked the app for something: when it changes, it is told at once."""
    return report.paused, [(t.task, t.answers) for t in report.tasks]


def merged(reports: Sequence[Report]) -> Report:
    """Reports of one worker in a row, as one."""
    last, commits = reports[-1], sum(r.commits for r in reports)
    rows: Counter[str] = Counter()
    dead: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for report in reports:
        rows.update({t.task: t.rows for t in report.tasks})
        dead.update({t.task: t.dead for t in report.tasks})
        skipped.update({t.task: t.skipped for t in report.tasks})
    return msgspec.structs.replace(
        last,
        tasks=[
            msgspec.structs.replace(t, rows=rows[t.task], dead=dead[t.task], skipped=skipped[t.task])
            for t in last.tasks
        ],
        seconds=sum(r.seconds for r in reports),
        step_ms=_mean([(r.step_ms, r.commits) for r in reports]),
        commit_ms=_mean([(r.commit_ms, r.commits) for r in reports]),
        commits=commits,
        step_times=added(*(r.step_times for r in reports)),
        commit_times=added(*(r.commit_times for r in reports)),
    )


def added(*counts: Sequence[int]) -> tuple[int, ...]:
    """Counts for `BOUNDS`, each the sum of its like; no counts are all zero.

    >>> added((1, 0), (), (2, 3))
    (3, 3)
    """
    return tuple(map(sum, zip(*filter(None, counts), strict=True)))


def _mean(pairs: list[tuple[float, int]]) -> float:
    weight = sum(w for _, w in pairs)
    return sum(x * w for x, w in pairs) / weight if weight else 0.0


class EpochReport(msgspec.Struct, frozen=True, omit_defaults=True, tag="epoch"):
    """From a driver: how an epoch is."""

    stage: str
    epoch: int
    state: Literal["opened", "running", "complete", "abandoned"]
    words: str
    """What is being done, or was."""
    done: int = 0
    of: int = 0
    """Spark's tasks of that; 0: not known."""
    ui: str = ""
    """Where Spark shows it; "": nowhere."""


class Announced(msgspec.Struct, frozen=True):
    """What the control topic tells of a worker."""

    host: str
    at: int
    """Milliseconds since 1970, UTC."""
    report: Report
    """Of the last seconds, as many as it says."""
    run: str = ""
    """Which run of workers on Spark it belongs to; "" for those that a supervisor of their host's has."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a worker that ends: what is wrong, in words for people."""

    what: str
    exit_code: int
    passing: bool = False
    """It mends itself: another worker may try."""
    where: str = ""
    hint: str = ""


class AnnouncedEpoch(msgspec.Struct, frozen=True):
    """What the control topic tells of an epoch that is under way."""

    host: str
    at: int
    """Milliseconds since 1970, UTC."""
    report: EpochReport


FromWorker = Ready | Waiting | Report | EpochReport | Failed
encode = msgspec.json.Encoder().encode
decode_from_worker = msgspec.json.Decoder(Ready | Waiting | Report | EpochReport | Failed).decode
decode_to_worker = msgspec.json.Decoder(Work).decode
