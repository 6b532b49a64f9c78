"""`stream.lookup(table)`, incrementally: what the table says is kept by key, and each row is joined with what is kept.

    kept'[k]   = the last row of k that the step brings, if it brings any, else kept[k]
    output     = { (row, kept'[key of row]) }

The table's rows are taken first, so that a lookup sees the table as of its step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import polars as pl

from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import Hashes, murmur2, shard_of
from falkirk.stream.circuit import State
from falkirk.stream.engine.batch import WEIGHT, Batch, Updates
from falkirk.stream.engine.partitioners import EVERYTHING, SOME, Partitioners
from falkirk.stream.engine.step import StepRun
from falkirk.stream.operators import Lookup
from falkirk.stream.tables import LOOKED_UP, looked_up_schema

_KEY = pl.Schema({"key": pl.Binary()})
"""State knows a key by the bytes that both sides write it as."""


class LookupRunner:
    """One lookup in one task."""

    def __init__(self, lookup: Lookup, tables: Mapping[str, int], partitioners: Partitioners | None) -> None:
        self.lookup, self.partitioners = lookup, partitioners
        self.table = tables[LOOKED_UP]
        self.schema = looked_up_schema(lookup)

    def run(self, run: StepRun, rows: Batch | Updates | None, table: Batch | Updates | None) -> Batch | None:
        """Keep what the table says, then join the rows, which only come."""
        assert not isinstance(rows, Updates)
        if table is not None and len(table):
            self.keep(run, table.zset() if isinstance(table, Updates) else table)
        return self.joined(run, rows) if rows is not None and len(rows) else None

    def keep(self, run: StepRun, table: Batch) -> None:
        """Take the rows of the table in: of each key, the last."""
        keys = self.lookup.key.encode(table.rows)
        last = {key: i for i, key in enumerate(keys) if key is not None}
        if not last:
            return
        known, rows = list(last), list(last.values())
        hashes = murmur2(known)
        self._check(run, known, hashes, pl.Series([True] * len(known)), table, rows)
        values: list[bytes | None] = list(encode_values(self.schema, table.rows[rows].select(self.schema.names())))
        if WEIGHT in table.meta.columns:
            weights = table.meta[WEIGHT][rows].to_list()
            values = [value if weight > 0 else None for value, weight in zip(values, weights, strict=True)]
        run.state.put(self._full(known, hashes), values)

    def joined(self, run: StepRun, batch: Batch) -> Batch:
        """The rows, each with what is kept of its key."""
        keys = self.lookup.on.encode(batch.rows)
        numbers: dict[bytes, int] = {}
        rows: list[int] = []
        for i, key in enumerate(keys):
            if key is not None and numbers.setdefault(key, len(numbers)) == len(rows):
                rows.append(i)
        known = list(numbers)
        hashes = murmur2(known)
        found = run.state.get(self._full(known, hashes)) if known else []
        there = [value for value in found if value is not None]
        if len(there) < len(found):
            self._check(run, known, hashes, pl.Series([value is None for value in found]), batch, rows)
        nth = iter(range(len(there)))
        row_of = {key: None if value is None else next(nth) for key, value in zip(known, found, strict=True)}
        places = pl.Series([None if key is None else row_of[key] for key in keys], dtype=pl.UInt32)
        kept = decode_values(self.schema, there)
        added = kept.select(pl.col(c).gather(places).alias(new) for c, new in self.lookup.columns.items())
        out = Batch(batch.rows.hstack(added), batch.meta)
        return out if self.lookup.how == "left" else out.filter(places.is_not_null())

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
        own = (key for key, _ in state.scan(*EVERYTHING) if key[2] == self.table)
        return decode_keys(_KEY, list(islice(own, SOME)))["key"].to_list()
