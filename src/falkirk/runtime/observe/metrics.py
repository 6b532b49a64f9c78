"""The state and work of this host's workers since the start, for Prometheus; and whether they are healthy.

    news ──▶ take ──▶ totals      counters: reports hold what came since the last
             board ──▶ gauges     the present state

Only what workers report anyway is measured: once a second, from a few numbers that each step leaves.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from falkirk.connectors.kafka.reading.lag import lag
from falkirk.runtime.messages.events import Ended, Line, Started, WorkerEvent
from falkirk.runtime.messages.protocol import BOUNDS, EpochReport, Report, TaskReport, added
from falkirk.runtime.observe.board import RUNNING, SETTLED, Board, WorkerState
from falkirk.state.store import Progress, low_watermark
from falkirk.stream.dataflow.task_counts import CallCounts, summed
from falkirk.wording import counted

SILENT = 300.0
"""Seconds until a loop that has not turned counts as dead: as long as a group member may go without a poll, so a process that
is silent for longer has lost its tasks. An outage of the brokers can block a loop, and passes by itself."""

TASK = ["stage", "task"]
CALLS = [*TASK, "operator"]
SOURCES = [*TASK, "source"]


class Metrics(Collector):
    """A watch feeds it with the same news as the board. Any thread may ask."""

    def __init__(self, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self._board, self._clock = board, clock
        self._changing = threading.Lock()
        self._turned = clock()
        self._heard: dict[int, float] = {}
        self._rows: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._calls: dict[str, dict[str, CallCounts]] = {}
        """By task, then by operator."""
        self._restarts: Counter[int] = Counter()
        self._epochs: Counter[tuple[str, str]] = Counter()
        self._commits: Counter[int] = Counter()
        """Of the present worker processes."""
        self._steps: dict[int, Times] = {}
        self._transactions: dict[int, Times] = {}

    def turned(self) -> None:
        """The supervisor's loop has turned once more."""
        self._turned = self._clock()

    def heard(self, news: WorkerEvent) -> None:
        """A worker lives, or has ended. Separate from `take`, which those who show the news may block."""
        match news:
            case Report(slot):
                self._heard[slot] = self._clock()
            case Ended(slot) if slot is not None:
                self._heard.pop(slot, None)
            case _:
                pass

    def take(self, news: WorkerEvent) -> str | None:
        """Take note, and let the board do so; returns the event in words, as `Board.take` does."""
        with self._changing:
            match news:
                case Report():
                    self._reported(news)
                case Started(slot):
                    self._commits.pop(slot, None)
                case Ended(slot) if slot is not None:
                    self._restarts[slot] += 1
                case EpochReport(stage, state=state) if state in ("complete", "abandoned"):
                    self._epochs[stage, state] += 1
                case _:
                    pass
            return self._board.take(news) if not isinstance(news, Line) else None

    def _reported(self, report: Report) -> None:
        self._commits[report.slot] += report.commits
        for task in report.counted:
            self._rows[task.task] += task.rows
            self._dead[task.task] += task.dead
            self._skipped[task.task] += task.skipped
            self._late[task.task] += task.late
            self._calls[task.task] = summed(self._calls.get(task.task, {}), task.calls)
        self._steps.setdefault(report.slot, Times()).add(report.step_times, report.step_ms)
        self._transactions.setdefault(report.slot, Times()).add(report.commit_times, report.commit_ms)

    # -- whether all is well -------------------------------------------------------------------------------------------

    def live(self) -> str:
        """Why the process should be restarted; "" if it is fine."""
        now = self._clock()
        if (still := now - self._turned) > SILENT:
            return f"the loop has not turned for {still:.0f} s"
        silent = {slot: now - at for slot, at in list(self._heard.items()) if now - at > SILENT}
        return "\n".join(f"worker {slot} has said nothing for {seconds:.0f} s" for slot, seconds in silent.items())

    def ready(self) -> str:
        """Why the workers here are not ready; "" if each has its tasks, and has committed or nothing to read."""
        with self._changing:
            workers = self._board.workers
            if not self._board.app.tasks:
                return ""
            missing = self._board.size - len(workers)
            starting = [f"{missing} of {counted(self._board.size, 'worker')} starting"] if missing else []
            return "\n".join([*starting, *filter(None, map(self._missing, workers.values()))])

    def _missing(self, worker: WorkerState) -> str:
        if not worker.reports or not worker.reports[-1].member:
            return f"worker {worker.slot} is starting"
        if going := [f"{t.task} ({t.phase})" for t in worker.tasks if t.phase not in SETTLED]:
            return f"worker {worker.slot} takes over {', '.join(going)}"
        paused = worker.reports[-1].paused is not None
        if not paused and not self._commits[worker.slot] and any(self._lag(task) for task in worker.tasks):
            return f"worker {worker.slot} has committed nothing yet, and has something to read"
        return ""

    def _lag(self, task: TaskReport) -> int:
        return sum(lag(left, self._board.counted) for left in self._board.left_of(task))

    # -- what is measured ----------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Metric]:
        """All metrics, as of now."""
        with self._changing:
            return [*self._of_app(), *self._of_tasks(), *self._of_workers(), *self._of_epochs()]

    def _of_app(self) -> Iterable[Metric]:
        app = self._board.app
        yield InfoMetricFamily(
            "falkirk",
            "Always 1; the labels app and version say what runs.",
            {"app": app.name, "version": version("falkirk")},
        )
        everywhere = GaugeMetricFamily("falkirk_tasks", "Tasks of the app, on all hosts.", labels=["stage"])
        for stage, count in Counter(b.stage.id for b in app.tasks).items():
            everywhere.add_metric([stage], count)
        yield everywhere
        stopped = GaugeMetricFamily(
            "falkirk_part_stopped",
            "1: the part has stopped by itself (on_failure='part'); 0: it runs.",
            labels=["part"],
        )
        for part in app.plan.stages:
            stopped.add_metric([part.id], int(part.id in self._board.stopped()))
        yield stopped

    def _of_tasks(self) -> Iterable[Metric]:
        read = CounterMetricFamily("falkirk_records_read", "Input records of committed steps.", labels=TASK)
        dead = CounterMetricFamily(
            "falkirk_dead_letters", "Records or rows that failed and went to dead letters.", labels=TASK
        )
        skipped = CounterMetricFamily(
            "falkirk_skipped", "Records or rows that failed and were left out (fk.Skip).", labels=TASK
        )
        late = CounterMetricFamily(
            "falkirk_late_rows", "Rows that came later than their source's late= allows.", labels=TASK
        )
        counted = (read, self._rows), (dead, self._dead), (skipped, self._skipped), (late, self._late)
        for total, by_task in counted:
            for name, value in by_task.items():
                total.add_metric(_task(name), value)
        running = GaugeMetricFamily(
            "falkirk_task_running", "1: the task runs here; 0: it is being taken over, or has stopped.", labels=TASK
        )
        behind = GaugeMetricFamily(
            "falkirk_lag_records",
            "Records that the task has not processed yet; an upper bound if there are more than a few.",
            labels=TASK,
        )
        step = GaugeMetricFamily("falkirk_step", "Number of the last committed step.", labels=TASK)
        versions = GaugeMetricFamily(
            "falkirk_version", "Number of the newest version of the task's state.", labels=TASK
        )
        age = GaugeMetricFamily(
            "falkirk_version_behind_seconds", "How much older that version is than the last step.", labels=TASK
        )
        low = GaugeMetricFamily(
            "falkirk_low_watermark_behind_seconds",
            "How much older than the last step the task's low-watermark is: what is above it is kept.",
            labels=TASK,
        )
        took = GaugeMetricFamily(
            "falkirk_takeover_seconds", "How long the task's last take-over here took.", labels=TASK
        )
        expected = GaugeMetricFamily(
            "falkirk_takeover_predicted_seconds", "How long that take-over was predicted to take.", labels=TASK
        )
        watermark = GaugeMetricFamily(
            "falkirk_watermark_seconds",
            "Watermark of a source with late=, in event time since 1970. Absent while no time is complete.",
            labels=SOURCES,
        )
        for task in self._tasks():
            labels, runs = _task(task.task), task.phase == RUNNING
            running.add_metric(labels, int(runs))
            if runs:
                behind.add_metric(labels, self._lag(task))
                step.add_metric(labels, task.step)
                for source, mark in task.watermarks.items():
                    if mark.at is not None:
                        watermark.add_metric([*labels, source], mark.at / 1000)
            if runs and task.took:
                took.add_metric(labels, task.took)
                expected.add_metric(labels, task.expected)
            if runs and task.version:
                versions.add_metric(labels, task.version)
                age.add_metric(labels, task.behind)
            oldest = low_watermark(Progress(number, 0, 0, clock) for number, clock in task.copies)
            if runs and oldest.step >= 0:
                low.add_metric(labels, task.behind + (task.versioned[1] - oldest.clock) / 1000)
        return [
            read, dead, skipped, late, running, behind, step, versions, age, low, took, expected, watermark,
            *self._of_calls(),
        ]  # fmt: skip

    def _tasks(self) -> Iterable[TaskReport]:
        """Each once, as the worker reports it that was heard last: one that was stopped may have lost it to another one."""
        workers = sorted(self._board.workers.values(), key=lambda worker: self._heard.get(worker.slot, 0.0))
        return {task.task: task for worker in workers for task in worker.tasks}.values()

    def _of_calls(self) -> Iterable[Metric]:
        calls = SummaryMetricFamily(
            "falkirk_call_seconds", "Summary: time of the calls of enrich, each attempt by itself.", labels=CALLS
        )
        retries = CounterMetricFamily(
            "falkirk_call_retries", "Calls of enrich that were made because the one before failed.", labels=CALLS
        )
        failures = CounterMetricFamily(
            "falkirk_call_failures", "Rows of enrich without an answer after the last attempt.", labels=CALLS
        )
        for task, by_operator in self._calls.items():
            for operator, counts in by_operator.items():
                labelled = [*_task(task), operator]
                calls.add_metric(labelled, counts.calls, counts.seconds)
                retries.add_metric(labelled, counts.retries)
                failures.add_metric(labelled, counts.failures)
        return [calls, retries, failures]

    def _of_workers(self) -> Iterable[Metric]:
        phases = Counter(worker.phase for worker in self._board.workers.values())
        phases["starting"] += max(0, self._board.size - len(self._board.workers))
        workers = GaugeMetricFamily(
            "falkirk_workers",
            "Workers of this run that are starting, waiting (for tasks), recovering, running, paused.",
            labels=["phase"],
        )
        for phase in ("starting", "waiting", "recovering", "running", "paused"):
            workers.add_metric([phase], phases[phase])
        restarts = CounterMetricFamily(
            "falkirk_worker_restarts", "Workers that ended and were replaced.", labels=["worker"]
        )
        for slot, count in self._restarts.items():
            restarts.add_metric([str(slot)], count)
        board = self._board
        recoveries = SummaryMetricFamily(
            "falkirk_recovery_seconds",
            "Summary: time from a worker's end until its tasks run again.",
            board.recoveries,
            board.recovery_seconds,
        )
        steps = HistogramMetricFamily(
            "falkirk_step_seconds", "Histogram: time to run a step of all of a worker's tasks.", labels=["worker"]
        )
        commits = HistogramMetricFamily(
            "falkirk_commit_seconds", "Histogram: time to commit a step of all of a worker's tasks.", labels=["worker"]
        )
        for family, times in ((steps, self._steps), (commits, self._transactions)):
            for slot, of_worker in times.items():
                family.add_metric([str(slot)], of_worker.buckets(), of_worker.seconds)
        ahead = GaugeMetricFamily(
            "falkirk_clock_ahead_seconds",
            "This host's clock minus the broker's, at least; above --clock-bound the worker ends.",
            labels=["worker"],
        )
        for slot, worker in board.workers.items():
            if worker.reports and (millis := worker.reports[-1].ahead_ms) is not None:
                ahead.add_metric([str(slot)], millis / 1000)
        return [workers, restarts, recoveries, steps, commits, ahead]

    def _of_epochs(self) -> Iterable[Metric]:
        epoch = GaugeMetricFamily(
            "falkirk_epoch", "The epoch of a batch part that the driver here reported last.", labels=["stage"]
        )
        for said in self._board.epochs.values():
            epoch.add_metric([said.stage], said.epoch)
        ended = CounterMetricFamily(
            "falkirk_epochs",
            "Epochs that the driver here has ended, by state: complete, abandoned.",
            labels=["stage", "state"],
        )
        for (stage, state), count in self._epochs.items():
            ended.add_metric([stage, state], count)
        return [epoch, ended]


class Times:
    """How long many events took."""

    def __init__(self) -> None:
        self._counts: tuple[int, ...] = ()
        self.seconds = 0.0

    def add(self, counts: Sequence[int], mean_ms: float) -> None:
        """Add some, counted by the first of `BOUNDS` that each does not exceed."""
        self._counts = added(self._counts, counts)
        self.seconds += sum(counts) * mean_ms / 1000

    def buckets(self) -> list[tuple[str, float]]:
        """In Prometheus's form: each bucket includes all below it."""
        found, total = [], 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self._counts or [0] * (len(BOUNDS) + 1), strict=True):
            total += count
            found.append((bound, float(total)))
        return found


def _task(task: str) -> list[str]:
    return [task.rpartition("/")[0], task]
