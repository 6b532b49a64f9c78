"""Recorded steps run again (lazy regime): the same records, at the same clock, through the same circuit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.division import DivisionReader
from falkirk.connectors.kafka.errors import Words
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
    _readers: dict[TaskId, DivisionReader] = field(default_factory=dict)

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> str:
        """Read the division, run the circuit at the record's clock; return the output's digest."""
        bound = self.tasks[task]
        ranges = {_place(r): (r.start, r.end) for r in record.division if r.end > r.start}
        read = {}
        if ranges:
            if task not in self._readers:
                self._readers[task] = DivisionReader(self.cluster, LOST)
            read = self._readers[task].read(ranges)
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


def _place(r: Range) -> TopicPartition:
    return TopicPartition(r.partition.topic, r.partition.partition)
