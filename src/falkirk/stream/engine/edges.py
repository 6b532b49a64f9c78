"""Edges between stages: batches of rows in Arrow's IPC stream format, one record for each destination and step.

    value        version (1 byte) · Arrow IPC stream: the rows, their timestamps, and their weights if they have any
    destination  task_of(shard(murmur2(key)), tasks); without a key, the sender's own number, modulo tasks

A batch above a limit goes as several records, in order. Task, step and sequence number are in the record's headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import StateError
from falkirk.state.shards import murmur2, shard_of, task_of
from falkirk.stream.circuit import Emitted
from falkirk.stream.engine.batch import ORIGIN, TS, Batch
from falkirk.stream.engine.step import StepRun
from falkirk.stream.stage import Edge

VERSION = 1
LIMIT = 512 << 10
"""Bytes of one record before compression: well below the broker's default for the largest (1 MiB)."""


class EdgeWriter:
    """The sending end, in one task."""

    def __init__(self, edge: Edge, task: int, partitions: Mapping[str, int]) -> None:
        self.edge, self.task, self.tasks = edge, task, partitions.get(edge.topic, 1)

    def run(self, run: StepRun, batch: Batch) -> None:
        """Emit the rows, each to its destination, in their order."""
        frame = batch.rows.select(self.edge.columns).hstack(batch.meta.select(pl.exclude(ORIGIN)))
        sent: list[tuple[int, bytes, int]] = []
        for task, part in self._divided(frame):
            sent += [(task, data, latest) for data, latest in packed(part)]
        run.emitted.append(
            Emitted(
                output=self.edge.id,
                topic=self.edge.topic,
                partitions=[task for task, _, _ in sent],
                keys=[None] * len(sent),
                values=[data for _, data, _ in sent],
                timestamps=[latest for _, _, latest in sent],
            )
        )

    def _divided(self, frame: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
        if self.edge.key is None:
            return [(self.task % self.tasks, frame)]
        return divided(frame, task_of(shard_of(murmur2([k or b"" for k in self.edge.key.encode(frame)])), self.tasks))


class EdgeReader:
    """The receiving end, in one task."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.columns = list(edge.columns)

    def read(self, run: StepRun) -> Batch | None:
        """One contiguous frame of all batches, in the order of records."""
        frames = []
        for start, piece in run.slices(self.edge.id):
            for i, (value, offset) in enumerate(zip(piece.records.values, piece.records.offsets, strict=True)):
                frame = unpacked(value, f"topic {piece.topic}, partition {piece.partition}, offset {offset}")
                frames.append(frame.with_columns(pl.lit(start + i, pl.UInt32).alias(ORIGIN)))
        if not frames:
            return None
        whole = pl.concat(frames, rechunk=True)
        return Batch(whole.select(self.columns), whole.select(pl.exclude(self.columns)))


def divided(frame: pl.DataFrame, places: npt.NDArray[np.int64]) -> list[tuple[int, pl.DataFrame]]:
    """The rows of each place, in their order; `places` says for each row which is its own."""
    order = np.argsort(places, kind="stable")
    present, starts = np.unique(places[order], return_index=True)
    return [(place, frame[rows]) for place, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True)]


def packed(frame: pl.DataFrame) -> list[tuple[bytes, int]]:
    """The frame as records, each below the limit if it has more rows than one, and the greatest timestamp of each."""
    out = BytesIO()
    frame.write_ipc_stream(out, compression="uncompressed")
    data = out.getvalue()
    if len(data) < LIMIT or frame.height == 1:
        return [(bytes([VERSION]) + data, frame[TS].max())]  # type: ignore[list-item]
    half = frame.height // 2
    return packed(frame[:half]) + packed(frame[half:])


def unpacked(value: bytes | None, where: str) -> pl.DataFrame:
    """The frame of a record. Raises StateError for one of another version."""
    if not value or value[0] != VERSION:
        raise StateError(
            f"a batch between stages is of version {value[0] if value else None}, and this Falkirk reads {VERSION}",
            where=where,
            hint="run the version that wrote it until the topic is drained",
        )
    return pl.read_ipc_stream(value[1:])
