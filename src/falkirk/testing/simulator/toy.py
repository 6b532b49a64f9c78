"""The application that runs in the simulation: keyed counts, small but as real as the ports need.

Task t reads two partitions of the topic `in`, keeps how often it has seen each key, and for every record writes the key's new
count to the topic `out`. The third record of a key deletes a companion of the count, so that the changes hold tombstones. A
lost, doubled or swapped record shows in the counts; a run at another clock shows in state and output.

Later versions of its code count the keys of one kind double, threefold, and so on. A correction takes a record back: it
writes it again with a minus sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import msgspec

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output, Writes
from falkirk.checkpoint.records import Range, SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.regimes import Eager, Recovery
from falkirk.checkpoint.steps import HEADER, maker
from falkirk.checkpoint.tasks import Task
from falkirk.state.store import State
from falkirk.stream.dataflow.circuit import Emitted, Slice, StepInput, StepOutput
from falkirk.stream.dataflow.records import Records
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.points import Point, reach

if TYPE_CHECKING:
    from falkirk.testing.simulator.domain import Domain
    from falkirk.testing.simulator.world import World

STAGE = "counts"
INPUTS_PER_TASK = 2
KEYS = (b"x", b"y", b"z")


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """One record of the output: this key's n-th record came from there."""

    n: int
    partition: int
    offset: int
    clock: int


class Counts:
    """The circuit."""

    code = 0
    """Which version of the code it is."""

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Count."""
        out = Emitted("out", "out", [], [], [], [])
        partitions, keys, values = [], [], []
        for piece in step.slices:
            for found, offset in zip(piece.records.keys, piece.records.offsets, strict=True):
                key = found or b""
                found = state.get([b"n" + key])[0]
                n = int(found or b"0") + 1 + self.code * key.startswith(KEYS[0])
                state.put([b"n" + key, b"new" + key], [b"%d" % n, b"1" if n <= 2 else None])
                state.put([b"at %s %d" % (key, n)], [b"%d" % step.clock])
                partitions.append(key == KEYS[0])
                keys.append(key)
                values.append(msgspec.json.encode(Counted(n, piece.partition, offset, step.clock)))
        out.partitions, out.keys, out.values = [int(p) for p in partitions], keys, values
        out.timestamps = [step.clock] * len(keys)
        return StepOutput([out] if keys else [], rows=len(keys))

    def wake_at(self, state: State) -> int | None:
        """It has no timers."""
        return None


@dataclass(slots=True)
class Toy:
    """The application: its topics, tasks and input.

    `inputs` says how many records each input partition gets. Keys of different tasks never meet. `domains` is the number of
    commit domains of each worker, as if its tasks belonged to so many stages.
    """

    tasks: int = 2
    recovery: type[Recovery] = Eager
    inputs: int = 2
    domains: int = 1
    at_once: int = 1
    """Records of each input that a step reads, if nothing bounds it."""
    version_every: int = 3
    """Commits between two versions."""
    circuit: Counts = field(default_factory=Counts)
    runs: ClassVar[type[Domain] | None] = None
    """What a worker does for its tasks, where that is something of their own."""

    def running(self, code: int) -> Toy:
        """The same application with another version of its code."""
        circuit = Counts()
        circuit.code = code
        return replace(self, circuit=circuit) if code else self

    @property
    def counters(self) -> int:
        """How many of the tasks count: those with the first numbers."""
        return self.tasks

    def domain_of(self, t: int) -> int:
        """The commit domain of task t."""
        return t % self.domains

    def create(self, broker: SimBroker) -> None:
        """Make the topics and write the input."""
        broker.create("in", self.counters * INPUTS_PER_TASK)
        broker.create("out", 2)
        broker.create("steps", self.tasks)
        broker.create("changes", self.tasks)
        broker.compacted.add("changes")
        for p in broker.partitions("in"):
            for i in range(self.inputs):
                p.append(self.key_of(p.name.partition, i), None, 0, None)

    def before(self, world: World) -> None:
        """What has happened before the run begins."""

    def passes(self, world: World) -> None:
        """A turn passes: what comes from outside may come."""

    def changed(self, world: World) -> None:
        """Every process has died, and those started from now on run what is there now."""

    def key_of(self, partition: int, i: int) -> bytes:
        """The key of the i-th record of an input partition: partitions of a task share it, tasks do not."""
        return KEYS[i % len(KEYS)] + b"%d" % (partition // INPUTS_PER_TASK)

    def task(self, t: int) -> Task:
        """Task t."""
        recovery = self.recovery(tuple(TopicPartition("changes", t) for _ in self.recovery.needs))
        return Task(TaskId(STAGE, t), TopicPartition("steps", t), recovery, layout=self.circuit.code)

    def reads(self, t: int) -> list[InputPartition]:
        """The inputs of task t."""
        first = t * INPUTS_PER_TASK
        return [InputPartition("", "in", "in's id", p) for p in range(first, first + INPUTS_PER_TASK)]

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return "out"

    def edges(self, t: int) -> dict[InputPartition, TopicPartition]:
        """Those inputs of task t that another stage writes."""
        return {}

    def run(
        self, broker: SimBroker, ranges: Iterable[Range], clock: int, state: State, *, trimmed: bool = False
    ) -> tuple[list[Output], int]:
        """Run one step over these ranges; returns its output, and how many rows it read. `trimmed`: reads also what is
        deleted, which only the checks can."""
        slices = [Slice("in", r.partition.topic, r.partition.partition, self.read(broker, r, trimmed)) for r in ranges]
        return outputs_of(self.circuit.run(StepInput(clock, slices), state))

    def again(self, broker: SimBroker, record: StepRecord, state: Overlay) -> list[Output]:
        """Run a recorded step again, for the checks; returns its output."""
        return self.run(broker, record.division, record.clock, state, trimmed=True)[0]

    def read(self, broker: SimBroker, read: Range, trimmed: bool) -> Records:
        """The committed records of a range. Raises OutOfRange."""
        found = broker[read.partition.place].committed(read.start, read.end, trimmed=trimmed)[0]
        return Records([e.offset for e in found], [e.key for e in found], [e.value for e in found])

    def ends(self, broker: SimBroker, t: int) -> dict[InputPartition, Offset]:
        """Where the input of task t ends."""
        return {i: Offset(broker[i.place].end) for i in self.reads(t)}

    def ahead(self, broker: SimBroker, place: InputPartition, at: Offset, most: int) -> Offset:
        """Where a step stops that reads so many records at most from `at` on."""
        return Offset(min(broker[place.place].end, at + most))

    def holds(self, world: World, *, ended: bool) -> None:
        """What must hold besides what `check` has, each turn and at the end. Raises Broken."""


def outputs_of(result: StepOutput) -> tuple[list[Output], int]:
    """What a circuit's run emits, as a step writes it, and how many rows it read."""
    writes = [
        Output(e.output, Writes(e.topic, e.partitions, e.keys, e.values, e.timestamps, bundles=e.bundles))
        for e in result.emitted
    ]
    return writes, result.rows


