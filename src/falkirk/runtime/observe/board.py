"""The state of this host's workers, from their reports: no I/O, and no clock but the given one.

news ──▶ take ──▶ workers, stages, recoveries        and, sometimes, an event in words
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.tasks import Phase
from falkirk.connectors.kafka.reading.lag import Remaining, lag
from falkirk.runtime.messages.events import Ended, Started
from falkirk.runtime.messages.protocol import STOPPED, EpochReport, Report, Request, TaskReport, answers, lost, merged
from falkirk.wording import counted

if TYPE_CHECKING:  # `falkirk status` shows a board and has no app: it starts in half the time without Polars
    from falkirk.runtime.app.app import App, BoundTask

WINDOW = 10.0
"""Seconds over which rates are averaged: longer than the time between two lines of the log, so that each burst is in one."""

RUNNING = Phase.RUNNING.value
SETTLED = (RUNNING, STOPPED)
"""Phases of tasks that wait for nothing but their input, or a person."""


@dataclass(slots=True)
class WorkerState:
    """One slot."""

    slot: int
    pid: int
    down: float | None = None
    """When its predecessor ended; set until it has recovered."""
    reports: deque[Report] = field(default_factory=deque)
    settled: int | None = None
    """Its number of tasks when all last ran."""
    lost: Report | None = None
    """The last report of its predecessor, which has died, corrected; until it is announced."""

    @property
    def tasks(self) -> list[TaskReport]:
        return self.reports[-1].tasks if self.reports else []

    @property
    def phase(self) -> str:
        if not self.reports:
            return "starting"
        if any(t.phase not in SETTLED for t in self.tasks):
            return "recovering"
        if self.reports[-1].paused is not None:
            return "paused"
        return "running" if self.tasks else "waiting"

    def lately(self) -> Report | None:
        """The reports of the window, combined."""
        return merged(self.reports) if self.reports else None


@dataclass(frozen=True, slots=True)
class StageState:
    """The part of one stage whose tasks are here."""

    id: str
    regime: str
    running: int
    tasks: int
    rows_per_s: float
    lag: int
    step: int
    versions: tuple[int, int] | None
    """The lowest and the highest of the tasks' newest versions."""
    behind: float
    """Seconds from the oldest of them to its task's last step."""
    dead: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One task that is being taken over, or whose operators are being rebuilt."""

    task: str
    phase: str
    done: int
    total: int
    seconds_left: float | None


class Board:
    """The state of this host's workers."""

    def __init__(self, app: App, workers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.app, self.size = app, workers
        self._clock = clock
        self._began = clock()
        self.workers: dict[int, WorkerState] = {}
        self.recoveries = 0
        self.recovery_seconds = 0.0
        """Of all of them."""
        self.counted: Mapping[Remaining, int] = {}
        self._bound: dict[str, BoundTask] = {str(b.task.id): b for b in app.tasks}
        self._dead: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self.read = 0
        """Records that the tasks here have read from sources, since the start."""
        self._reading = {stage.id for stage in app.plan.stages if any(i.kind == "source" for i in stage.inputs)}
        self._rolling: dict[str, tuple[str, float, int]] = {}
        self.epochs: dict[str, EpochReport] = {}
        """The last report of each batch part's driver, if it is on this host."""

    def take(self, news: Report | EpochReport | Started | Ended) -> str | None:
        """Take note; returns the event in words, if people should know it."""
        match news:
            case Started(slot, pid):
                before = self.workers.get(slot)
                self.workers[slot] = new = WorkerState(slot, pid)
                if before is not None:
                    new.down, new.settled, new.lost = before.down, before.settled, before.lost
                return None
            case Ended():
                return self._ended(news)
            case Report():
                return self._reported(news)
            case EpochReport():
                self.epochs[news.stage] = news
                return (
                    None
                    if news.state == "running"
                    else f"epoch {news.epoch} of {news.stage} is {news.state}: {news.words}"
                )

    def _ended(self, news: Ended) -> str:
        worker = None if news.slot is None else self.workers.get(news.slot)
        if worker is None or worker.pid != news.pid:
            return f"the spare (pid {news.pid}) {news.how}; another is started"
        worker.down = worker.down if worker.down is not None else self._clock() - news.ago
        worker.settled = len(worker.tasks)
        worker.lost = lost(worker.reports[-1]) if worker.reports else None
        worker.reports.clear()
        return f"worker {news.slot} (pid {news.pid}) {news.how}; {news.then}"

    def _reported(self, report: Report) -> str | None:
        worker = self.workers.get(report.slot)
        if worker is None or worker.pid != report.pid:
            return None  # the last report of one that has been replaced
        worker.reports.append(report)
        while len(worker.reports) > 1 and sum(r.seconds for r in worker.reports) > WINDOW:
            worker.reports.popleft()
        for task in report.counted:
            stage = self._bound[task.task].stage.id
            self._dead[stage] += task.dead
            self._skipped[stage] += task.skipped
            self.read += task.rows if stage in self._reading else 0
        for task in report.tasks:
            self._roll(task)
        return self._event(worker)

    def _roll(self, task: TaskReport) -> None:
        """Remember when, and from where, the present part of a recovery began."""
        known = self._rolling.get(task.task)
        if task.phase in SETTLED:
            self._rolling.pop(task.task, None)
        elif known is None or known[0] != task.phase:
            self._rolling[task.task] = (task.phase, self._clock(), task.done)

    def _event(self, worker: WorkerState) -> str | None:
        if worker.phase not in ("running", "paused"):
            return None
        was, worker.settled = worker.settled, len(worker.tasks)
        count = counted(len(worker.tasks), "task")
        if worker.down is not None:
            seconds, worker.down = self._clock() - worker.down, None
            self.recoveries += 1
            self.recovery_seconds += seconds
            return f"worker {worker.slot} (pid {worker.pid}) has recovered: {count} in {seconds:.2f} s"
        if was != worker.settled:
            return f"worker {worker.slot} (pid {worker.pid}) now runs {count}{f' (was {was})' if was else ''}"
        return None

    # -- what is shown ---------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock() - self._began

    def lately(self) -> list[Report]:
        """The last seconds of every worker that has reported."""
        return [report for w in self.workers.values() if (report := w.lately()) is not None]

    def to_announce(self) -> list[Report]:
        """`lately`; and, once, that what a worker said last is over because it has died. Others would take it for the
        present until its successor reports."""
        reports = self.lately()
        for worker in self.workers.values():
            gone, worker.lost = worker.lost, None
            if gone is not None and not worker.reports:
                reports.append(gone)
        return reports

    def answers(self) -> object:
        """What a person who has asked the app for something may wait for."""
        return [answers(w.reports[-1]) for w in self.workers.values() if w.reports]

    def waits(self) -> list[str]:
        """What the transactions of the workers here wait for."""
        latest = [(w.slot, w.reports[-1].waits) for w in self.workers.values() if w.reports]
        return [f"worker {slot} waits: {waits}" for slot, waits in sorted(latest) if waits]

    def paused(self) -> Request | None:
        """Who has paused the app, by the reports of its workers here."""
        return next((asked for w in self.workers.values() if w.reports and (asked := w.reports[-1].paused)), None)

    def stopped(self) -> list[str]:
        """The parts that have stopped by themselves, by the reports of the workers here."""
        return sorted({part for w in self.workers.values() if w.reports for part in w.reports[-1].stopped})

    def left(self) -> list[Remaining]:
        """What is left to read for the tasks here."""
        return [left for worker in list(self.workers.values()) for task in worker.tasks for left in self.left_of(task)]

    def left_of(self, task: TaskReport) -> list[Remaining]:
        """What is left to read for one task."""
        places = [TopicPartition(*p) for p in task.places] or [i.place for i in self._bound[task.task].inputs]
        return [
            Remaining(place, Offset(end), Offset(mark))
            for place, end, mark in zip(places, task.ends, task.marks, strict=False)
        ]

    def lag(self) -> int:
        """Of all tasks here."""
        return sum(lag(left, self.counted) for left in self.left())

    def stages(self) -> list[StageState]:
        """The stages, upstream first."""
        seen: dict[str, list[tuple[TaskReport, float]]] = {stage.id: [] for stage in self.app.plan.stages}
        for report in self.lately():
            for task in report.tasks:
                seen[self._bound[task.task].stage.id].append((task, task.rows / report.seconds))
        found = []
        for stage in self.app.plan.stages:
            tasks = [t for t, _ in seen[stage.id]]
            running = [t for t in tasks if t.phase == RUNNING]
            versions = [t.version for t in running if t.version]
            found.append(
                StageState(
                    id=stage.id,
                    regime=stage.regime.kind,
                    running=len(running),
                    tasks=sum(b.stage.id == stage.id for b in self.app.tasks),
                    rows_per_s=sum(rate for _, rate in seen[stage.id]),
                    lag=sum(lag(left, self.counted) for t in tasks for left in self.left_of(t)),
                    step=max((t.step for t in running), default=-1),
                    versions=(min(versions), max(versions)) if versions else None,
                    behind=max((t.behind for t in running if t.version), default=0.0),
                    dead=self._dead[stage.id],
                    skipped=self._skipped[stage.id],
                )
            )
        return found

    def failed(self) -> tuple[int, int]:
        """Records and rows that failed here since the start: dead letters, and those that were skipped."""
        return self._dead.total(), self._skipped.total()

    def epochs_left(self) -> list[str]:
        """What a run until the end waits for besides records: its batch parts, and what each does now."""
        left = []
        for batch in self.app.batches:
            report = self.epochs.get(batch.stage.id)
            if report is None:
                left.append(f"the first epoch of {batch.stage.id} (its driver is starting)")
            elif report.state != "complete":
                left.append(report.shown)
        return left

    def recovering(self) -> list[Recovery]:
        """The tasks that are being taken over or rebuilt, and how long that will take."""
        found = []
        for worker in self.workers.values():
            for t in worker.tasks:
                if t.phase in SETTLED or (known := self._rolling.get(t.task)) is None:
                    continue  # it runs: here, or by now in another worker
                _, since, start = known
                gone, spent = t.done - start, self._clock() - since
                left = spent * (t.total - t.done) / gone if gone > 0 and spent > 0 else None
                found.append(Recovery(t.task, t.phase, t.done, t.total, left))
        return found
