"""Reads the inputs of tasks again, on any cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Message

from falkirk.checkpoint.ids import TaskId, TopicPartition
from falkirk.checkpoint.records import Division
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.client.places import parted
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.runtime.app.app import BoundTask
from falkirk.stream.dataflow.circuit import Slice
from falkirk.stream.dataflow.records import Records


@dataclass(slots=True)
class DivisionReaders:
    """A reader for each task and each cluster that it reads from, positioned where it was last read."""

    cluster: Cluster
    lost: Words
    """The message for records that are gone."""
    patience: float = math.inf
    """Seconds without any record until a cluster counts as away."""
    _readers: dict[tuple[TaskId, str], DivisionReader] = field(default_factory=dict)

    def read(self, task: BoundTask, division: Division, go_on: Callable[[], None] = lambda: None) -> list[Slice]:
        """The records, in the order of the task's inputs. Raises as `DivisionReader.read` does."""
        ranges = {r.partition.place: (r.start, r.end) for r in division if r.end > r.start}
        read: dict[TopicPartition, list[Message]] = {}
        for name, some in parted(ranges).items():
            key = task.task.id, name
            if key not in self._readers:
                self._readers[key] = DivisionReader(self.cluster.of(name), self.lost, self.patience)
            read |= self._readers[key].read(some, go_on)
        return [
            Slice(i.input.id, i.place.topic, i.place.partition, Records.of(messages, headers=i.input.headers))  # type: ignore[arg-type]
            for i in task.inputs
            if (messages := read.get(i.place))
        ]

    def forget(self, task: TaskId) -> None:
        """The task reads no more, or again from another position."""
        for key in [key for key in self._readers if key[0] == task]:
            self._readers.pop(key).close()

    def close(self) -> None:
        """Close the readers."""
        for reader in self._readers.values():
            reader.close()
