"""One side of a join: its columns, its changes in a step, and its rows in state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.indexed import BLOCK, Block, Index
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.aggregates.bound import NEVER_ADDED
from falkirk.stream.dataflow.batch import TS, WEIGHT, chosen, everywhere
from falkirk.stream.dataflow.operator import Flowing, TaskContext, joined
from falkirk.stream.dataflow.partitioners import some_keys
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import Key

Numbers = npt.NDArray[np.int64]


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
        return pl.DataFrame([_canonical(batch[name]) for name in self.kept])


def _canonical(column: pl.Series) -> pl.Series:
    if not column.dtype.is_float():
        return column
    return (column + 0.0).fill_nan(float("nan")).cast(column.dtype)


class Change(NamedTuple):
    """What a step changes on one side: each row once, and never with weight 0."""

    rows: pl.DataFrame
    keys: list[bytes | None]
    """The join key of each row, as in state; None for a null."""
    weights: Numbers
    times: Numbers
    by_key: Mapping[bytes, Block]
    """The rows with a key, as bytes."""

    def total(self, key: bytes) -> int:
        """Σ weights of a key."""
        return sum(weight for weight, _ in self.by_key.get(key, {}).values())


class Found(NamedTuple):
    """Rows from an index, key by key."""

    rows: pl.DataFrame
    weights: Numbers
    times: Numbers
    spans: dict[bytes, tuple[int, int]]
    """By key: its first row, and how many it has."""

    def spans_of(self, keys: Sequence[bytes | None]) -> tuple[Numbers, Numbers]:
        """First rows and counts for these keys."""
        found = [(0, 0) if key is None else self.spans.get(key, (0, 0)) for key in keys]
        spans = np.array(found, np.int64).reshape(-1, 2)
        return spans[:, 0], spans[:, 1]


class SideRunner:
    """One side in one task."""

    def __init__(self, side: Side, table: str, task: TaskContext, where: str, *, weighted: bool) -> None:
        """`where` is for errors; `weighted`: the input can have retractions."""
        self.side, self.where, self.weighted = side, where, weighted
        self.table, self.partitioners = task.tables[table], task.partitioners

    def index(self, run: StepRun) -> Index:
        return Index(run.state, self.table)

    def change(self, flowing: Flowing | None) -> Change:
        """The rows of this step, each once."""
        batch = joined([flowing], weighted=self.weighted)
        if batch is None:
            nothing = np.zeros(0, np.int64)
            return Change(self.side.kept.to_frame(), [], nothing, nothing, {})
        rows = self.side.rows(batch.rows)
        packed = encode_values(self.side.kept, rows)
        weights = batch.meta[WEIGHT].to_list() if self.weighted else [1] * len(batch)
        net: dict[bytes, tuple[int, int, int]] = {}
        for i, (row, weight, time) in enumerate(zip(packed, weights, batch.meta[TS].to_list(), strict=True)):
            first, before, latest = net.get(row, (i, 0, time))
            net[row] = first, before + weight, max(time, latest)
        left = [(row, *entry) for row, entry in net.items() if entry[1]]
        numbers = np.array([entry for _, *entry in left], np.int64).reshape(-1, 3)
        rows = rows if len(left) == len(packed) else rows[numbers[:, 0]]
        keys = self._keys(rows)
        by_key: dict[bytes, Block] = {}
        for key, (row, _, weight, time) in zip(keys, left, strict=True):
            if key is not None:
                by_key.setdefault(key, {})[row] = weight, time
        return Change(rows, keys, numbers[:, 1], numbers[:, 2], by_key)

    def found(self, index: Index, keys: Iterable[bytes]) -> Found:
        """All rows of these keys, which are loaded."""
        packed, entries, spans = list[bytes](), list[tuple[int, int]](), dict[bytes, tuple[int, int]]()
        for key in keys:
            first = len(packed)
            for row, entry in index.entries(key):
                packed.append(row)
                entries.append(entry)
            spans[key] = first, len(packed) - first
        numbers = np.array(entries, np.int64).reshape(-1, 2)
        rows = decode_values(self.side.kept, packed) if packed else self.side.kept.to_frame()
        return Found(rows, numbers[:, 0], numbers[:, 1], spans)

    def add(self, index: Index, change: Change) -> None:
        """Add the change. Raises UserCodeError for a row that is taken back, but was never added."""
        missing = index.add(change.by_key)
        if missing is not None:
            row = decode_values(self.side.kept, [missing]).row(0, named=True)
            raise UserCodeError(
                f"a row of {row} is retracted, but was never added",
                where=self.where,
                hint=NEVER_ADDED,
            )

    def check(self, run: StepRun, index: Index, change: Change) -> None:
        """New keys must be in the right partition of their source's topic, or they never match."""
        if self.partitioners is None or not change.by_key:
            return
        new = pl.Series([key is not None and not index.rows(key) for key in change.keys], dtype=pl.Boolean)
        if new.any():
            spelt = self.side.key.encode(chosen(change.rows, new))
            self.partitioners.recall(lambda: self._known(run))
            hashes = murmur2([k or b"" for k in spelt])
            self.partitioners.check(spelt, hashes, everywhere(True, len(spelt)), lambda _: "")

    def _known(self, run: StepRun) -> list[bytes | None]:
        schema = pl.Schema({**{c: self.side.kept[c] for c in self.side.on}, BLOCK: pl.Int64()})
        return self.side.key.encode(decode_keys(schema, some_keys(run.state, {self.table})))

    def _keys(self, rows: pl.DataFrame) -> list[bytes | None]:
        on = [rows[c] for c in self.side.on]
        shards = shard_of(murmur2([k or b"" for k in self.side.key.encode(rows)]))
        keys: list[bytes | None] = [*encode_keys(0, shards, on)]
        if any(column.null_count() for column in on):
            for i in reduce(or_, (column.is_null() for column in on)).arg_true():
                keys[i] = None
        return keys
