"""A worker: the loop that reads, runs steps and hands them to the committer.

    group ──▶ core ──▶ performer ──▶ tasks run, commit, leave        `falkirk.checkpoint.worker` decides
                                       │
                       read ──▶ close a step ──▶ staged

While step n commits in the committer's thread, this thread reads and runs step n+1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from falkirk.checkpoint.ids import Millis, Offset, TaskId, TopicPartition
from falkirk.checkpoint.ports import Why
from falkirk.checkpoint.tasks import ClosedStep, Owned, next_step
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import Commit
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.group.group import Membership
from falkirk.connectors.kafka.group.orphans import Orphans
from falkirk.connectors.kafka.transactions.log import KafkaLog
from falkirk.errors import ClockError, FalkirkError, OutgrownError
from falkirk.runtime.app.app import App
from falkirk.runtime.app.backfill_state import look
from falkirk.runtime.host.clock import timekeeper
from falkirk.runtime.host.identity import Identity
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import patterns_of
from falkirk.runtime.messages.protocol import Request
from falkirk.runtime.messages.requests import RequestListener
from falkirk.runtime.messages.stats import Stats
from falkirk.runtime.observe.traces import SILENT, Traces
from falkirk.runtime.worker.calling import CallingSteps
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.maintenance import Maintenance
from falkirk.runtime.worker.pacing import pacer_of, poll_wait
from falkirk.runtime.worker.performer import Performer
from falkirk.runtime.worker.publisher import Publisher
from falkirk.runtime.worker.reading.inputs import Inputs
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.running import RunningTasks
from falkirk.runtime.worker.sizes import check_sizes
from falkirk.runtime.worker.stores import TaskStores, memory_of
from falkirk.runtime.worker.takeovers import TakeOvers
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.topic_watch import topic_watches

UPKEEP_S = 0.05
"""Seconds between two looks at what is due for maintenance: each goes through all tasks."""


class Worker:
    """One process's share of an app."""

    def __init__(
        self, app: App, settings: Settings, identity: Identity, topics: Topics, traces: Traces = SILENT
    ) -> None:
        self.app, self.settings, self.topics, self.traces = app, settings, topics, traces
        self.owner = identity.owner(app.group)
        self.core = WorkerCore(traces.owned)
        self._queue = RunQueue()
        self.pacer = pacer_of(app)
        self._calling = CallingSteps()
        self.member = False
        """Whether the group has given it tasks, or none."""
        self._first_row = self._upkeep_at = 0.0
        self.stats = Stats()

        cluster = settings.cluster()
        self._membership = Membership(
            cluster,
            group=app.group,
            instance=f"{app.group}.{identity.name}",
            topic=app.steps,
            session_timeout_ms=settings.session_timeout_ms,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        self._orphans = Orphans(topics, self._membership, len(app.tasks))
        log = KafkaLog(
            cluster,
            self.owner,
            self._membership.metadata,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            batch_bytes=min(app.limits.values()),
        )
        self._delivery = log.delivery
        self._committer = Committer(log, identity.host, log.serve)
        memory = memory_of(app, settings)
        url = settings.checkpoint_url()
        self._stores = TaskStores(app, identity.folder, url, memory, lambda: look(app, cluster))
        self.maintenance = Maintenance(self._stores, topics, settings.keep_steps_ms / 1000, traces)
        self._files = Publisher(app, cluster)
        self._inputs = Inputs(app, cluster, topics, identity.folder, memory)
        patterns = [pattern for stage in app.plan.stages for pattern in patterns_of(stage).values()]
        self._vigils = topic_watches(app.recorded, topics, patterns, settings.prefix)
        self.outgrown: OutgrownError | None = None
        """Why it left before it was told to."""
        self._ear = RequestListener(cluster, app.control)
        self._time = timekeeper(cluster, app.control, self.owner, settings.clock_bound_ms)
        self._running = RunningTasks(
            app, self.owner, topics, self._time, self.core.pipeline, self._queue, self._inputs, self.maintenance
        )
        self._take_overs = TakeOvers(app, settings, self._committer, self._stores, traces)
        self._performer = Performer(self.core, self._committer, self._take_overs, self._running, self._decided, traces)

    @property
    def tasks(self) -> dict[int, RunningTask]:
        """The tasks that run, by their partitions of the steps topic."""
        return self._running.by_partition

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool]) -> None:
        """Work until `stopping()`, or until the app has outgrown this worker's layout; then leave cleanly. Raises
        FalkirkError on what no retry can fix."""
        while self._time.now() is None:  # a host whose clock is off takes no task from another
            if stopping():
                return
            time.sleep(0.002)
        self._membership.join()
        self._committer.begin()
        logger.debug("producer begun")
        try:
            try:
                while not stopping():
                    self.turn()
            except OutgrownError as error:
                self.outgrown = error
            except ClockError:
                self.leave()
                raise
            self.leave()
        except FalkirkError:
            # What ran before the error is good: let it commit, so that only the failed step is run again.
            self._performer.wait()
            raise
        finally:
            self._running.end()
            self._ear.close()
            self._time.close()
            self._inputs.close()

    def turn(self) -> None:
        """One round: the group, the recoveries, the input, the commit."""
        self._membership.poll()
        self._orphans.tick()
        self._perform()
        self._stage_answered()
        asked = self._ear.heard()
        wait = self._wait()
        if asked is not None and asked.pause is not None:
            # What was read waits; nothing more is read. The tasks stay ours, as the group is still polled.
            time.sleep(wait)
        else:
            drained = self._read(wait)
            # No step is opened before the requests are known: a pause may stand.
            if asked is not None and not self.core.pipeline.staged and not self.core.aborts.waiting():
                self._close_steps(drained)
        self._perform()
        if self._performer.idle:
            self._committer.idle()
        if (now := time.monotonic()) - self._upkeep_at >= UPKEEP_S:
            self._upkeep_at = now
            self._files.tick(self.tasks.values())
            self.maintenance.tick(list(self.tasks.values()), asked.checkpoint.id if asked and asked.checkpoint else "")
        for vigil in self._vigils:
            vigil.tick(0 in self.tasks, asked.layout if asked is not None else 0)

    def _perform(self) -> None:
        """Do what the core says. No task is taken over while the clock is off."""
        self._performer.perform(take_over=self._time.now() is not None)

    def _wait(self) -> float:
        return poll_wait(self.core.pipeline.staged, self._performer.committing())

    def leave(self) -> None:
        """Hand the tasks over: commit their last steps, make a version of each, write `released`. Copies of the versions get
        a bounded time to follow, and so do the last files of sinks."""
        self._membership.leave()
        self._files.close()
        self.maintenance.close()
        self._committer.close()

    def paused(self) -> Request | None:
        """Who has paused the app; None if nobody has, or a step is still in progress."""
        asked = self._ear.heard()
        quiet = self._performer.idle and not self.core.pipeline.staged and not self._calling.any()
        return asked.pause if asked is not None and quiet else None

    def ahead_ms(self) -> int | None:
        """By how much this host's clock is ahead of the broker's."""
        return self._time.ahead_ms()

    def waits(self) -> str:
        """What its transactions and take-overs wait for, and since when; "" if nothing is unusual."""
        parts = (self.core.aborts, self._delivery, self._files, self._take_overs)
        return "; ".join(filter(None, (part.waits() for part in parts)))

    def recovering(self) -> list[Owned]:
        """The tasks that are being taken over."""
        return [owned for p, owned in self.core.owned.items() if p not in self.tasks]

    def marks(self, task: RunningTask) -> dict[TopicPartition, Offset]:
        """Where the task's inputs end, as far as this worker knows."""
        return self._inputs.marks(task)

    def copying(self, task: TaskId) -> tuple[int, int] | None:
        """How much of the task's version is fetched, and its size; None if none is being fetched."""
        return self._stores.copying.get(task)

    def task_waits(self, task: TaskId) -> str | None:
        """What a task that is being taken over waits for, in words; None if it does not wait."""
        return self._stores.waits(task)

    def _read(self, timeout: float) -> bool:
        """Take messages in; returns whether there were no more."""
        if self.pacer.full(rows=self._queue.rows, size=self._queue.bytes):
            time.sleep(timeout)
            return False
        idle = not self._queue.rows
        tasks, drained = self._inputs.poll(timeout)
        self._queue.arrived(tasks)
        if idle and self._queue.rows:
            self._first_row = time.monotonic()
        return drained

    def _close_steps(self, drained: bool) -> None:
        """Close the step of every task that has something, if it is time."""
        if (now := self._time.now()) is None:
            return
        pending, due = self._queue.pending(), self._queue.due(now)
        rows = sum(t.rows for t in pending)
        close = self.pacer.closes(
            rows=rows,
            size=sum(t.bytes for t in pending),
            age=time.monotonic() - self._first_row,
            drained=drained,
            committing=self._performer.committing(),
        )
        began, share = time.monotonic(), self.pacer.share(rows)
        for task in dict.fromkeys([*due, *(t for t in pending if close and t.rows)]):
            self._run_step(task, now, began, share)
        if close:
            self.pacer.ran(time.monotonic() - began)
            self.stats.rounds.add(time.monotonic() - began)
            if any(t.rows for t in pending):  # more than one step may have
                self._first_row = time.monotonic()

    def _run_step(self, task: RunningTask, now: Millis, closed: float, share: float) -> None:
        began, tables, again = time.monotonic(), self._inputs.tables, self._inputs.again
        most = self.pacer.most if task.moving else max(1, int(share * task.rows))
        if task.bound.stage.calls_others and not task.moving:
            self._calling.begin(task, task.open(self.core.pipeline, now, tables, most))
            self._queue.changed(task)
            return
        self._stage(task, closed, began, partial(task.close, self.core.pipeline, self.owner, now, tables, again, most))

    def _stage(self, task: RunningTask, closed: float, began: float, close: Callable[[], ClosedStep]) -> None:
        try:
            step = close()
            check_sizes(step, self.app.limits)
        except Exception as error:
            self.traces.failed(task.owned, next_step(self.core.pipeline.last(task.owned)), began, error)
            raise
        self._queue.changed(task)
        self.core.pipeline.stage(step)
        self.traces.ran(step, self._first_row, closed, began)

    def _stage_answered(self) -> None:
        """Stage the steps that have the answers for which they waited."""
        for task, step, result, began in self._calling.ended():
            finish = partial(task.finish, self.core.pipeline, self.owner, self._inputs.tables, step, result)
            self._stage(task, began, began, finish)

    def _decided(self, commit: Commit, fates: Sequence[Fate], took: float) -> None:
        """The transaction of some steps has ended: learn the next one's size and time from it."""
        steps, rows = commit.steps, sum(step.rows for step in commit.steps)
        committed = [step for step, fate in zip(steps, fates, strict=True) if fate is Fate.COMMITTED]
        if committed:
            self.pacer.committed(took, rows)
        elif any(step.failed is not None and step.failed.why is Why.SLOW for step in steps):
            self.pacer.slow(rows)
        self.stats.commits.add(took)
        for step in committed:
            self.stats.committed(step.record, step.late)
        self.maintenance.committed(committed)

    # -- what the group says -------------------------------------------------------------------------------------------

    def _on_assigned(self, partitions: Sequence[int]) -> None:
        logger.debug("assigned %s", sorted(partitions))
        self.member = True
        # Partitions beyond its own tasks belong to a newer flow: not to this worker, which soon learns of it (`TopicWatch`).
        self.core.assign(self.app.tasks[p].task for p in partitions if p < len(self.app.tasks))

    def _on_revoked(self, partitions: Sequence[int]) -> None:
        """Commit what is staged, then release the tasks."""
        self.core.revoke(partitions)
        self._performer.depart()

    def _on_lost(self, partitions: Sequence[int]) -> None:
        """The session ended: others own the tasks now, or will."""
        logger.warning("lost tasks %s", sorted(partitions))
        self.core.revoke(partitions, clean=False)
        self._performer.depart()
