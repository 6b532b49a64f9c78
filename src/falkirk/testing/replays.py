"""Recorded steps of an app under test, run again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from falkirk.checkpoint.ids import Offset, TaskId, TopicPartition, places_in
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.tasks import ends
from falkirk.runtime.worker.emissions import outputs_of
from falkirk.runtime.worker.reading.replay import difference, rerun
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.testing.cluster import Cluster, Message
from falkirk.testing.edges import MemoryRereader


class MemoryReplayer:
    """`falkirk.checkpoint.ports.Replayer`, and the topics that it reads (`OutputReader` of
    `falkirk.runtime.worker.reading.read_back`)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._again = cluster, MemoryRereader(cluster)
        self._tasks = {bound.task.id: bound for bound in cluster.tasks}

    @property
    def corrects(self) -> bool:
        """Whether steps whose output now differs are corrected."""
        return self._cluster.corrects

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Run a recorded step again; returns its output."""
        bound = self._tasks[task]
        slices = self._again.read(bound, record.division if record.move is None else record.move.again)
        if record.step == 0:
            return []
        circuit = bound.stage.circuit(bound.task.id.partition, self._cluster.layout)
        step = StepInput(record.clock, slices, places=places_in(ends(record)))
        return outputs_of(rerun(circuit, bound.stage.evolution(circuit), record, step, state).emitted)

    def selective(self, task: TaskId, state: Overlay) -> SelectiveCheckpoint | None:
        """The selective checkpoint of a state."""
        return self._tasks[task].stage.circuit(task.partition, self._cluster.layout).selective(state)

    async def difference(
        self, task: TaskId, records: Sequence[StepRecord], should: Sequence[Output], state: Overlay
    ) -> list[Output]:
        """What corrects the difference between what the steps have said and what they should have said."""
        stage = self._tasks[task].stage
        return difference(
            task,
            stage,
            stage.evolution(stage.circuit(task.partition, self._cluster.layout)),
            self,
            records,
            should,
            state,
        )

    def bounds(self, places: Collection[TopicPartition]) -> dict[TopicPartition, tuple[Offset, Offset]]:
        """Where the partitions begin and end."""
        found = {place: self._cluster.broker[place] for place in places}
        return {place: (Offset(p.start), Offset(p.end)) for place, p in found.items()}

    def read(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], _: Callable[[], None]
    ) -> dict[TopicPartition, list[Message]]:
        """What is committed there."""
        return {place: self._cluster.between(place, start, end) for place, (start, end) in ranges.items()}
