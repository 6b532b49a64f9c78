"""Chunks of rows as Parquet files. A file is a chunk (`falkirk.checkpoint.outlets`):

    part-SINK-TOPIC ID-PARTITION-START.parquet      one for each chunk: its name says where it starts
    metadata "falkirk"                              where it ends, its task and steps, and how many rows each has

The topic's id keeps apart what was written before and after a reset. START has 20 digits, so the names of a partition sort by
it. Two workers that cut different chunks at the same start use the same name, so only one of them exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import msgspec
import polars as pl

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.places import Place
from falkirk.errors import StateError

FOOTER = 256 << 10
"""Bytes at the end of a file that nearly always hold its metadata."""


class StepRows(NamedTuple):
    """What one step of a task writes."""

    task: str
    step: int
    rows: pl.DataFrame


class Made(msgspec.Struct, frozen=True):
    """What a file says of itself."""

    app: str
    sink: str
    task: str
    topic: str
    partition: int
    start: int
    end: int
    """Its rows are the committed ones at these offsets of the topic, in whole steps."""
    steps: tuple[tuple[int, int], ...]
    """Each step with its number of rows."""


class ParquetOutlet:
    """`falkirk.checkpoint.outlets.Outlet` for one sink."""

    def __init__(self, place: Place, app: str, sink: str, topic_id: str) -> None:
        self.place, self._app, self._sink = place, app, sink
        # Kafka's ids are in the form of base64 that has slashes.
        self._stem = f"part-{sink}-{topic_id.replace('/', '_').replace('+', '-')}"

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        """The end that the last file names, or `begin`."""
        names = self.place.names(self._prefix(place), self._name(place, begin))
        return max(begin, Offset(self._made(max(names)).end)) if names else begin

    async def append(self, chunk: Chunk[Sequence[StepRows]]) -> bool:
        """Write a file, unless one starts there."""
        whole = pl.concat([step.rows for step in chunk.rows])
        steps: dict[int, int] = {}
        for step in chunk.rows:
            steps[step.step] = steps.get(step.step, 0) + step.rows.height
        place = chunk.place
        made = Made(
            self._app, self._sink, chunk.rows[0].task, place.topic, place.partition, chunk.start, chunk.end,
            tuple(steps.items()),
        )  # fmt: skip
        out = BytesIO()
        whole.write_parquet(out, metadata={"falkirk": msgspec.json.encode(made).decode()})
        return self.place.create(self._name(place, chunk.start), out.getvalue())

    def _made(self, name: str) -> Made:
        data = self.place.tail(name, FOOTER)
        length = int.from_bytes(data[-8:-4], "little") + 8
        if length > len(data):
            data = self.place.tail(name, length)
        return made_of(data[-length:], name)

    def _prefix(self, place: TopicPartition) -> str:
        return f"{self._stem}-{place.partition:05}-"

    def _name(self, place: TopicPartition, start: Offset) -> str:
        return f"{self._prefix(place)}{start:020}.parquet"


def made_of(data: bytes, name: str) -> Made:
    """What a file says of itself, by its footer. Raises StateError if it says nothing."""
    try:
        import pyarrow.parquet as pq  # only a flow with such a sink waits for it

        return msgspec.json.decode(pq.read_metadata(BytesIO(data)).metadata[b"falkirk"], type=Made)
    except (msgspec.MsgspecError, ValueError, OSError, KeyError, TypeError) as error:
        raise StateError(
            f"a file of the app cannot be read, so it is not known where the next one begins: {error}",
            where=name,
            hint="restore the file, or delete it: then its rows are written again, as far as Kafka still has them",
        ) from error
