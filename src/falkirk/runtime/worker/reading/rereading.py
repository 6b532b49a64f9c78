"""Reads the inputs of tasks again, for operators that are rebuilt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId
from falkirk.checkpoint.records import Division
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import SourceError, StateError, UnreachableError
from falkirk.runtime.app.app import App, BoundInput, BoundTask
from falkirk.runtime.app.divisions import DivisionReaders
from falkirk.runtime.rebuild.beginnings import beginnings
from falkirk.state.store import Changes
from falkirk.stream.dataflow.circuit import ShadowChunk, Slice

LOST = Words(
    "records that are read again to rebuild an operator are gone",
    "the remaining records are not enough for its state: to continue without the old state, "
    "falkirk plan APP:FLOW --apply --drop ID; or give the flow another name, under which it starts from scratch",
    SourceError,
)
PATIENCE = 60.0
"""Seconds without any record, after which a cluster counts as away."""


@dataclass(slots=True)
class KafkaRereader:
    """`falkirk.runtime.worker.task_ports.Rereader`, for the tasks of a worker."""

    app: App
    cluster: Cluster
    topics: Topics
    _divisions: DivisionReaders = field(init=False)
    _shadows: dict[TaskId, BoundedReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._divisions = DivisionReaders(self.cluster, LOST, PATIENCE)

    def begins(self, inputs: Sequence[BoundInput]) -> dict[InputPartition, Offset]:
        """Where the app began to read them."""
        own = {i.partition: i.input for i in inputs}
        return beginnings(own, self.topics, self.app.recorded.topics, self.app.starts)

    def read(self, task: BoundTask, division: Division) -> list[Slice]:
        """The records, in the order of inputs."""
        slices = self._divisions.read(task, division)
        if all(r.end == r.start for r in division):
            self.forget(task.task.id)
        return slices

    def take(self, task: BoundTask, at: Offset) -> ShadowChunk:
        """The next chunk of its shadow's changelog."""
        assert task.shadow is not None
        place, end = task.shadow
        if task.task.id not in self._shadows:
            if not self.topics.describe([place.topic]):
                raise StateError(
                    f"topic {place.topic!r} is gone, and with it what was rebuilt beside the app",
                    where=f"task {task.task.id}",
                    hint=f"bring it back; or delete app {self.app.name!r}, and let it start from scratch",
                )
            self._shadows[task.task.id] = BoundedReader(self.cluster, (True,))
        reader, position = self._shadows[task.task.id], at
        rows: Changes = {}
        deadline = time.monotonic() + PATIENCE
        while position == at < end:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"nothing was read for {PATIENCE:g} s", where=f"{place.topic}[{place.partition}]"
                )
            rows, position = reader.read_changes(place, at, end)
        if position < end:
            return ShadowChunk(rows, position)
        self._shadows.pop(task.task.id).close()
        return ShadowChunk(rows, None)

    def forget(self, task: TaskId) -> None:
        """The task reads no more, or again from another position."""
        self._divisions.forget(task)
        if (reader := self._shadows.pop(task, None)) is not None:
            reader.close()

    def close(self) -> None:
        """Close the readers."""
        self._divisions.close()
        for reader in self._shadows.values():
            reader.close()
