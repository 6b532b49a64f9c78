"""What a running task asks of its worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId
from falkirk.checkpoint.records import Division
from falkirk.runtime.app.app import BoundInput, BoundTask
from falkirk.stream.dataflow.circuit import ShadowChunk, SharedRows, Slice


class Tables(Protocol):
    """A worker's broadcast tables: `falkirk.runtime.worker.reading.broadcast.SharedTables`."""

    def positions(self, task: BoundTask) -> dict[InputPartition, Offset]:
        """The positions of the tables that a task looks up."""
        ...

    def seen(self, task: BoundTask, *, held: bool = False) -> Mapping[str, SharedRows]:
        """Those tables, as they are now. `held`: for a step in a thread of its own, while they go on."""
        ...


class Rereader(Protocol):
    """Reads again what a task has read: `falkirk.runtime.worker.reading.rereading.KafkaRereader`."""

    def begins(self, inputs: Sequence[BoundInput]) -> Mapping[InputPartition, Offset]:
        """Where the app began to read them. Raises SourceError if that no longer exists."""
        ...

    def read(self, task: BoundTask, division: Division) -> list[Slice]:
        """The records. Raises SourceError and UnreachableError."""
        ...

    def take(self, task: BoundTask, at: Offset) -> ShadowChunk:
        """The next chunk of its shadow's changelog. Raises StateError and UnreachableError."""
        ...

    def forget(self, task: TaskId) -> None:
        """The task reads no more, or again from another position."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...
