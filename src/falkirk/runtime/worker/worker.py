"""A worker: the loop that polls the group and reads, for the domains that step and commit.

group ──assigned, revoked, lost──▶ ┌───────────────────┐
inputs ─────────rows─────────────▶ │ a domain per stage │ ──▶ steps, transactions     `falkirk.runtime.worker.domain`
                                   └───────────────────┘
"""

from __future__ import annotations

import sys
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from falkirk.checkpoint.ids import Offset, TaskId, TopicPartition
from falkirk.checkpoint.tasks import Owned, Task
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.group.group import Membership
from falkirk.connectors.kafka.group.orphans import Orphans
from falkirk.errors import ClockError, FalkirkError, OutgrownError
from falkirk.runtime.app.app import App
from falkirk.runtime.app.backfill_state import look
from falkirk.runtime.host.clock import timekeeper
from falkirk.runtime.host.identity import Identity
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import growing_of, patterns_of
from falkirk.runtime.messages.parts import stop_part
from falkirk.runtime.messages.protocol import Request
from falkirk.runtime.messages.requests import RequestListener
from falkirk.runtime.messages.stats import Stats
from falkirk.runtime.observe.traces import SILENT, Traces
from falkirk.runtime.worker.domain import CommitDomain, Shared
from falkirk.runtime.worker.outlets import Publisher
from falkirk.runtime.worker.pacing import IDLE_WAIT
from falkirk.runtime.worker.parts import Parts
from falkirk.runtime.worker.reading.inputs import open_inputs
from falkirk.runtime.worker.stores import TaskStores, memory_of
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.topic_watch import topic_watches
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.stream.dataflow.calls import wait_for_ends

SWITCH = 0.0005
"""Seconds that a thread in Python holds the interpreter's lock while the worker's loop or a committer waits for it. These
take it many times for one commit, and wait each time. With Python's own 5 ms, a quick stage's latency was six times as
long beside a slow stage's step. The thread of a recovery runs steps, too."""
UPKEEP_S = 0.05
"""Seconds between two looks at what is due for maintenance: each goes through all tasks."""


