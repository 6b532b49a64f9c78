"""A commit domain: a worker's tasks of one stage. They step and commit together, at the pace of their regime.

    rows ──▶ run queue ──the pacer closes a step──▶ staged ──▶ committer: the domain's own transactional id

While step n commits in the committer's thread, the worker's thread reads and runs step n+1. No domain waits for another's
commit: a lazy part in steps of a second holds up no eager part in steps of 50 ms, and rows that one stage sends to the next
meet a producer that is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from falkirk.checkpoint.ids import Millis, domain_owner
from falkirk.checkpoint.takeover import abandon
from falkirk.checkpoint.tasks import ClosedStep, Phase, next_step
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import Commit
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.transactions.log import KafkaLog
from falkirk.runtime.app.app import App
from falkirk.runtime.host.clock import Timekeeper
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.stats import Stats
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.pacing import Pacer, pacer_of, poll_wait
from falkirk.runtime.worker.performer import Performer
from falkirk.runtime.worker.reading.inputs import Inputs
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.running import RunningTasks
from falkirk.runtime.worker.sizes import check_sizes
from falkirk.runtime.worker.step_threads import step_threads
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.takeovers import TakeOvers
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.stream.stages.plan import Stage


@dataclass(slots=True)
class Shared:
    """What the commit domains of one worker share."""

    app: App
    settings: Settings
    worker: str
    """Its name in the group. The domains' transactional ids begin with it."""
    host: str
    group_metadata: Callable[[], object]
    topics: Topics
    stores: TaskStores
    inputs: Inputs
    maintenance: Maintenance
    time: Timekeeper
    traces: Traces
    rates: RateBook
    tasks: dict[int, RunningTask] = field(default_factory=dict)
    """Those that run, by their partitions of the steps topic."""
    stats: Stats = field(default_factory=Stats)
    """Since the last report."""


