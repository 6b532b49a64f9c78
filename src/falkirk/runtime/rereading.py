"""Reading again what tasks have read, for operators that are rebuilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition
from falkirk.checkpoint.records import Division
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.division import DivisionReader
from falkirk.connectors.kafka.errors import Words
from falkirk.connectors.kafka.places import parted
from falkirk.connectors.kafka.topics import Topics
from falkirk.errors import SourceError
from falkirk.runtime.app import App, BoundInput, BoundTask
from falkirk.runtime.beginnings import beginnings
from falkirk.stream.circuit import Slice
from falkirk.stream.records import Records

LOST = Words(
    "records that are read again to rebuild an operator are gone",
    "what is left does not make its state: to go on without what it had, falkirk plan APP:FLOW --apply --drop ID; or give "
    "the flow another name, under which it begins anew",
    SourceError,
)
PATIENCE = 60.0
"""Seconds without any record, after which a cluster counts as away."""


@dataclass(slots=True)
class Rereads:
    """`falkirk.runtime.task.Rereader`, for the tasks of a worker."""

    app: App
    cluster: Cluster
    topics: Topics
    _readers: dict[tuple[TaskId, str], DivisionReader] = field(default_factory=dict)
    """By the task and the cluster."""

    def begins(self, inputs: Sequence[BoundInput]) -> dict[InputPartition, Offset]:
        """Where they begin, as the app has read them."""
        own = {i.partition: i.input for i in inputs}
        return beginnings(own, self.topics, self.app.recorded.topics, self.app.starts)

    def read(self, task: BoundTask, division: Division) -> list[Slice]:
        """The records, in the order of inputs."""
        ranges = {r.partition.place: (r.start, r.end) for r in division if r.end > r.start}
        read: dict[TopicPartition, list[Message]] = {}
        for name, some in parted(ranges).items():
            key = task.task.id, name
            if key not in self._readers:
                self._readers[key] = DivisionReader(self.cluster.of(name), LOST, PATIENCE)
            read |= self._readers[key].read(some)
        if all(r.end == r.start for r in division):
            self.forget(task.task.id)
        return [
            Slice(i.input.id, i.place.topic, i.place.partition, Records.of(messages, headers=i.input.headers))  # type: ignore[arg-type]
            for i in task.inputs
            if (messages := read.get(i.place))
        ]

    def forget(self, task: TaskId) -> None:
        """It reads no more, or again from elsewhere."""
        for key in [key for key in self._readers if key[0] == task]:
            self._readers.pop(key).close()

    def close(self) -> None:
        """Close the readers."""
        for task in {task for task, _ in self._readers}:
            self.forget(task)
