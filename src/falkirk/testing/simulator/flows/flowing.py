"""Tasks of a flow in the simulated world: `Inputs`, `RunningTask`, its circuit and its evolution are those of production."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, TaskId, places_in
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output, Replayer
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import Owned, Task, ends
from falkirk.runtime.app.app import BoundTask
from falkirk.runtime.worker.emissions import moving_of, outputs_of
from falkirk.runtime.worker.reading.broadcast import SharedTables
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.reading.replay import rerun
from falkirk.runtime.worker.task import RunningTask
from falkirk.state.shards import murmur2_of
from falkirk.stream.dataflow.circuit import Circuit, SharedRows, StepInput
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.definition.names import steps_topic
from falkirk.stream.definition.regimes import Checkpoint, EagerCheckpoint, LazyCheckpoint
from falkirk.testing.cluster import SETTINGS, Cluster
from falkirk.testing.edges import MemoryInputs, MemoryRereader, memory_tables
from falkirk.testing.process import Process
from falkirk.testing.replays import MemoryReplayer
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy


class StepByStep(MemoryReplayer):
    """The process may die before each step that runs again."""

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Run a recorded step again; returns its output."""
        await reach(Point(f"runs step {record.step} again"))
        return await super().replay(task, record, state)


@dataclass(slots=True)
class FlowDomain(Domain):
    """A worker's tasks of one stage of a flow."""

    inputs: MemoryInputs = field(init=False)
    _flowing: dict[int, RunningTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Domain.__post_init__(self)
        self.inputs = MemoryInputs(self.flow.cluster, self.open_tables())

    @property
    def flow(self) -> Flowing:
        """The application."""
        assert isinstance(self.toy, Flowing)
        return self.toy

    def open_tables(self) -> SharedTables:
        """The worker's broadcast tables."""
        return memory_tables(self.flow.cluster)

    async def turn(self) -> bool:
        """As in production, a step is closed only after what the core says is done: its task may have to be rewound first."""
        self.check_upkeep()
        return self.heard() | await self.acted() | self.received() | self.staged()

    def received(self) -> bool:
        """Read some records of each partition, once those read before are in a step. Returns whether there were any."""
        if any(task.rows for task in self._flowing.values()):
            return False
        self.inputs.allow(self.toy.at_once + self.choose(3))
        return bool(self.inputs.poll(0).tasks)

    def replayer(self) -> Replayer:
        """Runs recorded steps again, through the circuits of the flow that runs now."""
        return StepByStep(self.flow.cluster)

    def start(self, owned: Owned) -> None:
        """Read and step the task from now on."""
        bound, t = self.flow.bound(owned.task.id.partition), owned.task.id.partition
        task = self._flowing[t] = RunningTask(bound, owned, bound.stage.circuit(t, self.flow.cluster.layout))
        task.join(self.inputs.joining(task))
        self._stage_first(task)
        self.inputs.add(task)
        Domain.start(self, owned)

    def rewind(self, owned: Owned) -> None:
        """Its last step was aborted."""
        task = self._flowing[owned.task.id.partition]
        task.rewind()
        self._stage_first(task)
        self.inputs.rewind(task)

    def _stage_first(self, task: RunningTask) -> None:
        """Stage what comes before all that it reads."""
        for step in task.first_steps(lambda: self.inputs.begins(task), self.log.owner, self.clock.now()):
            self.core.pipeline.stage(step)

    async def stop(self, owned: Owned) -> None:
        """Read and step the task no more."""
        task = self._flowing.get(owned.task.id.partition)
        if task is not None and task.owned is owned:
            del self._flowing[owned.task.id.partition]
            self.inputs.remove(task)
            task.end()
        await Domain.stop(self, owned)

    def step(self, t: int, owned: Owned) -> bool:
        """Run one step of a task, if there is something to do."""
        task, now = self._flowing[t], self.clock.now()
        if task.intake is Intake.HELD or not (task.rows or task.due(now)):
            return False
        most = self.pacer.part(task.rows, task.rows * len(self._running))
        if task.moving:
            most = min(self.pacer.most, self.flow.most)
        tables, again = self.inputs.tables, self.inputs.again
        self.core.pipeline.stage(task.close_step(self.core.pipeline, self.log.owner, now, tables, again, most))
        return True


@dataclass(slots=True)
class Flowing(Toy):
    """An application that is a flow of one stage. `create` calls `begin` with its cluster: it knows plan and layout."""

    most: int = 2
    """Records that a step reads again, at most."""
    runs: ClassVar[type[Domain] | None] = FlowDomain
    cluster: Cluster = field(init=False, repr=False)
    earlier: dict[int, tuple[Sequence[BoundTask], Layout]] = field(init=False, repr=False, default_factory=dict)
    """The layouts that the app has had before, by their numbers."""
    _circuits: dict[tuple[str, int], tuple[BoundTask, Circuit]] = field(init=False, repr=False, default_factory=dict)

    def begin(self, cluster: Cluster, broker: SimBroker) -> None:
        """Make the topics of the app, in the simulated world."""
        self.cluster = cluster
        move_to(broker, cluster)

    @property
    def regime(self) -> Checkpoint:
        """The regime that recovers as the run says."""
        return next(kind() for kind in (EagerCheckpoint, LazyCheckpoint) if kind.recovery is self.recovery)

    def bound(self, t: int) -> BoundTask:
        """Task t as it runs now."""
        return self.cluster.tasks[t]

    def shared(self, record: StepRecord) -> Mapping[str, SharedRows]:
        """What a recorded step has seen of the broadcast tables."""
        return {}

    def running(self, code: int) -> Toy:
        """The flow is part of the cluster."""
        return self

    def task(self, t: int) -> Task:
        """Task t."""
        return self.bound(t).task

    def reads(self, t: int) -> list[InputPartition]:
        """The inputs of task t."""
        return [i.partition for i in self.bound(t).inputs]

    def ends(self, broker: SimBroker, t: int) -> dict[InputPartition, Offset]:
        """Where the input of task t ends."""
        return {i.partition: Offset(broker[i.place].end) for i in self.bound(t).inputs}

    def again(self, broker: SimBroker, record: StepRecord, state: Overlay) -> list[Output]:
        """Run a recorded step again, with the flow that made it."""
        if record.step == 0:
            return []
        bound, circuit = self._ran_by(record)
        slices = MemoryRereader(self.cluster).read(bound, record.division if record.move is None else record.move.again)
        circuit.rewind()
        evolution = bound.stage.evolution(circuit)
        step = StepInput(record.clock, slices, self.shared(record), places=places_in(ends(record)))
        if record.move is not None and bound.shadow is not None:
            # No worker ever runs such a step again: what it takes is in its changelog.
            again = evolution.again(state)
            if again is not None and again.taken is not None:
                taken = MemoryRereader(self.cluster).take(bound, Offset(again.taken))
                return outputs_of(evolution.move(step, state, moving_of(record.move, {}, taken)).emitted)
        return outputs_of(rerun(circuit, evolution, record, step, state).emitted)

    def _ran_by(self, record: StepRecord) -> tuple[BoundTask, Circuit]:
        """The task as it was when it made a step. A circuit takes longer to make than to run."""
        if (record.task, record.layout) not in self._circuits:
            tasks, layout = self.earlier.get(record.layout, (self.cluster.tasks, self.cluster.layout))
            [bound] = [b for b in tasks if str(b.task.id) == record.task]
            self._circuits[record.task, record.layout] = bound, bound.stage.circuit(bound.task.id.partition, layout)
        return self._circuits[record.task, record.layout]


def move_to(broker: SimBroker, cluster: Cluster) -> None:
    """Make the topics of an app, in the simulated world."""
    cluster.broker, cluster.clock = broker, Millis(broker.now)
    for topic, partitions in cluster.counts.items():
        broker.create(topic, partitions)
    broker.create(steps_topic(SETTINGS.prefix, cluster.plan.app), len(cluster.tasks))
    broker.compacted |= {log.topic for bound in cluster.tasks for log in bound.task.recovery.log_partitions}


def run_to_end(cluster: Cluster, rows: int) -> None:
    """One worker reads all that there is, so many records of each partition a step, and leaves."""
    process = Process(cluster)
    while process.close(rows):
        process.commit()
    end(process)


def end(process: Process) -> None:
    """The worker leaves."""
    process.leave()
    process.end()
    process.cluster.broker.settle()


def task_of_key(key: str, tasks: int) -> int:
    """The partition where a producer puts a key."""
    return (murmur2_of(key.encode()) & 0x7FFFFFFF) % tasks
