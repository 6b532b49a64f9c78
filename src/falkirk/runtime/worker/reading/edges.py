"""The port of an edge: a log in partitions, between two stages or before the first.

    send              with the transaction of the step that made the rows: `falkirk.checkpoint.ports.Log.send`
    receive           from a position on, while it is read: `EdgeReader`
    read again        exactly what lies between two positions: `falkirk.runtime.worker.task_ports.Rereader`
    retained from     the position where a partition begins by now: `Rereader.begins`

Kafka's topics are one kind of edge (`falkirk.connectors.kafka.reading.sources`). Those of the testing kit are in memory
(`falkirk.testing.edges`).

A position is opaque to the worker. Of two positions of a partition it knows which comes first, and of a record the position
behind it (`falkirk.checkpoint.ids.after`). A division is a start and an end of each partition. What lies between them never
changes, as long as it is retained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.errors import SourceError
from falkirk.stream.dataflow.records import Message
from falkirk.stream.stages.plan import Stage

Runs = Sequence[tuple[TopicPartition, Sequence[Message]]]
"""Committed records of one partition each, in the order of positions."""


class EdgeReader(Protocol):
    """Reads partitions, each from a position on."""

    @property
    def ends(self) -> Mapping[TopicPartition, Offset]:
        """Where the end of a partition was last reached, since it was added."""
        ...

    @property
    def unreadable(self) -> Mapping[TopicPartition, SourceError]:
        """Partitions whose position is no longer retained, and why."""
        ...

    def add(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Begin to read partitions at the given positions."""
        ...

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; what was fetched ahead is dropped."""
        ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more of these partitions until they are resumed."""
        ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where it stopped."""
        ...

    def poll(self, timeout: float) -> tuple[Runs, int]:
        """What has come, and how many records. Waits up to `timeout` seconds for the first. Raises SourceError if positions
        go back: then the log is another one, and no position in it means what it did."""
        ...

    def at_end(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the end of each of these partitions has been reached since it was added."""
        ...

    def marks(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The ends of partitions, as far as they are known without a request."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


OpenEdges = Callable[[Sequence[Stage]], EdgeReader]
"""Makes a reader for the inputs of some stages."""
