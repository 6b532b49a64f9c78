"""The tasks of a commit domain, from the end of their recovery until they leave: `Start`, `Rewind`, `Leave` and `Drop`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falkirk.checkpoint.ids import InputPartition, Offset, OwnerId
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.tasks import Owned, ends
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.runtime.app.app import App
from falkirk.runtime.app.starts import check_division, joining_offsets, start_offsets
from falkirk.runtime.host.clock import Timekeeper
from falkirk.runtime.worker.reading.inputs import Inputs
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.sizes import check_sizes
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.stream.dataflow.circuit import Circuit


@dataclass(slots=True)
class RunningTasks:
    """Tasks are identified by their partitions of the steps topic."""

    app: App
    owner: OwnerId
    topics: Topics
    time: Timekeeper
    pipeline: Pipeline
    queue: RunQueue
    inputs: Inputs
    maintenance: Maintenance
    by_partition: dict[int, RunningTask]
    """Those of the whole worker."""

    def start(self, owned: Owned, circuit: Circuit) -> None:
        """Read and step a task."""
        partition = owned.task.steps.partition
        bound = self.app.tasks[partition]
        if owned.last is not None:
            check_division(bound, ends(owned.last))
        self.by_partition[partition] = task = RunningTask(bound, owned, circuit)
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
        task = self.by_partition[owned.task.steps.partition]
        logger.info("task %s: the step after %s was aborted", owned.task.id, owned.last and owned.last.step)
        task.rewind()
        self._stage_first(task)
        self.inputs.rewind(task)
        self.queue.changed(task)

    def _stage_first(self, task: RunningTask) -> None:
        def starts() -> dict[InputPartition, Offset]:
            begins = start_offsets(task.bound, self.topics, task.owned.backfilled, self.app.starts)
            return begins | self.inputs.tables.positions(task.bound)

        for step in task.first_steps(starts, self.owner, self.time.latest()):
            check_sizes(step, self.app.limits)
            self.pipeline.stage(step)

    def leave(self, tasks: Sequence[Owned]) -> None:
        """Make a last version of these tasks. The group waits for this, so nothing is requested from the checkpoint store
        here: the copies follow."""
        leaving = [self._stop(self.by_partition.pop(owned.task.steps.partition)) for owned in tasks]
        self.maintenance.last_versions(leaving)

    def drop(self, owned: Owned) -> None:
        """Forget a task, if it runs."""
        task = self.by_partition.get(owned.task.steps.partition)
        if task is None or task.owned is not owned:
            return
        if owned.lost:
            logger.warning("task %s has another owner", owned.task.id, extra={"task": str(owned.task.id)})
        self._stop(self.by_partition.pop(owned.task.steps.partition))
        self.maintenance.forget(task)

    def _stop(self, task: RunningTask) -> RunningTask:
        self.inputs.remove(task)
        self.queue.forget(task)
        task.end()
        return task
