"""From the records of a table's topic to rows with weights: +1 is the key's new row, −1 means that the key has no row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import Format, Key
from falkirk.stream.operators.sources.source import Source, SourceReader, joined


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableSource(Source):
    """A topic where only the last record of each key counts: a row, or a tombstone that removes the row."""

    kind: ClassVar[str] = "table"
    latest_per_key: ClassVar[bool] = True
    key: Key
    broadcast: bool
    """Whether every task has the whole table, regardless of the topic's partitions."""

    @property
    def value_columns(self) -> Sequence[str]:
        """The columns that are read from values; the others are the key's, and read from there."""
        return [c for c in self.schema if c not in self.key.columns]

    def reader(self, value: Format) -> SourceReader:
        return TableReader(self, value)


class TableReader(SourceReader):
    """Decodes one table for one task."""

    source: TableSource

    def read(self, run: StepRun) -> Batch | None:
        """One row per record, with the key's columns from the key. A tombstone has only the key's columns. A record whose key
        or value does not decode becomes a failure of the run, and the key's row does not change."""
        slices = run.slices(self.source.id)
        if not slices:
            return None
        pieces = [s.records for _, s in slices]
        keys, values = joined([records.keys for records in pieces]), joined([records.values for records in pieces])
        there = [i for i, value in enumerate(values) if value is not None]
        decoded = self.value.decode([values[i] for i in there])
        named = self.source.key.decode(keys, self.source.schema)
        bad = dict(named.bad) | {there[i]: reason for i, reason in decoded.bad}
        bad |= {i: "null key" for i, key in enumerate(keys) if key is None}
        good = self._good(run, slices, sorted(bad.items()))
        if good is None:
            good = list(range(len(keys)))
        if not good:
            return None
        key_row = _places(len(keys), {i for i, _ in named.bad})
        gone = {i for i, value in enumerate(values) if value is None}
        value_row = _places(len(keys), gone | {there[i] for i, _ in decoded.bad})
        times = pl.Series(TS, joined([records.times for records in pieces]), dtype=pl.Int64)
        numbers = np.concatenate([np.arange(start, start + len(s.records)) for start, s in slices])
        weights = [-1 if values[i] is None else 1 for i in good]
        meta = [
            times[good],
            pl.Series(ORIGIN, numbers, dtype=pl.UInt32)[good],
            pl.Series(WEIGHT, weights, dtype=pl.Int64),
        ]
        rows = named.frame.select(pl.all().gather(key_row[good]))
        read = [c for c in decoded.frame.columns if c not in rows.columns]
        rows = rows.hstack(decoded.frame.select(pl.col(read).gather(value_row[good])))
        return Batch(rows, pl.DataFrame(meta))


def _places(count: int, missing: set[int]) -> pl.Series:
    """For each record, the index of its decoded row; null for a record without one."""
    rows = iter(range(count))
    return pl.Series([None if i in missing else next(rows) for i in range(count)], dtype=pl.UInt32)
