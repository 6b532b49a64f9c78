"""The last row of each key, as rows with weights: a source that replaces rows, as a Z-set.

kept'[k]   = the last row of k that the step brings, or nothing if that is a deletion; else kept[k]
output     = Σ over the step's keys k with kept'[k] ≠ kept[k]:  −kept[k] + kept'[k]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.state.codec import decode_values, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.formats import Key

TABLE = "rows"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Latest(Operator):
    """The last row of each key. Of its input, +1 is the key's new row, and −1 means that the key has no row."""

    kind: ClassVar[str] = "latest"
    stateful: ClassVar[bool] = True
    passes_time: ClassVar[bool] = False
    table_ports: ClassVar[frozenset[int]] = frozenset({0})
    main_table: ClassVar[str] = TABLE
    partitioned: Key
    columns: tuple[str, ...]
    """Those of the key."""

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    @property
    def words(self) -> str:
        return f"latest {self.id}: the last row of each {', '.join(self.columns)}"

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.columns}
        return f"{self.id} v1: {words(keys)} → {words(self.table_schemas()[TABLE])} (placed by {self.partitioned!r})"

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        # If there are no other columns, state still records that the row exists.
        kept = [c for c in self.schema if c not in self.columns] or self.columns[:1]
        return {TABLE: pl.Schema({c: self.schema[c] for c in kept})}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def runner(self, task: TaskContext) -> Runner:
        return LatestRunner(self, task)

    def exchange(self) -> Exchange:
        return LatestExchange(self)

    def last(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The last row of each key, with its weight and the greatest timestamp."""
        return frame.group_by(self.columns, maintain_order=True).agg(pl.exclude(TS).last(), pl.col(TS).max())


class LatestRunner(Runner):
    """One such operator in one task."""

    def __init__(self, operator: Latest, task: TaskContext) -> None:
        self.operator, self.key, self.columns = operator, operator.partitioned, list(operator.columns)
        self.table, self.partitioners = task.tables[TABLE], task.partitioners
        self.kept = operator.table_schemas()[TABLE]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=True)
        if batch is None:
            return None
        last = self.operator.last(batch.rows.hstack(batch.meta.select(TS, WEIGHT)))
        spelt = self.key.encode(last)
        hashes = murmur2(spelt)
        full = encode_keys(self.table, shard_of(hashes), [last[c] for c in self.columns])
        before = run.state.get(full)
        if self.partitioners is not None:
            self.partitioners.check(spelt, hashes, pl.Series([v is None for v in before]), lambda _: "")
        come = (last[WEIGHT] > 0).to_list()
        encoded = encode_values(self.kept, last.select(self.kept.names()))
        after = [value if here else None for value, here in zip(encoded, come, strict=True)]
        touched = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        if not touched:
            return None
        run.state.put([full[i] for i in touched], [after[i] for i in touched])
        gone, new = (
            last[pl.Series([i for i in touched if rows[i] is not None], dtype=pl.UInt32)] for rows in (before, after)
        )
        was = decode_values(self.kept, [v for i in touched if (v := before[i]) is not None])
        names = self.operator.schema.names()
        old = gone.select(self.columns).hstack([c for c in was.get_columns() if c.name not in self.columns])
        weights = pl.Series(WEIGHT, [-1] * gone.height + [1] * new.height, dtype=pl.Int64)
        return Batch(
            pl.concat([old.select(names), new.select(names)], rechunk=True),
            pl.concat([gone.select(TS), new.select(TS)], rechunk=True).with_columns(weights),
        )


class LatestExchange(SendsRows):
    """The batch form: the rows of a key meet in a bucket in the order of their records, and the last one goes on."""

    def __init__(self, operator: Latest) -> None:
        self.operator, self.key, self.names = operator, operator.partitioned, operator.schema.names()

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.names).hstack(batch.meta.select(TS, WEIGHT))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        rows = self.operator.last(together([frame for _, frame in parcels])).filter(pl.col(WEIGHT) > 0)
        yield Batch(rows.select(self.names), rows.select(TS))
