"""From records to rows: one contiguous frame in (partition, offset) order, or the dead letters."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from itertools import chain
from typing import TypeVar

import msgspec
import numpy as np
import polars as pl

from falkirk.errors import SourceError
from falkirk.stream.circuit import Emitted, Slice
from falkirk.stream.engine.batch import ORIGIN, TS, Batch
from falkirk.stream.engine.step import StepRun
from falkirk.stream.formats import Format
from falkirk.stream.metadata import metadata_column
from falkirk.stream.operators import Source
from falkirk.stream.stage import DEAD_LETTERS

T = TypeVar("T")


class SourceReader:
    """Decodes one source for one task."""

    def __init__(
        self,
        source: Source,
        value: Format,
        *,
        app: str,
        stage: str,
        dead_letters: str,
        partitions: Mapping[str, int],
        bury_from: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """`bury_from` says, by topic and partition, at which offset burying begins: what is before it has been buried."""
        self.source, self.value, self.app, self.stage = source, value, app, stage
        self.dead_letters, self.dead_partitions = dead_letters, partitions.get(dead_letters, 1)
        self.bury_from = bury_from or {}

    def read(self, run: StepRun) -> Batch | None:
        """The rows of the source's slices. Records that do not decode go to the dead letters."""
        slices = run.slices(self.source.id)
        if not slices:
            return None
        pieces = [s.records for _, s in slices]
        decoded = self.value.decode(joined([records.values for records in pieces]))
        good = self._bury(run, slices, decoded.bad) if decoded.bad else None
        if good is not None and not good:
            return None
        times = pl.Series(TS, joined([records.times for records in pieces]), dtype=pl.Int64)
        numbers = np.concatenate([np.arange(start, start + len(s.records)) for start, s in slices])
        meta = [times, pl.Series(ORIGIN, numbers, dtype=pl.UInt32)]
        meta = meta if good is None else [column[good] for column in meta]
        rows = decoded.frame
        for column, what in self.source.metadata.items():
            whole = pl.concat([metadata_column(what, s.records, s.partition) for _, s in slices])
            rows = rows.with_columns((whole if good is None else whole[good]).alias(column))
        if self.source.checked:
            self._check_keys(slices, rows, good, len(numbers))
        return Batch(rows, pl.DataFrame(meta))

    def _check_keys(
        self, slices: list[tuple[int, Slice]], rows: pl.DataFrame, good: list[int] | None, total: int
    ) -> None:
        """The first record of each slice must have the key that its column spells."""
        key = self.source.key
        assert key is not None
        firsts = _firsts(slices)
        places = firsts if good is None else np.searchsorted(good, firsts)
        for (_, piece), first, row in zip(slices, firsts.tolist(), places.tolist(), strict=True):
            index = row if good is None else (good[row] if row < len(good) else total)
            if not first <= index < first + len(piece.records):
                continue
            (spelt,) = key.encode(rows[row : row + 1])
            if (found := piece.records.keys[index - first]) != spelt:
                raise SourceError(
                    f"the record's key is {found!r}, and column {', '.join(key.columns)} spells {spelt!r}",
                    where=f"source {self.source.id!r} ({self.source.line}), topic {piece.topic}, "
                    f"partition {piece.partition}, offset {piece.records.offsets[index - first]}",
                    hint='name the key\'s format, like fk.Key("id", fk.Int64BE); or, if the topic is keyed otherwise, '
                    "give repartition=True",
                )

    def _bury(self, run: StepRun, slices: list[tuple[int, Slice]], bad: list[tuple[int, str]]) -> list[int]:
        """Send what did not decode to the dead letters; the indexes of the rest."""
        firsts = _firsts(slices)
        partitions, keys, values, times = [], [], [], []
        for i, reason in bad:
            n = int(np.searchsorted(firsts, i, "right")) - 1
            piece, at = slices[n][1], i - int(firsts[n])
            if piece.records.offsets[at] < self.bury_from.get((piece.topic, piece.partition), 0):
                continue
            partitions.append(piece.partition % self.dead_partitions)
            keys.append(piece.records.keys[at])
            values.append(self._letter(piece, at, reason))
            times.append(piece.records.times[at])
        if values:
            run.bury(Emitted(DEAD_LETTERS, self.dead_letters, partitions, keys, values, times))
        lost = {i for i, _ in bad}
        return [i for i in range(sum(len(s.records) for _, s in slices)) if i not in lost]

    def _letter(self, piece: Slice, at: int, reason: str) -> bytes:
        records = piece.records
        return msgspec.json.encode(
            {
                "app": self.app,
                "stage": self.stage,
                "source": self.source.id,
                "topic": piece.topic,
                "partition": piece.partition,
                "offset": records.offsets[at],
                "timestamp": records.times[at],
                "reason": reason,
                "key": _base64(records.keys[at]),
                "payload": _base64(records.values[at]),
            }
        )


def _firsts(slices: list[tuple[int, Slice]]) -> np.ndarray:
    """The number of each slice's first record, among those of these slices."""
    return np.cumsum([0, *[len(s.records) for _, s in slices[:-1]]])


def joined(columns: list[list[T]]) -> list[T]:
    """One after the other."""
    return columns[0] if len(columns) == 1 else list(chain.from_iterable(columns))


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
