"""`stream.lookup(table)`, incrementally: what the table says is kept by key, and each row is joined with what is kept.

    kept'[k]   = the last row of k that the step brings, if it brings any, else kept[k]
    output     = { (row, kept'[key of row]) }

The table's rows are taken first, so that a lookup sees the table as of its step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import polars as pl

from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import Hashes, murmur2, shard_of
from falkirk.stream.circuit import State
from falkirk.stream.engine.batch import WEIGHT, Batch, Updates, everywhere
from falkirk.stream.engine.partitioners import Partitioners, some_keys
from falkirk.stream.engine.step import StepRun
from falkirk.stream.operators import Lookup
from falkirk.stream.tables import LOOKED_UP, looked_up_schema

_KEY = pl.Schema({"key": pl.Binary()})
"""State knows a key by the bytes that both sides write it as."""


class Joining(ABC):
    """Rows, joined with what is found by their keys."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.schema = looked_up_schema(lookup)

    def run(self, run: StepRun, rows: Batch | Updates | None, table: Batch | Updates | None) -> Batch | None:
        """Join the rows, which only come."""
        assert not isinstance(rows, Updates)
        return self.joined(run, rows) if rows is not None and len(rows) else None

    def joined(self, run: StepRun, batch: Batch) -> Batch:
        """The rows, each with what is kept of its key."""
        keys = self.lookup.on.encode(batch.rows)
        numbers: dict[bytes, int] = {}
        rows: list[int] = []
        for i, key in enumerate(keys):
            if key is not None and numbers.setdefault(key, len(numbers)) == len(rows):
                rows.append(i)
        known = list(numbers)
        kept, found = self._find(run, known, batch, rows) if known else (self.schema.to_frame(), [])
        places = pl.Series([None if key is None else found[numbers[key]] for key in keys], dtype=pl.UInt32)
        added = kept.select(pl.col(c).gather(places).alias(new) for c, new in self.lookup.columns.items())
        out = Batch(batch.rows.hstack(added), batch.meta)
        return out if self.lookup.how == "left" else out.filter(places.is_not_null())

    @abstractmethod
    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        """The rows that there are under some keys, and which is whose. `rows` says where in the batch each key is."""


class LookupRunner(Joining):
    """One lookup in one task, over the task's own state."""

    def __init__(self, lookup: Lookup, tables: Mapping[str, int], partitioners: Partitioners | None) -> None:
        super().__init__(lookup)
        self.partitioners = partitioners
        self.table = tables[LOOKED_UP]

    def run(self, run: StepRun, rows: Batch | Updates | None, table: Batch | Updates | None) -> Batch | None:
        """Keep what the table says, then join the rows."""
        if table is not None and len(table):
            self.keep(run, table.zset() if isinstance(table, Updates) else table)
        return super().run(run, rows, None)

    def keep(self, run: StepRun, table: Batch) -> None:
        """Take the rows of the table in: of each key, the last."""
        keys = self.lookup.key.encode(table.rows)
        last = {key: i for i, key in enumerate(keys) if key is not None}
        if not last:
            return
        known, rows = list(last), list(last.values())
        hashes = murmur2(known)
        self._check(run, known, hashes, everywhere(True, len(known)), table, rows)
        values: list[bytes | None] = list(encode_values(self.schema, table.rows[rows].select(self.schema.names())))
        if WEIGHT in table.meta.columns:
            weights = table.meta[WEIGHT][rows].to_list()
            values = [value if weight > 0 else None for value, weight in zip(values, weights, strict=True)]
        run.state.put(self._full(known, hashes), values)

    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        hashes = murmur2(keys)
        values = run.state.get(self._full(keys, hashes))
        there = [value for value in values if value is not None]
        if len(there) < len(values):
            self._check(run, keys, hashes, pl.Series([value is None for value in values]), batch, rows)
        nth = iter(range(len(there)))
        return decode_values(self.schema, there), [None if value is None else next(nth) for value in values]

    def _full(self, keys: Sequence[bytes], hashes: Hashes) -> list[bytes]:
        return encode_keys(self.table, shard_of(hashes), [pl.Series("key", keys, dtype=pl.Binary)])

    def _check(
        self, run: StepRun, keys: Sequence[bytes], hashes: Hashes, which: pl.Series, batch: Batch, rows: Sequence[int]
    ) -> None:
        """A key that lies elsewhere than its row is never found."""
        if self.partitioners is not None:
            self.partitioners.recall(lambda: self._known(run.state))
            self.partitioners.check(keys, hashes, which, lambda i: run.span(batch, [rows[i]]))

    def _known(self, state: State) -> list[bytes | None]:
        return decode_keys(_KEY, some_keys(state, {self.table}))["key"].to_list()


class SharedLookupRunner(Joining):
    """One lookup in a broadcast table."""

    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        return run.step.shared[self.lookup.inputs[1].id].find(keys)
