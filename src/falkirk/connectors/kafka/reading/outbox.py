"""The log that a sink of files writes its rows to, as a publisher reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from confluent_kafka import IsolationLevel, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk, Trimmed
from falkirk.checkpoint.steps import HEADER, Maker, maker
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words, found_offset, translate
from falkirk.connectors.kafka.client.leaders import list_offsets
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.errors import StateError, UnreachableError
from falkirk.stream.dataflow.batch import TS, WEIGHT
from falkirk.stream.dataflow.packing import unpacked
from falkirk.stream.definition.outlets import WEIGHT_COLUMN

GONE = Words("rows that wait to be published are gone", "another worker has published them", Trimmed)
PIECE = 500
"""Records that are asked for at once."""
MOST = 64 << 20
"""Bytes of rows after which a chunk ends with the present step."""
PATIENCE = 20.0


class Outbox:
    """`falkirk.checkpoint.outlets.CommittedRows` on Kafka. Each call blocks; raises ClusterError."""

    def __init__(self, cluster: Cluster, most: int = MOST) -> None:
        self._cluster, self._most = cluster, most
        self._topics = Topics(cluster)
        self._admin = client(AdminClient, cluster.settings())

    async def begin(self, place: TopicPartition) -> Offset:
        """The first offset still kept."""
        return self._topics.offsets([place], "earliest")[place]

    async def trim(self, place: TopicPartition, below: Offset) -> None:
        """Delete what is published."""
        self._topics.trim({place: below})

    async def read(self, place: TopicPartition, start: Offset) -> Chunk[Sequence[StepRows]] | None:
        """The next whole steps. Below the last stable offset every transaction is decided and whole, so no step is cut."""
        end = self._stable_end(place)
        if end <= start:
            return None
        reader = DivisionReader(self._cluster, GONE, PATIENCE)
        try:
            return chunk_of(place, start, end, lambda a, b: reader.read({place: (a, b)})[place], self._most)
        finally:
            reader.close()

    def is_decided(self, place: TopicPartition) -> bool:
        """Whether no transaction is open in the partition."""
        end = self._topics.offsets([place], "latest")[place]
        return self._stable_end(place) >= end

    def _stable_end(self, place: TopicPartition) -> Offset:
        asked = {KafkaPartition(place.topic, place.partition): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        (future,) = list_offsets(self._admin, asked, IsolationLevel.READ_COMMITTED, timeout=10).values()
        try:
            return found_offset(future.result())
        except KafkaException as error:
            self._admin = client(AdminClient, self._cluster.settings())
            raise translate(error.args[0], f"topic {place.topic}") or UnreachableError(
                f"cannot ask for the end of {place.topic}: {error.args[0].str()}", hint="is Kafka running?"
            ) from error


def chunk_of(
    place: TopicPartition,
    start: Offset,
    end: Offset,
    read: Callable[[Offset, Offset], Sequence[Message]],
    most: int = MOST,
) -> Chunk[Sequence[StepRows]] | None:
    """The chunk from `start` up to `end`, which is no offset amid a step. It ends earlier, before a step, if it has `most`
    bytes by then, or if the columns change there. None: nothing is committed in between."""
    rows: list[StepRows] = []
    size, at = 0, start
    while at < end:
        upto = Offset(min(end, at + PIECE))
        for message in read(at, upto):
            made, value, offset = maker_of(message), message.value() or b"", Offset(message.offset() or 0)
            frame = public(unpacked(value, f"{place.topic}[{place.partition}] at offset {offset}"))
            new = not rows or made.step != rows[-1].step
            if rows and new and (size >= most or frame.schema != rows[-1].rows.schema):
                return Chunk(place, start, offset, rows, more=True)
            rows.append(StepRows(made.task, made.step, frame))
            size += len(value)
        at = upto
    return Chunk(place, start, end, rows) if rows else None


def maker_of(message: Message) -> Maker:
    """The step that wrote a record. Raises StateError."""
    headers: Sequence[tuple[str, Any]] = message.headers() or ()  # type: ignore[assignment]  # the stub says str or bytes
    found = next((maker(value) for name, value in headers if name == HEADER and value is not None), None)
    if found is None:
        raise StateError(
            "a record of a sink of files does not say which step wrote it",
            where=f"{message.topic()}[{message.partition()}] at offset {message.offset()}",
            hint="only Falkirk may write to this topic",
        )
    return found


def public(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows as they are in files: without the time that Falkirk keeps, and with a weight that has a name."""
    frame = frame.drop(TS)
    return (
        frame.with_columns(pl.col(WEIGHT).cast(pl.Int64)).rename({WEIGHT: WEIGHT_COLUMN}) if WEIGHT in frame else frame
    )
