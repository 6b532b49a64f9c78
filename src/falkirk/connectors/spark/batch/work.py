"""What is to be done in an epoch, in plain values: it travels to every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from falkirk.checkpoint.ids import Epoch, Offset, OwnerId
from falkirk.checkpoint.publishing import Outcome, Part, progress_place
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.epochs import publisher
from falkirk.connectors.spark.columns import arrow_type
from falkirk.stream.backfill import BackfillJob, Turn
from falkirk.stream.batch import PARCELS, Job, Piece

ARROW = pa.schema([(name, arrow_type(dtype)) for name, dtype in PARCELS.items()])
"""PARCELS, as Spark has them."""

GHOST = b"ghost"
"""The `payload` of a row that is no record, but the key of one that an earlier epoch wrote."""

LAST = b"\xff"
"""The `order` of such a row: it comes after all records of its key."""

MARK = -1
"""The `exchange` of a row that is no record either: it is there so that its result partition is."""


class Ghosts(NamedTuple):
    """Where an earlier epoch's records of a sink lie that is replaced: start ≤ offset < end."""

    sink: int
    topic: str
    partition: int
    start: Offset
    end: Offset


class Buried(NamedTuple):
    """Where this epoch's own tombstones may lie, from a start on: those that an attempt published which has died.

    What they bury may be gone by now, compacted or too old, and is a ghost all the same: for the rows that are published
    already must be computed again.
    """

    sink: int
    topic: str
    partition: int
    start: Offset


Share = Piece | Turn | Ghosts | Buried | None
"""What a task of the head does: read a piece, run a history, or find ghosts; None: mark result partitions."""


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that gets result rows."""

    topic: str
    partitions: int
    keyed: bool
    """Keys place records as Java's producers do; else all of a result partition go to one."""
    last: bool = False
    """Of each key, what its task wrote last is what counts, and a tombstone is nothing."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """Under which names an epoch's results are published."""

    epoch: Epoch
    opening: Offset
    """Where the record lies that opened the epoch."""
    progress: str
    """The topic whose partition p + 1 says how far result partition p is."""
    app: str
    stage: str
    targets: tuple[Target, ...]
    """Of each output, in the order of their numbers."""
    transaction_timeout_ms: int = 60_000
    batch_bytes: int = 1_000_000
    """The least that any of the topics accepts as one batch or record."""

    @property
    def what(self) -> str:
        """In words."""
        return f"epoch {self.epoch} of {self.app}.{self.stage}"

    def owner(self, result_partition: int) -> OwnerId:
        """The transactional id of a result partition."""
        return publisher(self.app, self.stage, result_partition)

    def part(self, result_partition: int) -> Part:
        """The protocol's name of a result partition."""
        return Part(progress_place(self.progress, result_partition), self.epoch, self.opening)


@dataclass(frozen=True, slots=True)
class Work:
    """All of it. Each task of the head has one of the shares."""

    job: Job | BackfillJob
    cluster: Cluster
    shares: Sequence[Share]
    topic_ids: Mapping[str, str]
    """Kafka's id of each topic whose offsets the pieces mean."""
    headers: Sequence[bool]
    """Whether a source's records are wanted with their headers, by number."""
    publishing: Publishing
    checkpoints: str = ""
    """Where the bases of a backfill are kept: the URL of the checkpoint store."""


class Published(NamedTuple):
    """What became of a result partition."""

    result_partition: int
    outcome: Outcome
    records: int
    """That it has, whoever published them; tombstones included."""
    tombstones: int


def table(frame: pl.DataFrame) -> list[pa.RecordBatch]:
    """A frame of PARCELS for Spark."""
    batches: list[pa.RecordBatch] = frame.select(PARCELS.names()).to_arrow().cast(ARROW).to_batches()
    return batches
