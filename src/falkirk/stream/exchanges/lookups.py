"""`stream.lookup(table)` in a batch: the runner of the stream, over a state in memory. The table as of the division is known
before the first row is joined.

stream ──┐
         ├──by key──▶ table's rows first, in their order ──▶ rows, in theirs, joined
table ───┘
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from falkirk.stream.engine.batch import ORIGIN, TS, WEIGHT, Batch, everywhere, nulls
from falkirk.stream.engine.lookups import LookupRunner
from falkirk.stream.engine.step import StepRun
from falkirk.stream.exchanges.base import BucketRun, SendsRows
from falkirk.stream.exchanges.place import Place
from falkirk.stream.formats import Key
from falkirk.stream.operators import Lookup
from falkirk.stream.tables import LOOKED_UP

_SPELT, _OF_TABLE, _KEPT = "__falkirk_key", "__falkirk_of_table", "__falkirk_kept."


class LookupExchange(SendsRows):
    """Sends the rows of both sides as one table: the columns of the stream, then the table's, one side's of them null."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.key = Key(_SPELT)
        rows, table = (before.schema for before in lookup.inputs)
        self.rows = pl.Schema(rows)
        self.kept = {c: f"{_KEPT}{c}" for c in dict.fromkeys([*lookup.key.columns, *lookup.columns])}
        self.types = {_KEPT + c: table[c] for c in self.kept}
        self.runner = LookupRunner(lookup, {LOOKED_UP: 1}, None)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        of_table = port == 1
        spelt = (self.lookup.key if of_table else self.lookup.on).encode(batch.rows)
        meta = {
            _SPELT: pl.Series(spelt, dtype=pl.Binary),
            _OF_TABLE: everywhere(of_table, len(batch)),
            TS: batch.meta[TS],
            WEIGHT: batch.meta[WEIGHT] if WEIGHT in batch.meta.columns else nulls(pl.Int8(), len(batch)),
        }
        given = {new: batch.rows[c] for c, new in self.kept.items()} if of_table else batch.rows.to_dict()
        types = {**self.rows, **self.types}
        return pl.DataFrame({**{c: given[c] if c in given else nulls(t, len(batch)) for c, t in types.items()}, **meta})

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        waiting: list[tuple[Place, pl.DataFrame]] = []
        for place, frame in parcels:
            table = frame.filter(pl.col(_OF_TABLE))
            if table.height:
                self.runner.keep(run, self._of_table(table))
            if table.height < frame.height:
                waiting.append((place, frame.filter(~pl.col(_OF_TABLE))))
        for place, rows in waiting:
            origins = pl.Series([len(run.places)], dtype=pl.UInt32).new_from_index(0, rows.height).alias(ORIGIN)
            run.places.append(place)
            yield self.runner.joined(run, Batch(rows.select(self.rows.names()), rows.select(TS).hstack([origins])))

    def _of_table(self, table: pl.DataFrame) -> Batch:
        rows = table.select(pl.col(new).alias(c) for c, new in self.kept.items())
        return Batch(rows, table.select(TS, pl.col(WEIGHT).fill_null(1)))
