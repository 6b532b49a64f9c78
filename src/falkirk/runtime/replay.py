"""Recorded steps run again (lazy regime): the same records, at the same clock, through the same circuit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import Owned
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.division import DivisionReader
from falkirk.connectors.kafka.errors import Words
from falkirk.connectors.kafka.places import parted
from falkirk.errors import SourceError
from falkirk.runtime.app import BoundTask
from falkirk.runtime.task import outputs_of
from falkirk.stream.circuit import Circuit, Slice, StepInput
from falkirk.stream.records import Records

LOST = Words(
    "the records of a recorded step are gone",
    "bring back the state directory or the checkpoint store with the newest version, or give the flow another name: it then "
    "begins anew; a lazy regime's retention must outlast the time between versions",
    SourceError,
)


@dataclass(slots=True)
class Replays:
    """`falkirk.checkpoint.ports.Replayer` for the tasks of one recovery."""

    cluster: Cluster
    tasks: Mapping[TaskId, BoundTask]
    circuits: Mapping[TaskId, Circuit]
    owned: Mapping[TaskId, Owned]
    """Who waits for a cluster that is away must not hold up the group when it takes the task away: the group is the app's."""
    _readers: dict[tuple[TaskId, str], DivisionReader] = field(default_factory=dict)
    """By the task and the cluster."""

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> str:
        """Read the division, run the circuit at the record's clock; return the output's digest."""
        bound = self.tasks[task]
        ranges = {r.partition.place: (r.start, r.end) for r in record.division if r.end > r.start}
        read: dict[TopicPartition, list[Message]] = {}
        for name, some in parted(ranges).items():
            if (task, name) not in self._readers:
                self._readers[task, name] = DivisionReader(self.cluster.of(name), LOST)
            read |= self._readers[task, name].read(some, self.owned[task].go_on)
        slices = [
            Slice(i.input.id, i.place.topic, i.place.partition, Records.of(messages, headers=i.input.headers))  # type: ignore[arg-type]
            for i in bound.inputs
            if (messages := read.get(i.place))
        ]
        if record.step == 0 and not slices:
            return digest([])
        if record.rows != sum(len(s.records) for s in slices):
            raise SourceError(
                f"step {record.step} of task {task} read {record.rows} records, but {sum(len(s.records) for s in slices)} "
                "of them are left",
                where=", ".join(f"{p.topic}[{p.partition}] {a}..{b}" for p, (a, b) in ranges.items()),
                hint="the lazy regime reads its inputs again: bring back the state directory or the checkpoint store with "
                "the newest version, or give the flow another name: it then begins anew",
            )
        circuit = self.circuits[task]
        # What failed in the steps before may have been forgotten when this one ran: it must not be stopped for it now.
        circuit.rewind()
        result = circuit.run(StepInput(record.clock, slices), state)
        return digest([o.writes for o in outputs_of(result.emitted)])

    def close(self) -> None:
        """Close the readers."""
        for reader in self._readers.values():
            reader.close()
