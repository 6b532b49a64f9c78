"""The tasks of one worker, from their assignment to their release.

    assigned ──taken over──▶ running ──revoked──▶ last version made, `released` written
        ▲                       │
        └──dropped: another owner has fenced it, or the group's session has ended

A task that was dropped, and that the group still assigns, is taken over again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import OwnerId
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.takeover import abandon
from falkirk.checkpoint.tasks import Owned, ends
from falkirk.connectors.kafka.config import logger
from falkirk.connectors.kafka.topics import Topics
from falkirk.runtime.app.app import App
from falkirk.runtime.app.starts import check_division, joining_offsets, start_offsets
from falkirk.runtime.host.clock import Timekeeper
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.inputs import Inputs
from falkirk.runtime.worker.maintenance import Maintenance
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.takeovers import TakeOvers
from falkirk.runtime.worker.task import RunningTask, check_sizes
from falkirk.stream.dataflow.circuit import Circuit


@dataclass(slots=True)
class Assignment:
    """Tasks are identified by their partitions of the steps topic."""

    app: App
    owner: OwnerId
    topics: Topics
    time: Timekeeper
    pipeline: Pipeline
    queue: RunQueue
    inputs: Inputs
    maintenance: Maintenance
    committer: Committer
    take_overs: TakeOvers
    assigned: set[int] = field(default_factory=set)
    running: dict[int, RunningTask] = field(default_factory=dict)

    def assign(self, partitions: Collection[int]) -> None:
        """The group assigns these tasks: the next turn takes them over."""
        # Partitions beyond its own tasks belong to a newer flow: not to this worker, which soon learns of it (`TopicWatch`).
        self.assigned |= {p for p in partitions if p < len(self.app.tasks)}

    def take_over(self) -> None:
        """Check the progress of tasks that are assigned but do not run yet."""
        self.take_overs.begin(sorted(self.assigned - self.running.keys() - self.take_overs.under_way.keys()))
        if self.take_overs.recover_named():
            self.drop_lost()
        for owned, circuit in self.take_overs.taken():
            self._start(owned, circuit)

    def _start(self, owned: Owned, circuit: Circuit) -> None:
        partition = owned.task.steps.partition
        bound = self.app.tasks[partition]
        if owned.last is not None:
            check_division(bound, ends(owned.last))
        self.running[partition] = task = RunningTask(bound, owned, circuit)
        task.join(joining_offsets(bound, task.ends, self.topics))
        self._stage_first(task)
        self.inputs.add(task)
        self.queue.changed(task)
        self.maintenance.taken(task)
        step = -1 if owned.last is None else owned.last.step
        told = {"task": str(owned.task.id), "step": step}
        after = ", and first moves or rebuilds the state of an earlier version of the flow" if task.moving else ""
        logger.info("task %s runs from step %s%s", owned.task.id, step, after, extra=told)

    def rewind(self, owned: Owned) -> None:
        """The task's last step was aborted: continue from the one before."""
        task = self.running.get(owned.task.steps.partition)
        if task is None or owned.lost:
            return
        logger.info("task %s: the step after %s was aborted", owned.task.id, owned.last and owned.last.step)
        task.rewind()
        self._stage_first(task)
        self.inputs.rewind(task)
        self.queue.changed(task)

    def _stage_first(self, task: RunningTask) -> None:
        """Stage what comes before all that it reads: step 0, which says where the inputs begin, or the correction of recorded
        steps, if there is one. After an abort, again."""
        if not task.begun:
            starts = start_offsets(task.bound, self.topics, task.owned.begins, self.app.starts)
            starts |= self.inputs.tables.positions(task.bound)
            self.pipeline.stage(task.begin(starts, self.owner, self.time.latest()))
        if task.owned.correction is not None:
            step = task.correct(self.owner, self.time.latest())
            check_sizes(step, self.app.limits)
            self.pipeline.stage(step)

    def withdraw(self, partitions: Sequence[int]) -> None:
        """The group takes these tasks away: those that are being taken over never run. Those that run still do."""
        self.assigned -= set(partitions)
        self.take_overs.give_up(partitions)

    def release(self, partitions: Sequence[int]) -> None:
        """Make a last version of these tasks, and write `released`. The group waits for this, so nothing is requested from
        the checkpoint store here: the copies follow."""
        leaving = [p for p in partitions if p in self.running]
        for p in leaving:
            self.inputs.remove(self.running[p])
            self.queue.forget(self.running[p])
        self.maintenance.last_versions([self.running[p] for p in leaving])
        if leaving:
            self.committer.release([self.running[p].owned for p in leaving])
        for p in leaving:
            owned = self.running.pop(p).owned
            # If the last transaction was aborted, a task that had no step yet has staged its step 0 again.
            self.pipeline.forget(owned.task.id)
            abandon(owned)

    def drop_lost(self) -> None:
        """Forget the tasks that another owner has fenced."""
        for partition in [p for p, task in self.running.items() if task.owned.lost]:
            task = self.running[partition].owned.task.id
            logger.warning("task %s has another owner", task, extra={"task": str(task)})
            self.drop(partition)

    def drop(self, partition: int) -> None:
        """Forget a task, if it runs."""
        task = self.running.pop(partition, None)
        if task is None:
            return
        self.inputs.remove(task)
        self.queue.forget(task)
        self.pipeline.forget(task.owned.task.id)
        self.maintenance.forget(task)
        abandon(task.owned)
