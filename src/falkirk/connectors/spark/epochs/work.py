"""The work of an epoch, in plain values: it is sent to every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from falkirk.checkpoint.ids import Epoch, Offset, OwnerId
from falkirk.checkpoint.publishing import Outcome, Part, progress_place
from falkirk.connectors.kafka.app_topics.epochs import publisher
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.columns import arrow_type
from falkirk.stream.backfill import BackfillJob, HistoryTask
from falkirk.stream.batch import PARCELS, Job, Piece

ARROW = pa.schema([(name, arrow_type(dtype)) for name, dtype in PARCELS.items()])
"""PARCELS in Spark's types."""

GHOST = b"ghost"
"""The `payload` of a row that is not a record, but the key of an earlier epoch's record."""

LAST = b"\xff"
"""The `order` of such a row: it comes after all records of its key."""

MARK = -1
"""The `exchange` of a row that only makes its result partition exist: not a record either."""


class ReplacedRange(NamedTuple):
    """The range of an earlier epoch's records of a replaced sink: start ≤ offset < end."""

    sink: int
    topic: str
    partition: int
    start: Offset
    end: Offset


class TombstoneRange(NamedTuple):
    """Where this epoch's own tombstones may be, from a start on: those that a dead attempt published.

    The records that they delete may be gone by now, compacted or too old. They are still ghosts, because the rows that
    are already published must be computed again.
    """

    sink: int
    topic: str
    partition: int
    start: Offset


Share = Piece | HistoryTask | ReplacedRange | TombstoneRange | None
"""What a head task does: read a piece, run a history, or find ghosts; None: mark result partitions."""


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that gets result rows."""

    topic: str
    partitions: int
    keyed: bool
    """Keys place records as in Java's producers; else a result partition goes to one."""
    last: bool = False
    """For each key, only what its task wrote last counts; a tombstone is nothing."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The names under which an epoch is published."""

    epoch: Epoch
    opening: Offset
    """The offset of the epoch's opening record."""
    progress: str
    """The topic whose partition p + 1 says how far result partition p is."""
    app: str
    stage: str
    targets: tuple[Target, ...]
    """One for each output, in the order of numbers."""
    transaction_timeout_ms: int = 60_000
    batch_bytes: int = 1_000_000
    """The smallest limit of any topic for one batch or record."""

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
    """All of it. Each head task has one of the shares."""

    job: Job | BackfillJob
    cluster: Cluster
    shares: Sequence[Share]
    topic_ids: Mapping[str, str]
    """Kafka's id of each topic that the pieces read."""
    headers: Sequence[bool]
    """Whether a source's records need their headers, by number."""
    publishing: Publishing
    checkpoints: str = ""
    """The URL of the checkpoint store, which keeps a backfill's bases."""


class Published(NamedTuple):
    """What became of a result partition."""

    result_partition: int
    outcome: Outcome
    records: int
    """All that it has, published by any copy; with tombstones."""
    tombstones: int


def table(frame: pl.DataFrame) -> list[pa.RecordBatch]:
    """A frame of PARCELS for Spark."""
    batches: list[pa.RecordBatch] = frame.select(PARCELS.names()).to_arrow().cast(ARROW).to_batches()
    return batches