class CommitDomain:
    """One stage's tasks on a worker, from the group's word to the commit of their steps."""

    def __init__(self, shared: Shared, stage: Stage) -> None:
        self._shared = shared
        self.core = WorkerCore(shared.traces.owned)
        self.pacer: Pacer = pacer_of(stage)
        self.queue = RunQueue()
        self._threads = step_threads(stage, shared.app.plan.stages)
        self._first_row: float | None = None
        """When the first of the rows arrived that wait for a step; None if none waits."""
        app, settings = shared.app, shared.settings
        self.log = KafkaLog(
            settings.cluster(),
            domain_owner(shared.worker, stage.id),
            shared.group_metadata,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            batch_bytes=min(app.limits.values()),
        )
        self.committer = Committer(self.log, shared.host, self.log.serve)
        self._running = RunningTasks(
            app=app,
            owner=self.log.owner,
            topics=shared.topics,
            time=shared.time,
            pipeline=self.core.pipeline,
            queue=self.queue,
            inputs=shared.inputs,
            maintenance=shared.maintenance,
            by_partition=shared.tasks,
        )
        self._take_overs = TakeOvers(app, settings, self.committer, shared.stores, shared.traces, shared.rates)
        self.performer = Performer(
            self.core, self.committer, self._take_overs, self._running, self._decided, shared.traces
        )  # fmt: skip

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether as much is pending as a step may have: then no more is read."""
        return self.pacer.full(rows=self.queue.rows, size=self.queue.bytes)

    def arrived(self, tasks: Iterable[RunningTask]) -> None:
        """Rows have arrived for these tasks."""
        self.queue.arrived(tasks)
        if self._first_row is None:
            self._first_row = time.monotonic()

    def poll_wait(self) -> float:
        """Seconds that a poll for input may wait."""
        return poll_wait(self.core.pipeline.staged, self.performer.committing())

    # -- steps ---------------------------------------------------------------------------------------------------------

    def close_steps(self, now: Millis, *, drained: bool) -> None:
        """Close the step of every task that has something, if it is time and none is staged."""
        if self.core.pipeline.staged or self.core.aborts.waiting():
            return
        pending, due = self.queue.pending(), self.queue.due(now)
        if not pending and not due:
            if not self.queue.rows:
                self._first_row = None
            return
        began = time.monotonic()
        first = self._first_row = began if self._first_row is None else self._first_row
        rows = sum(t.rows for t in pending)
        close = self.pacer.closes(
            rows=rows,
            size=sum(t.bytes for t in pending),
            age=began - first,
            drained=drained,
            committing=self.performer.committing(),
        )
        for task in dict.fromkeys([*due, *(t for t in pending if close and t.rows)]):
            self._run_step(task, now, first, began, rows)
        if close:
            if self._threads is None:
                self.pacer.ran(time.monotonic() - began)
                self._shared.stats.rounds.add(time.monotonic() - began)
            self._first_row = time.monotonic() if self.queue.rows else None  # more than one step may have

    def stage_ended(self) -> None:
        """Stage the steps that have run in threads of their own."""
        for task, step, result, began in self._threads.ended() if self._threads is not None else ():
            finish = partial(task.finish_step, self.core.pipeline, self.log.owner, step, result.result)
            self._stage(task, began, began, began, finish)
            self._shared.stats.rounds.add(time.monotonic() - began)

    def _run_step(self, task: RunningTask, now: Millis, first: float, closed: float, rows: int) -> None:
        """`first`: when the first row of the steps arrived; `closed`: when the pacer closed them; `rows`: of all of them."""
        inputs, pipeline, began = self._shared.inputs, self.core.pipeline, time.monotonic()
        most = self.pacer.most if task.moving else self.pacer.part(task.rows, rows)
        if self._threads is not None and not task.moving:
            self._threads.begin(task, task.open_step(pipeline, now, inputs.tables, most, in_thread=True))
            self.queue.changed(task)
            return
        close = partial(task.close_step, pipeline, self.log.owner, now, inputs.tables, inputs.again, most)
        self._stage(task, first, closed, began, close)

    def _stage(
        self, task: RunningTask, first: float, closed: float, began: float, close: Callable[[], ClosedStep]
    ) -> None:
        traces = self._shared.traces
        try:
            step = close()
            check_sizes(step, self._shared.app.limits)
        except Exception as error:
            traces.failed(task.owned, next_step(self.core.pipeline.last(task.owned)), began, error)
            raise
        self.queue.changed(task)
        self.core.pipeline.stage(step)
        traces.ran(step, first, closed, began)

    def _decided(self, commit: Commit, fates: Sequence[Fate], took: float) -> None:
        """The transaction of some steps has ended: learn the next one's size and time from it."""
        steps, stats = commit.steps, self._shared.stats
        self.pacer.decided(steps, fates, took)
        committed = [step for step, fate in zip(steps, fates, strict=True) if fate is Fate.COMMITTED]
        stats.commits.add(took)
        for step in committed:
            stats.committed(step.record, step.late)
        self._shared.maintenance.committed(committed)

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let go of every task, as if this process had died: whoever takes them over decides what is under way."""
        for owned in self.core.owned.values():
            if owned.phase is not Phase.RUNNING:
                owned.revoked = True  # its recovery ends where it can
            self._running.drop(owned)

    def over(self) -> bool:
        """Whether nothing is under way any more, after `end`. Then its stores are closed, and it is of no more use."""
        if not self.performer.over:
            return False
        self.close()
        self.log.close()
        return True

    def close(self) -> None:
        """Wait for what is under way, and close all stores: another may follow in this process. Each task was let go of or
        revoked before, and its recovery may have ended since."""
        self.committer.close()
        for owned in self.core.mine():
            self._running.drop(owned)
            self._shared.stores.discard(owned.task.id)
            abandon(owned)
        if self._threads is not None:
            self._threads.close()

    # -- how it is -----------------------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """No step is open, staged or being committed."""
        return (
            self.performer.idle and not self.core.pipeline.staged and (self._threads is None or not self._threads.any())
        )

    def waits(self) -> str:
        """What its transactions and take-overs wait for, and since when; "" if nothing is unusual."""
        parts = (self.core.aborts, self.core.unnamed, self.log.delivery, self._take_overs)
        return "; ".join(filter(None, (part.waits() for part in parts)))
