"""One side of a join: its columns, its changes in a step, and its rows in state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.entries import Numbers, Rows
from falkirk.state.indexed import ORDER, Index
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.aggregates.arguments import one_zero
from falkirk.stream.aggregates.bound import NEVER_ADDED
from falkirk.stream.dataflow.batch import TS, chosen, everywhere
from falkirk.stream.dataflow.operator import Flowing, TaskContext, joined
from falkirk.stream.dataflow.partitioners import some_keys
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import Key
from falkirk.stream.operators.joins.timeline import places_of


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join."""

    on: tuple[str, ...]
    """Columns: rows with equal values here match those of the other side."""
    key: Key
    """Places its rows in tasks. Equal values of `on` have equal bytes on both sides."""
    kept: pl.Schema
    """The columns in state."""

    def rows(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The kept columns. Equal rows have equal bytes: −0.0 is 0.0, and all NaNs are the same."""
        rows = pl.DataFrame([batch[name] for name in self.kept])
        floats = {name: dtype for name, dtype in rows.schema.items() if dtype.is_float()}
        if not floats:
            return rows
        return rows.with_columns(one_zero(pl.col(c), d).fill_nan(float("nan")).alias(c) for c, d in floats.items())


class Change(NamedTuple):
    """What a step changes on one side. Where rows can be taken back, each row comes once, and never with weight 0."""

    rows: pl.DataFrame
    keys: list[bytes | None]
    """The join key of each row, as in state; None for a null."""
    kept: Rows
    """The rows as bytes, with weights and times."""

    def slots(self, keys: Mapping[bytes | None, int]) -> Numbers:
        """The number of each row's key; −1 for a null."""
        return np.fromiter((keys.get(key, -1) for key in self.keys), np.int64, len(self.keys))


class There(NamedTuple):
    """Rows from an index. `firsts` and `counts` have a place for each key of the step, and a last one for null."""

    rows: pl.DataFrame
    weights: Numbers
    times: Numbers
    firsts: Numbers
    counts: Numbers


class SideRunner:
    """One side in one task."""

    def __init__(
        self,
        side: Side,
        table: str,
        task: TaskContext,
        where: str,
        *,
        weighted: bool,
        time: str | None = None,
        unit: int = 1,
    ) -> None:
        """`where` is for errors; `weighted`: the input can have retractions. With `time`, rows of a key are kept in the order
        of this column; `unit`: of a place, in a unit of the column."""
        self.side, self.where, self.weighted = side, where, weighted
        self.time, self.unit = time, unit
        self.table, self.partitioners = task.tables[table], task.partitioners

    def index(self, run: StepRun) -> Index:
        return Index(run.state, self.table)

    def change(self, flowing: Flowing | None) -> Change:
        """The rows of this step."""
        batch = joined([flowing], weighted=self.weighted)
        if batch is None:
            nothing = np.zeros(0, np.int64)
            return Change(self.side.kept.to_frame(), [], Rows([], nothing, nothing, nothing))
        rows = self.side.rows(batch.rows)
        kept = Rows(
            encode_values(self.side.kept, rows),
            batch.weights.to_numpy(),
            batch.meta[TS].to_numpy(),
            self.places(rows),
        )
        if self.weighted:
            kept, first = _each_once(kept)
            rows = rows if len(first) == rows.height else rows[first]
        return Change(rows, self.keys(rows), kept)

    def there(self, index: Index, keys: Sequence[bytes], slots: Numbers, size: int) -> There:
        """All rows of these keys, which have these numbers among the `size` keys of the step."""
        found = index.read(keys)
        firsts, counts = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
        firsts[slots], counts[slots] = found.firsts, found.counts
        return There(self.decoded(found.rows), found.rows.weights, found.rows.times, firsts, counts)

    def add(self, index: Index, change: Change) -> None:
        """Add the change. Raises UserCodeError for a row that is taken back, but was never added."""
        missing = index.add(change.keys, change.kept)
        if missing is not None:
            row = decode_values(self.side.kept, [missing]).row(0, named=True)
            raise UserCodeError(f"a row of {row} is retracted, but was never added", where=self.where, hint=NEVER_ADDED)

    def check(self, run: StepRun, index: Index, change: Change) -> None:
        """New keys must be in the right partition of their source's topic, or they never match."""
        if self.partitioners is None or not change.rows.height:
            return
        new = pl.Series([key is not None and not index.has(key) for key in change.keys], dtype=pl.Boolean)
        if new.any():
            spelt = self.side.key.encode(chosen(change.rows, new))
            self.partitioners.recall(lambda: self._known(run))
            hashes = murmur2(spelt)
            self.partitioners.check(spelt, hashes, everywhere(True, len(spelt)), lambda _: "")

    def _known(self, run: StepRun) -> list[bytes | None]:
        schema = pl.Schema({**{c: self.side.kept[c] for c in self.side.on}, ORDER: pl.Binary()})
        return self.side.key.encode(decode_keys(schema, some_keys(run.state, {self.table})))

    def decoded(self, found: Rows) -> pl.DataFrame:
        """Rows of an index as a frame."""
        return decode_values(self.side.kept, found.packed) if found.packed else self.side.kept.to_frame()

    def places(self, rows: pl.DataFrame) -> Numbers:
        """Where rows stand among those of their key: anywhere, if they are not kept by time."""
        return np.zeros(rows.height, np.int64) if self.time is None else places_of(rows[self.time], self.unit)

    def keys(self, rows: pl.DataFrame) -> list[bytes | None]:
        """The join key of each row, as in state; None if a column of it, or the time, is null."""
        on = [rows[c] for c in self.side.on]
        shards = shard_of(murmur2(self.side.key.encode(rows)))
        keys: list[bytes | None] = [*encode_keys(0, shards, on)]
        needed = on if self.time is None else [*on, rows[self.time]]
        if any(column.null_count() for column in needed):
            for i in reduce(or_, (column.is_null() for column in needed)).arg_true():
                keys[i] = None
        return keys


def _each_once(kept: Rows) -> tuple[Rows, Numbers]:
    """Equal rows as one, with the sum of their weights and their greatest time, and the number of the first of each; those
    that cancel each other are left out."""
    rows, weights, times = kept.packed, kept.weights, kept.times
    net = dict(zip(rows, range(len(rows)), strict=True))
    if len(net) == len(rows):
        return kept, np.arange(len(rows))
    numbers = {row: n for n, row in enumerate(net)}
    group = np.fromiter((numbers[row] for row in rows), np.int64, len(rows))
    first = np.full(len(net), len(rows))
    np.minimum.at(first, group, np.arange(len(rows)))
    total, latest = np.zeros(len(net), np.int64), times[first]
    np.add.at(total, group, weights)
    np.maximum.at(latest, group, times)
    left = np.flatnonzero(total)
    return Rows([rows[i] for i in first[left].tolist()], total[left], latest[left], kept.places[first[left]]), first[
        left
    ]