@dataclass(frozen=True, slots=True)
class ToyReplayer:
    """The port `Replayer`."""

    toy: Toy
    broker: SimBroker
    corrects: bool = False

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Run a recorded step again; returns its output."""
        outputs, _ = self.toy.run(self.broker, record.division, record.clock, state)
        return outputs

    def selective(self, task: TaskId, state: Overlay) -> SelectiveCheckpoint | None:
        """Its rows have no time."""
        return None

    async def difference(
        self, task: TaskId, records: Sequence[StepRecord], should: Sequence[Output], state: Overlay
    ) -> list[Output]:
        """What was said but should not have been, with a minus sign; and what is missing."""
        columns = [zip(o.writes.partitions, o.writes.keys, o.writes.values, strict=True) for o in should]
        net = Counter(record for column in columns for record in column)
        for p in self.broker.partitions("out"):
            found, position = p.committed(p.start, p.end)
            while position < p.end:
                await reach(Point("waits for open transactions among what was said", waits=True))
                found, position = p.committed(p.start, p.end)
            for e in found:
                made = maker(dict(e.headers)[HEADER])
                if made is not None and made.task == str(task) and made.step >= records[0].step:
                    value, weight = signed(e.value or b"")
                    net[p.name.partition, e.key, value] -= weight
        rows = [
            (p, key, (b"-" if weight < 0 else b"") + (value or b""))
            for (p, key, value), weight in net.items()
            for _ in range(abs(weight))
        ]
        partitions, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
        return [Output("out", Writes("out", partitions, keys, values))] if rows else []


def signed(value: bytes) -> tuple[bytes, int]:
    """A record of the output without its sign, and the sign."""
    return (value[1:], -1) if value.startswith(b"-") else (value, 1)
