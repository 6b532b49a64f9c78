"""An application of two stages: the first one's counts go through an edge to the second one, which totals them.

    in-0, in-1, … ──▶ counts ──edge-0, edge-1, …──▶ totals ──▶ out

A task of the first stage sends each step's counts of a key to the key's task of the second stage, in one record for each of
them. What several tasks send to one partition in a transaction is one record, a bundle, as in production. So a reader that
takes whole records takes whole transactions. Each stage is a commit domain of each worker, with a regime of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from falkirk.checkpoint.bundles import parts_of
from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition
from falkirk.checkpoint.ports import Output, Writes
from falkirk.checkpoint.records import Range
from falkirk.checkpoint.regimes import Eager, Recovery
from falkirk.checkpoint.tasks import Task
from falkirk.state.store import State
from falkirk.stream.dataflow.circuit import Emitted, Slice, StepInput, StepOutput
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.edges import equations
from falkirk.testing.simulator.toy import KEYS, Counted, Toy, outputs_of

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

EDGE = "edge"


class Totalled(msgspec.Struct, frozen=True, array_like=True):
    """One record of the output: the m-th count of this key that the second stage has seen."""

    m: int
    count: Counted
    clock: int


class Totals:
    """The circuit of the second stage. It numbers the counts of each key as they come: a count that is lost, doubled or
    swapped has another number than it says itself."""

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Total."""
        out = Emitted("out", "out", [], [], [], [])
        partitions, keys, values = [], [], []
        for piece in step.slices:
            for key, count in (row for value in piece.records.values for row in rows_of(value)):
                m = int(state.get([b"m" + key])[0] or b"0") + 1
                state.put([b"m" + key], [b"%d" % m])
                state.put([b"of %s %d" % (key, m)], [msgspec.json.encode(count)])
                partitions.append(int(key.startswith(KEYS[0])))
                keys.append(key)
                values.append(msgspec.json.encode(Totalled(m, count, step.clock)))
        out.partitions, out.keys, out.values = partitions, keys, values
        out.timestamps = [step.clock] * len(keys)
        return StepOutput([out] if keys else [], rows=len(keys))


def rows_of(value: bytes | None) -> list[tuple[bytes, Counted]]:
    """The rows of a record of the edge."""
    parts = [part for part in parts_of(value) if part is not None]
    return [row for part in parts for row in msgspec.msgpack.decode(part, type=list[tuple[bytes, Counted]])]


@dataclass(slots=True)
class TwoStages(Toy):
    """The application. The first `tasks − readers` tasks count, the others total. `recovery` is the first stage's regime."""

    domains: int = 2
    second: type[Recovery] = Eager
    readers: int = 1
    totals: Totals = field(default_factory=Totals)

    @property
    def counters(self) -> int:
        """How many of the tasks are of the first stage."""
        return self.tasks - self.readers

    def domain_of(self, t: int) -> int:
        """Each stage is one."""
        return int(t >= self.counters)

    def create(self, broker: SimBroker) -> None:
        """Make the topics and write the input."""
        broker.create(EDGE, self.readers)
        Toy.create(self, broker)

    def task(self, t: int) -> Task:
        """Task t. (Its id has the number of its partition of the steps topic, in both stages.)"""
        if t < self.counters:
            return Toy.task(self, t)
        recovery = self.second(tuple(TopicPartition("changes", t) for _ in self.second.needs))
        return Task(TaskId("totals", t), TopicPartition("steps", t), recovery)

    def reads(self, t: int) -> list[InputPartition]:
        """The inputs of task t."""
        return Toy.reads(self, t) if t < self.counters else [InputPartition("", EDGE, "edge's id", t - self.counters)]

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return EDGE if t < self.counters else "out"

    def edges(self, t: int) -> dict[InputPartition, TopicPartition]:
        """Those inputs of task t that another stage writes."""
        return {} if t < self.counters else {i: i.place for i in self.reads(t)}

    def run(
        self, broker: SimBroker, ranges: Iterable[Range], clock: int, state: State, *, trimmed: bool = False
    ) -> tuple[list[Output], int]:
        """Run one step."""
        ranges = list(ranges)
        if all(r.partition.topic != EDGE for r in ranges):
            outputs, rows = Toy.run(self, broker, ranges, clock, state, trimmed=trimmed)
            return [self.sent(output.writes) for output in outputs], rows
        slices = [Slice(EDGE, EDGE, r.partition.partition, self.read(broker, r, trimmed)) for r in ranges]
        return outputs_of(self.totals.run(StepInput(clock, slices), state))

    def sent(self, counts: Writes) -> Output:
        """A step's counts as its stage sends them: one record to each task that gets any."""
        there: dict[int, list[tuple[bytes | None, Counted]]] = {}
        for key, value in zip(counts.keys, counts.values, strict=True):
            assert key is not None
            assert value is not None
            there.setdefault(self.reader_of(key), []).append((key, msgspec.json.decode(value, type=Counted)))
        assert counts.timestamps is not None
        times = [max(counts.timestamps)] * len(there)
        values = [msgspec.msgpack.encode(rows) for rows in there.values()]
        return Output(EDGE, Writes(EDGE, list(there), [None] * len(there), values, times, bundles=True))

    def reader_of(self, key: bytes) -> int:
        """The partition of the edge that a key's counts go to."""
        return KEYS.index(key[:1]) % self.readers

    def ends(self, broker: SimBroker, t: int) -> dict[InputPartition, Offset]:
        """Where the input of task t ends; that of an edge, behind its last record that can be read."""
        if t < self.counters:
            return Toy.ends(self, broker, t)
        found = {i: broker[i.place].committed(0, broker[i.place].end, trimmed=True)[0] for i in self.reads(t)}
        return {i: Offset(entries[-1].offset + 1 if entries else 0) for i, entries in found.items()}

    def ahead(self, broker: SimBroker, place: InputPartition, at: Offset, most: int) -> Offset:
        """Where a step stops that reads so many records at most from `at` on."""
        if place.topic != EDGE:
            return Toy.ahead(self, broker, place, at, most)
        last = self.pending(broker, place, at)[:most]
        return Offset(last[-1] + 1) if last else at

    def pending(self, broker: SimBroker, place: InputPartition, at: Offset) -> list[int]:
        """The offsets of the records of an edge that can be read from `at` on. Raises OutOfRange."""
        return [e.offset for e in broker[place.place].committed(at, broker[place.place].end)[0]]

    def holds(self, world: World, *, ended: bool) -> None:
        """What must hold for the edge, each turn and at the end. Raises Broken."""
        starts = [p.start for p in world.broker.partitions(EDGE)]
        if starts != world.seen.get(EDGE):
            world.seen[EDGE] = starts
            equations.kept(world, self)
        if ended:
            equations.kept(world, self)
            equations.once(world, self)
