"""Edges between stages: batches of rows, one for each destination that has any, and step.

    value        as `falkirk.stream.dataflow.packing` has it; several tasks' for one destination may share a record
                 (`falkirk.checkpoint.bundles`)
    destination  task_of(shard(murmur2(key)), tasks); without a key, the sender's own number, modulo tasks

Behind the rows of a step goes the sender's watermark, if it has moved: to every destination, for each waits for all senders.
A batch above a limit goes as several, in order. Task, step and sequence number are in the record's headers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException

from falkirk.checkpoint.bundles import parts_of
from falkirk.errors import StateError, UserCodeError
from falkirk.state.shards import murmur2, shard_of, task_of
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, only
from falkirk.stream.dataflow.circuit import Emitted
from falkirk.stream.dataflow.packing import Mark, Packer, is_mark, mark_in, marked, rows_of, unpacked_all
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.stages.stage import Edge


class EdgeWriter:
    """The sending end, in one task."""

    def __init__(self, edge: Edge, task: int, partitions: Mapping[str, int]) -> None:
        self.edge, self.task, self.tasks = edge, task, partitions.get(edge.topic, 1)

    def run(self, run: StepRun, batch: Batch | None, mark: Mark | None = None) -> None:
        """Emit the rows, each to its destination, in their order; then the watermark."""
        sent: list[tuple[int, bytes, int]] = []
        if batch is not None:
            meta = [_small(column) for column in batch.meta.get_columns() if column.name != ORIGIN]
            try:
                sent += self._packed(only(batch.rows, self.edge.columns).hstack(meta))
            except PanicException as error:
                raise self._without_text(run, batch) from error
        if mark is not None:
            data = marked(mark)
            sent += [(task, data, run.step.clock) for task in range(self.tasks)]
        run.emitted.append(
            Emitted(
                output=self.edge.id,
                topic=self.edge.topic,
                partitions=[task for task, _, _ in sent],
                keys=[None] * len(sent),
                values=[data for _, data, _ in sent],
                timestamps=[latest for _, _, latest in sent],
                bundles=True,
            )
        )

    def _packed(self, frame: pl.DataFrame) -> list[tuple[int, bytes, int]]:
        if self.edge.key is None:
            return packed_for(frame, np.full(frame.height, self.task % self.tasks))
        shards = shard_of(murmur2(self.edge.key.encode(frame)))
        return packed_for(frame, task_of(shards, self.tasks))

    def _without_text(self, run: StepRun, batch: Batch) -> UserCodeError:
        """The error of a row whose key has no text: it is a time in no calendar."""
        assert self.edge.key is not None
        for i in range(len(batch)):
            try:
                self.edge.key.encode(batch.rows[i : i + 1])
            except PanicException:
                break
        where = ", ".join(filter(None, [self.edge.after.where, run.span(batch, [i])]))
        columns = ", ".join(self.edge.key.columns)
        return UserCodeError(
            f"a time in {columns} is in no calendar", where=where, hint="leave the row out with a filter"
        )


class EdgeReader:
    """The receiving end, in one task."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.types = {column: edge.before.schema[column] for column in edge.columns}

    def read(self, run: StepRun) -> Batch | None:
        """One contiguous frame of all batches, in the order of records."""
        values: list[bytes | None] = []
        numbers: list[int] = []
        for start, piece in run.slices(self.edge.id):
            for number, value in enumerate(piece.records.values, start):
                try:
                    parts = parts_of(value)
                except msgspec.DecodeError as error:
                    raise StateError(
                        f"a record between stages is damaged: {error}", where=run.address(number)
                    ) from error
                for part in parts:
                    if part is not None and is_mark(part):
                        self._hear(run, mark_in(part, run.address(number)))
                    else:
                        values.append(part)
                        numbers.append(number)
        frames, heights = unpacked_all(values, lambda i: run.address(numbers[i]))
        if not frames:
            return None
        whole = self._whole(
            frames, lambda row: run.address(numbers[int(np.searchsorted(np.cumsum(heights), row, "right"))])
        )
        origins = pl.Series(ORIGIN, np.repeat(np.array(numbers, np.uint32), heights))
        meta = [
            c.cast(pl.Int64) if c.name == WEIGHT else c for c in whole.get_columns() if c.name not in self.edge.columns
        ]
        return self._in_time(run, Batch(only(whole, self.edge.columns), pl.DataFrame([*meta, origins])))

    def check(self, value: bytes | None, where: str) -> None:
        """That the rows of a record, which an earlier version of the flow may have sent, can be read. Raises StateError."""
        parts = [part for part in parts_of(value) if part is not None and not is_mark(part)]
        if frames := unpacked_all(parts, lambda _: where)[0]:
            self._whole(frames, lambda _: where)

    def _whole(self, frames: Sequence[pl.DataFrame], where: Callable[[int], str]) -> pl.DataFrame:
        """All rows as one frame. Some may have waited since an earlier version of the flow sent them, with other columns.
        Raises StateError if they cannot be read; `where` gives the origin of a row by its number."""
        with suppress(pl.exceptions.ShapeError, pl.exceptions.SchemaError):
            whole = pl.concat(frames, rechunk=True)
            if self._is_of_now(whole.schema):  # as nearly always
                return whole
            frames = [whole]
        found: list[pl.DataFrame] = []
        row = 0
        for frame in frames:
            if missing := [c for c in self.edge.columns if c not in frame.columns]:
                raise _other_version(f"do not have the column {missing[0]!r}", where(row))
            now = self._as_now(frame)
            if now is None:
                raise _other_version("take rows back, which are never taken back now", where(row))
            if other := [c for c, dtype in now.schema.items() if found and found[0].schema[c] != dtype]:
                types = f"{now.schema[other[0]]} and {found[0].schema[other[0]]}"
                raise _other_version(f"have {other[0]!r} as {types}", where(row))
            found.append(now)
            row += frame.height
        return pl.concat(found, rechunk=True)

    def _is_of_now(self, schema: pl.Schema) -> bool:
        return (WEIGHT in schema) == self.edge.changes and all(schema.get(c) == t for c, t in self.types.items())

    def _as_now(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Its rows with the columns of today, and numbers with today's type if they fit. None: they have retractions, and the
        edge has none."""
        own = [_number_as(frame[column], dtype) for column, dtype in self.types.items()]
        meta = [c for c in frame.get_columns() if c.name not in self.types and c.name in (TS, WEIGHT)]
        if not self.edge.changes:
            if WEIGHT in frame.columns and not (frame[WEIGHT] == 1).all():
                return None
            meta = [c for c in meta if c.name != WEIGHT]
        elif WEIGHT in frame.columns:
            meta = [c.cast(pl.Int64) if c.name == WEIGHT else c for c in meta]
        else:
            meta.append(pl.Series(WEIGHT, [1], dtype=pl.Int64).new_from_index(0, frame.height))
        return pl.DataFrame([*own, *sorted(meta, key=lambda c: c.name)])

    def _hear(self, run: StepRun, mark: Mark) -> None:
        if run.event_time is not None and self.edge.timed:
            run.event_time.hear(self.edge.id, mark)

    def _in_time(self, run: StepRun, batch: Batch) -> Batch:
        """Without the rows that are late here, because their sender was idle while others went on."""
        edge = self.edge
        if run.event_time is None or not edge.timed or edge.changes or edge.before.time is None:
            return batch
        late = run.event_time.behind(edge.id, batch.meta[TS].to_numpy())
        return batch.filter(pl.Series(~late)) if late.any() else batch


def _number_as(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """A column of numbers with another type, if no value is changed by that."""
    if column.dtype == dtype or not (column.dtype.is_integer() and dtype.is_numeric()):
        return column
    other = column.cast(dtype, strict=False)
    return other if other.null_count() == column.null_count() else column


def _other_version(words: str, where: str) -> StateError:
    return StateError(
        f"rows that wait between two stages {words}: another version of the flow sent them",
        where=where,
        hint="run that version until they are read (falkirk drain ends it then), and after that this one",
    )


def _small(column: pl.Series) -> pl.Series:
    """Weights as bytes, where they fit: nearly all of them are 1 or −1."""
    fits = column.name == WEIGHT and len(column) and column.min() >= -128 and column.max() <= 127  # type: ignore[operator]
    return column.cast(pl.Int8) if fits else column


def rows_in(value: bytes | None) -> int:
    """How many rows a record of an edge holds, in all its parts: one at least, for it waits to be read, damaged or not."""
    try:
        return max(1, sum(map(rows_of, parts_of(value))))
    except msgspec.DecodeError:
        return 1


def packed_for(
    frame: pl.DataFrame, places: npt.NDArray[np.int64], most: int = sys.maxsize
) -> list[tuple[int, bytes, int]]:
    """The rows of each place, in their order, as batches of so many rows at most: place, batch, greatest timestamp.
    `places` says for each row which is its own."""
    order = np.argsort(places, kind="stable")
    packer = Packer(frame, order)
    return [
        (place, data, latest)
        for place, (start, end) in ranges(places[order])
        for first in range(start, end, most)
        for data, latest in packer.pack(first, min(first + most, end))
    ]


def ranges(sorted_places: npt.NDArray[np.int64]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Each place, with the first of its rows and the one after its last.

    >>> list(ranges(np.array([0, 0, 3])))
    [(0, (0, 2)), (3, (2, 3))]
    """
    present, starts = np.unique(sorted_places, return_index=True)
    bounds = [*starts.tolist(), len(sorted_places)]
    yield from zip(present.tolist(), pairwise(bounds), strict=True)
