"""`stream.unique()`: each row once, however often it comes.

count'[row]  = count[row] + Σ weights of the row in this step
output[row]  = (count'[row] > 0) − (count[row] > 0)            +1: it came, −1: it is gone
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.state.codec import check_key_type, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, present
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.names import default_id
from falkirk.stream.formats import Key, column_key
from falkirk.stream.operators.groups.multiset import check_counts, counts_in

TABLE = "rows"
COUNT = pl.Schema({"rows": pl.Int64()})


def unique(before: Operator, line: str, *, id: str | None = None, version: int = 1) -> Operator:  # noqa: A002
    """Each row once, however often it comes. State: a count for each row that is there.

    `id` names the operator and its state. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> flow.source("clicks", value=fk.Json({"user": int})).unique().sink("users", key="user", value=fk.Json())
    >>> fk.testing.run(flow, {"clicks": [{"user": 7}, {"user": 8}, {"user": 7}]}).sinks["users"].rows
    [{'user': 7}, {'user': 8}]
    """
    name = id or default_id(before.id, "unique")
    for column, dtype in before.schema.items():
        check_key_type(dtype, where=f"column {column!r} of unique {name!r} ({line})")
    key, root = placed(before, tuple(before.schema), name)
    return Unique(
        id=name, line=line, inputs=(before,), schema=before.schema, changes=before.changes,
        unique=frozenset(before.schema), partitioned=key, root=root, regime=before.regime, version=version,
        time=None if before.changes else before.time,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Unique(Operator):
    """Each row once, however often it comes."""

    kind: ClassVar[str] = "unique"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = TABLE
    version: int

    @property
    def state_columns(self) -> Sequence[str]:
        return tuple(self.schema)

    def state_words(self) -> str:
        return f"{self.id} v{self.version}: {words(self.schema)} → {words(COUNT)} (placed by {self.partitioned!r})"

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {TABLE: COUNT}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def runner(self, task: TaskContext) -> Runner:
        return UniqueRunner(self, task)

    def exchange(self) -> Exchange:
        return UniqueExchange(self)


class UniqueRunner(Runner):
    """One `unique` in one task."""

    def __init__(self, operator: Unique, task: TaskContext) -> None:
        assert operator.partitioned is not None
        self.operator, self.key, self.columns = operator, operator.partitioned, list(operator.schema)
        self.table, self.partitioners = task.tables[TABLE], task.partitioners

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.operator.changes)
        if batch is None:
            return None
        change = pl.col(WEIGHT).sum() if self.operator.changes else pl.len().cast(pl.Int64)
        counted = (
            batch.rows.hstack(batch.meta)
            .group_by(self.columns, maintain_order=True)
            .agg(change.alias(WEIGHT), pl.col(TS).max())
        )
        rows = counted.select(self.columns)
        before = self._count(run, rows, counted[WEIGHT])
        after = before + counted[WEIGHT]
        sign = ((after > 0).cast(pl.Int64) - (before > 0).cast(pl.Int64)).alias(WEIGHT)
        meta = counted.select(TS).hstack([sign]) if self.operator.changes else counted.select(TS)
        return Batch(rows, meta).filter(sign != 0)

    def _count(self, run: StepRun, rows: pl.DataFrame, change: pl.Series) -> pl.Series:
        """Add the change to the counts of these rows; returns the counts before."""
        spelt = self.key.encode(rows)
        hashes = murmur2(spelt)
        full = encode_keys(self.table, shard_of(hashes), rows.get_columns())
        before = counts_in(run.state.get(full), COUNT, "rows")
        if self.partitioners is not None:
            self.partitioners.check(spelt, hashes, before == 0, lambda _: "")
        after = before + change
        check_counts(after, rows, self.operator.where)
        run.state.put(full, present(encode_values(COUNT, pl.DataFrame({"rows": after})), after != 0))
        return before


class UniqueExchange(SendsRows):
    """The batch form: equal rows meet in a bucket, where the first of them counts."""

    def __init__(self, operator: Unique) -> None:
        self.columns = list(operator.schema)
        self.key = column_key(self.columns)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(self.columns).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        rows = whole.group_by(self.columns, maintain_order=True).agg(pl.col(TS).max())
        yield Batch(rows.select(self.columns), rows.select(TS))