class Worker:
    """One process's share of an app."""

    def __init__(
        self, app: App, settings: Settings, identity: Identity, topics: Topics, traces: Traces = SILENT
    ) -> None:
        self.app, self.settings, self.topics, self.traces = app, settings, topics, traces
        self.name = identity.member(app.group)
        self.member = False
        """Whether the group has given it tasks, or none."""
        self._upkeep_at = 0.0
        sys.setswitchinterval(SWITCH)
        cluster = settings.cluster()
        self._membership = Membership(
            cluster,
            group=app.group,
            instance=self.name,
            topic=app.steps,
            session_timeout_ms=settings.session_timeout_ms,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        self._orphans = Orphans(topics, self._membership, len(app.tasks))
        memory = memory_of(app, settings)
        url = settings.checkpoint_url()
        self._stores = TaskStores(app, identity.folder, url, memory, lambda: look(app, cluster))
        self.rates = RateBook(identity.folder)
        self.maintenance = Maintenance(self._stores, topics, settings.keep_steps_ms / 1000, traces, self.rates)
        self._publisher = Publisher(app, cluster, settings.databases)
        self._inputs = open_inputs(app, settings, topics, identity.folder, memory)
        patterns = [pattern for stage in app.plan.stages for pattern in patterns_of(stage).values()]
        growing = growing_of(app.plan)
        self._topic_watches = topic_watches(app.recorded, topics, patterns, settings.prefix, growing)
        self.outgrown: OutgrownError | None = None
        """Why it left before it was told to."""
        self._requests = RequestListener(cluster, app.control)
        self._time = timekeeper(cluster, app.control, self.name, settings.clock_bound_ms)
        self._shared = Shared(
            app=app,
            settings=settings,
            worker=self.name,
            host=identity.host,
            group_metadata=self._membership.metadata,
            topics=topics,
            stores=self._stores,
            inputs=self._inputs,
            maintenance=self.maintenance,
            time=self._time,
            traces=traces,
            rates=self.rates,
        )
        stages = {stage.id: stage for stage in app.plan.stages}
        self.parts = Parts(
            lambda id_: CommitDomain(self._shared, stages[id_]),
            partial(stop_part, cluster, app.control),
            self.name,
            app.plan,
        )
        self.domains = self.parts.running

    @property
    def tasks(self) -> dict[int, RunningTask]:
        """The tasks that run, by their partitions of the steps topic."""
        return self._shared.tasks

    @property
    def assigned(self) -> Mapping[int, Task]:
        """The tasks that the group has given it, whether they run yet or not, likewise."""
        return ChainMap(*(domain.core.assigned for domain in self.domains.values()))

    @property
    def stats(self) -> Stats:
        """Its pace since the last report."""
        return self._shared.stats

    def take_stats(self) -> Stats:
        """The same; and a new count begins."""
        stats, self._shared.stats = self._shared.stats, Stats()
        return stats

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool]) -> None:
        """Work until `stopping()`, or until the app has outgrown this worker's layout; then leave cleanly. Raises
        FalkirkError on what no retry can fix."""
        while self._time.now() is None:  # a host whose clock is off takes no task from another
            if stopping():
                return
            time.sleep(0.002)
        self.join()
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
            for domain in self.domains.values():
                with suppress(FalkirkError):
                    domain.performer.wait()
            raise
        finally:
            self.parts.end()
            for task in self.tasks.values():
                task.end()
            wait_for_ends()  # a moment, until clients are closed
            self._requests.close()
            self._time.close()
            self._inputs.close()
            self._stores.close()

    def join(self) -> None:
        """Ask the group for tasks, and make the producers."""
        self._membership.join()
        for begun in [domain.committer.begin() for domain in self.domains.values()]:
            begun.result()
        logger.debug("producers begun")

    def turn(self) -> None:
        """One round: the group, the recoveries, the input, the commit."""
        self._membership.poll()
        self._orphans.tick()
        self._perform()
        self._in_each(lambda domain: domain.stage_ended())
        if (asked := self._requests.heard()) is not None:
            self.parts.tick(asked.parts)
        wait = min((domain.poll_wait() for domain in self.domains.values()), default=IDLE_WAIT)
        if asked is not None and asked.pause is not None:
            # What was read waits; nothing more is read. The tasks stay ours, as the group is still polled.
            time.sleep(wait)
        else:
            behind = self._read(wait)
            # No step is opened before the requests are known: a pause may stand.
            if asked is not None:
                self._close_steps(behind)
        self._perform()
        if (now := time.monotonic()) - self._upkeep_at >= UPKEEP_S:
            self._upkeep_at = now
            for domain in self.domains.values():
                if domain.performer.idle:
                    domain.committer.idle()
            self._publisher.tick(self.tasks.values())
            self.maintenance.tick(list(self.tasks.values()), asked.checkpoint.id if asked and asked.checkpoint else "")
        for watch in self._topic_watches:
            watch.tick(0 in self.tasks, asked.layout if asked is not None else 0)

    def leave(self) -> None:
        """Hand the tasks over: commit their last steps, make a version of each, write `released`. Copies of the versions get
        a bounded time to follow, and so do the last rows of sinks outside Kafka."""
        self._membership.leave()
        self._publisher.close()
        self.maintenance.close()
        for domain in self.domains.values():
            domain.close()

    def _perform(self) -> None:
        """Do what the domains' cores say. No task is taken over while the clock is off."""
        sound = self._time.now() is not None
        self._in_each(lambda domain: domain.performer.perform(take_over=sound))

    def _in_each(self, do: Callable[[CommitDomain], None]) -> None:
        """In each part that runs. One that fails may stop alone."""
        for stage, domain in list(self.domains.items()):
            with self.parts.guard(stage):
                do(domain)

    def _read(self, timeout: float) -> set[str]:
        """Take messages in. Returns the stages for which more may wait."""
        tasks, behind = self._inputs.poll(timeout, {name for name, domain in self.domains.items() if domain.full})
        by_stage: dict[str, list[RunningTask]] = {}
        for task in tasks:
            by_stage.setdefault(task.bound.stage.id, []).append(task)
        for name, given in by_stage.items():
            self.domains[name].arrived(given)
        for task, error in self._inputs.unreadable():
            if (stage := task.bound.stage.id) in self.domains:
                with self.parts.guard(stage):
                    raise error
        return behind

    def _close_steps(self, behind: set[str]) -> None:
        """Close the steps that are due. `behind`: the stages for which more may wait."""
        if (now := self._time.now()) is not None:
            for name, domain in list(self.domains.items()):
                with self.parts.guard(name):
                    domain.close_steps(now, drained=name not in behind)
                    # Its commit begins at once, and not after the steps of the other domains.
                    domain.performer.perform()

    # -- how it is -----------------------------------------------------------------------------------------------------

    def paused(self) -> Request | None:
        """Who has paused the app; None if nobody has, or a step is still in progress."""
        asked = self._requests.heard()
        quiet = all(domain.quiet for domain in self.domains.values())
        return asked.pause if asked is not None and quiet else None

    def ahead_ms(self) -> int | None:
        """By how much this host's clock is ahead of the broker's."""
        return self._time.ahead_ms()

    def waits(self) -> str:
        """What it waits for and since when: an answer of a cluster, the end of a transaction or a take-over; "" if nothing is
        unusual."""
        words = [watch.waits() for watch in self._topic_watches]
        words += [*(domain.waits() for domain in self.domains.values()), self._publisher.waits()]
        return "; ".join(dict.fromkeys(filter(None, words)))

    def recovering(self) -> list[Owned]:
        """The tasks that are being taken over."""
        return [o for domain in self.domains.values() for p, o in domain.core.owned.items() if p not in self.tasks]

    def stopped(self) -> tuple[str, ...]:
        """The parts that do not run here, because they have stopped by themselves."""
        return self.parts.stopped()

    def marks(self, task: RunningTask) -> Mapping[TopicPartition, Offset]:
        """Where the task's inputs end, as far as this worker knows."""
        return self._inputs.marks(task)

    def copying(self, task: TaskId) -> tuple[int, int] | None:
        """How much of the task's version is fetched, and its size; None if none is being fetched."""
        return self._stores.copying.get(task)

    def task_waits(self, task: TaskId) -> str | None:
        """What a task that is being taken over waits for, in words; None if it does not wait."""
        return self._stores.waits(task)

    # -- what the group says -------------------------------------------------------------------------------------------

    def _on_assigned(self, partitions: Sequence[int]) -> None:
        logger.debug("assigned %s", sorted(partitions))
        self.member = True
        # Partitions beyond its own tasks belong to a newer flow: not to this worker, which soon learns of it (`TopicWatch`).
        for stage, some in self._by_stage(partitions).items():
            self.parts.assign(stage, [self.app.tasks[p].task for p in some])

    def _on_revoked(self, partitions: Sequence[int]) -> None:
        """Commit what is staged, then release the tasks."""
        self._revoke(partitions, clean=True)

    def _on_lost(self, partitions: Sequence[int]) -> None:
        """The session ended: others own the tasks now, or will."""
        logger.warning("lost tasks %s", sorted(partitions))
        self._revoke(partitions, clean=False)

    def _revoke(self, partitions: Sequence[int], *, clean: bool) -> None:
        """Until the group can be answered."""
        self.parts.revoke(self._by_stage(partitions), clean=clean)

    def _by_stage(self, partitions: Sequence[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for p in partitions:
            if p < len(self.app.tasks):
                found.setdefault(self.app.tasks[p].task.id.stage, []).append(p)
        return found
