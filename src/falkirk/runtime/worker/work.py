"""A worker, under a supervisor or alone: its identity, its loop, and its reports."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from falkirk.cadence import Cadence
from falkirk.checkpoint.tasks import Owned, Phase, ends
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import OutgrownError
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.host.identity import hold, identity
from falkirk.runtime.host.logs import about
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import check_same_flow
from falkirk.runtime.layout.layout import read_layout
from falkirk.runtime.messages.protocol import LEFT, REBUILDING, STOPPED, WAITING, Report, TaskReport
from falkirk.runtime.messages.stats import Stats
from falkirk.runtime.observe.traces import traces_of
from falkirk.runtime.worker.queried import Queries
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.worker import Worker
from falkirk.state.rocks import RocksStore
from falkirk.state.store import EMPTY
from falkirk.wording import counted, listed

PERIOD = 1.0
"""Seconds between two reports."""

AGAIN = 60.0
"""Seconds until the log says again that rows count in no result."""

PATIENCE = 3.0
"""Seconds that a worker waits until a predecessor that is being killed has ended."""


def work(
    app: App, settings: Settings, topics: Topics, slot: int, stopping: Callable[[], bool], say: Callable[[Report], None]
) -> None:
    """Be worker `slot` until `stopping()`. Raises IdentityError if another process is, and FalkirkError."""
    about(app=app.name, worker=slot)
    who = identity(Path(settings.state_dir), app.name, slot)
    with (
        hold(who.folder / "lock", f"worker {slot} of app {app.name!r}", patience=PATIENCE),
        closing(traces_of(app.name, who.member(app.group), settings)) as traces,
        closing(Queries(settings, slot, who.member(app.group))) as queries,
    ):
        while True:
            worker = Worker(app, settings, who, topics, traces)
            reporter = Reporter(worker, slot, say, queries.url)
            with queries.of(worker):
                _run(worker, reporter, stopping)
            if worker.outgrown is None or stopping():
                return
            app = outgrown(app, settings, topics, worker.outgrown)
            # Its clients of Kafka have threads and connections until they are collected, which is rarely (`garbage`).
            del worker, reporter
            gc.collect()


def _run(worker: Worker, reporter: Reporter, stopping: Callable[[], bool]) -> None:
    def finished() -> bool:
        reporter.tick()
        return stopping()

    worker.run(finished)
    reporter.close()


def outgrown(app: App, settings: Settings, topics: Topics, why: OutgrownError) -> App:
    """The app with the topics that have joined its sources, here or in the layout that another worker has recorded. Raises
    OutgrownError if the app has continued with another flow."""
    with closing(ControlTopic(settings.cluster(), app.control)) as control:
        check_same_flow(app.recorded, read_layout(control))
    logger.warning("%s: the tasks are handed over after their last steps, and then taken over again", why.what)
    return prepare(app.plan, settings, topics, since=app.recorded)


class LeftOut:
    """Rows that count in no result. The log says at once that there are some, and then now and then how many more."""

    def __init__(self, why: str) -> None:
        self._why, self._rows, self._cadence = why, Counter[str](), Cadence(0, AGAIN)

    def add(self, rows: Mapping[str, int], now: float) -> None:
        """Rows by task."""
        self._rows.update({task: count for task, count in rows.items() if count})
        if self._rows and self._cadence.due(now):
            self.log()

    def log(self) -> None:
        """Log what has been added since the last time."""
        if self._rows:
            tasks = listed([f"{count:,} of task {task}" for task, count in self._rows.most_common()])
            logger.warning("%s %s: %s", counted(self._rows.total(), "row"), self._why, tasks)
            self._rows.clear()


class Reporter:
    """Reports a worker's state once a second, and at once when the last of its tasks has recovered."""

    def __init__(self, worker: Worker, slot: int, say: Callable[[Report], None], query: str = "") -> None:
        """`query`: where the worker answers for its state."""
        self._worker, self._slot, self._say, self._query = worker, slot, say, query
        self._last = time.monotonic()
        self._recovering = False
        self._skipped = LeftOut("failed, and on_error= skips such rows")
        self._late = LeftOut("came too late (late= of the source), and count in no result")

    def tick(self) -> None:
        """Report, if it is time."""
        was, self._recovering = self._recovering, bool(self._worker.recovering())
        if time.monotonic() - self._last >= PERIOD or (was and not self._recovering):
            self.report()

    def report(self) -> None:
        """Report now."""
        now, worker = time.monotonic(), self._worker
        seconds, self._last = now - self._last, now
        stats = worker.take_stats()
        self._skipped.add(stats.skipped, now)
        self._late.add(stats.late, now)
        tasks = [self._running(t, stats) for t in list(worker.tasks.values())]
        tasks += [self._taken_over(owned) for owned in worker.recovering()]
        tasks += [TaskReport(str(task), STOPPED) for task in worker.parts.waiting()]
        told = {task.task for task in tasks if task.step >= 0}
        self._say(
            Report(
                slot=self._slot,
                owner=worker.name,
                pid=os.getpid(),
                tasks=tasks,
                left=[_left(task, stats) for task in stats.rows if task not in told],
                seconds=round(seconds, 3),
                step_ms=stats.rounds.mean_ms(),
                commit_ms=stats.commits.mean_ms(),
                commits=stats.commits.count,
                step_times=stats.rounds.told(),
                commit_times=stats.commits.told(),
                member=worker.member,
                paused=worker.paused(),
                ahead_ms=worker.ahead_ms(),
                waits=worker.waits(),
                stopped=worker.stopped(),
                query=self._query,
                rates={stage: rates.told for stage, rates in worker.rates.stages.items()},
                session_ms=worker.settings.session_timeout_ms,
                checkpoints=worker.settings.checkpoints,
            )
        )

    def close(self) -> None:
        """Report what is left to say."""
        self.report()
        self._skipped.log()
        self._late.log()

    def _running(self, task: RunningTask, stats: Stats) -> TaskReport:
        owned, name = task.owned, str(task.owned.task.id)
        if (last := owned.last) is None:
            return TaskReport(name, owned.phase.value)
        version, behind, versioned = 0, 0.0, EMPTY
        if isinstance(owned.store, RocksStore) and (version := owned.store.versions()[-1]):
            versioned = owned.store.version_progress(version)
            behind = max(0, last.clock - versioned.clock) / 1000
        at, marks, upkeep = ends(last), self._worker.marks(task), self._worker.maintenance.upkeep_of(owned.task.id)
        inputs = [i for i in task.bound.inputs if i.partition in at]  # a joining topic is in no step yet
        rebuilds = task.moving and task.second_reading.progress[1] > 0
        taken = self._worker.rates.taken.get(owned.task.id)
        return TaskReport(
            task=name,
            phase=REBUILDING if rebuilds else owned.phase.value,
            step=last.step,
            rows=stats.rows[name],
            dead=stats.dead[name],
            version=version,
            behind=round(behind, 1),
            ends=tuple(at[i.partition] for i in inputs),
            marks=tuple(marks.get(i.place, at[i.partition]) for i in inputs),
            skipped=stats.skipped[name],
            late=stats.late[name],
            calls={name: counts for name, counts in task.circuit.calls().items() if any(counts)},
            hot=dict(task.circuit.hot_keys()),
            watermarks=dict(task.circuit.watermarks()),
            answers=upkeep.answered,
            versioned=(versioned.step, versioned.clock),
            copies=tuple((p.step, p.clock) for p in upkeep.copies),
            took=0.0 if taken is None else round(taken.took.total, 3),
            expected=0.0 if taken is None else round(taken.expected.total, 3),
            done=task.second_reading.progress[0] if rebuilds else 0,
            total=task.second_reading.progress[1] if rebuilds else 0,
            places=tuple(i.place for i in inputs)
            if any(i.input.among is not None or i.input.grows for i in inputs)
            else (),
        )

    def _taken_over(self, owned: Owned) -> TaskReport:
        phase = Phase.NAMING if owned.phase is Phase.IDLE else owned.phase
        name, copying = str(owned.task.id), self._worker.copying(owned.task.id)
        if (waits := self._worker.task_waits(owned.task.id)) is not None:
            return TaskReport(name, WAITING, waits=waits)
        if copying is not None:
            return TaskReport(name, "copying", done=copying[0], total=copying[1])
        return TaskReport(name, phase.value, done=owned.rolled[0], total=owned.rolled[1])


def _left(task: str, stats: Stats) -> TaskReport:
    """What a task has counted that has left since. Else its last second would be missing: that of each run, too."""
    return TaskReport(
        task, LEFT, rows=stats.rows[task], dead=stats.dead[task], skipped=stats.skipped[task], late=stats.late[task]
    )
