"""`stream.agg(…)`: one row for a whole stream, kept up to date in one task.

rows ──▶ partials, in each task ──edge──▶ total, in one task

state'  = merge(state, partials of all tasks)
change  = (result(state), −1) + (result(state'), +1)         no row, as long as there are no rows

For a best value, the values of `.values` tables are the best values of tasks: as many as there are tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.state.codec import decode_values, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.aggregates.bound import new, old
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.exchange import BucketRun, Exchange
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.frames import frame_of
from falkirk.stream.formats import Key
from falkirk.stream.operators.groups.folding import ROWS, Folding
from falkirk.stream.operators.groups.group_batch import PartialExchange
from falkirk.stream.operators.groups.group_versions import GROUPS
from falkirk.stream.operators.groups.multiset import Multiset, check_counts
from falkirk.stream.operators.groups.partials import AFTER, BEFORE, EVERYTHING, KEYED, Partials, side


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Total(Operator):
    """One row for a whole stream."""

    kind: ClassVar[str] = "agg"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = GROUPS
    version: int
    partials: Partials

    @property
    def state_columns(self) -> Sequence[str]:
        return (EVERYTHING,)

    @property
    def state_schema(self) -> pl.Schema:
        """The parts of all aggregates."""
        return pl.Schema({column: dtype for b in self.partials.bounds for column, dtype in b.states().items()})

    def keys(self, port: int) -> Key | None:
        return Key(EVERYTHING)

    @property
    def words(self) -> str:
        kept = ", ".join(f"{b.name} = {b.kind}" for b in self.partials.bounds if b.name)
        return f"agg {self.id}: {kept}; in one task, from partials of all tasks"

    def state_words(self) -> str:
        kept = "; ".join(f"{b.name or 'rows'} = {b.words} [{words(b.parts)}]" for b in self.partials.bounds)
        return f"{self.id} v{self.version}: everything → {kept}"

    def tables(self) -> Sequence[str]:
        return [GROUPS, *(b.name for b in self.partials.bests)]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {GROUPS: self.state_schema}

    def placed_by(self, table: str) -> Key | None:
        return Key(EVERYTHING)

    def readable(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        before = self.partials.inputs[0]
        folding = Folding(self.partials, [EVERYTHING], self.partials.bounds, weighted=before.changes)
        keys = rows.select(EVERYTHING)
        with folding.blaming(keys):
            return keys.hstack(folding.results(rows))

    def runner(self, task: TaskContext) -> Runner:
        return TotalRunner(self, task)

    def exchange(self) -> Exchange:
        return TotalExchange(self.partials)


class TotalRunner(Runner):
    """The one task that has the row."""

    def __init__(self, operator: Total, task: TaskContext) -> None:
        self.operator, partials = operator, operator.partials
        self.retracts, self.schema = partials.inputs[0].changes, operator.state_schema
        self.folding = Folding(partials, [EVERYTHING], partials.bounds, weighted=self.retracts)
        self.exchange = PartialExchange(partials, [EVERYTHING], partials.merging, weighted=self.retracts)
        self.keys = frame_of([{EVERYTHING: True}], KEYED)
        self.shards = shard_of(murmur2(Key(EVERYTHING).encode(self.keys)))
        self.full = encode_keys(task.tables[GROUPS], self.shards, self.keys.get_columns())
        self.multisets = [
            Multiset(b.of_parts(), [EVERYTHING], [EVERYTHING], task.tables[b.name], operator.where, weighted=True)
            for b in partials.bests
        ]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=False)
        if batch is None:
            return None
        (found,) = run.state.get(self.full)
        before = frame_of([{}], self.schema) if found is None else decode_values(self.schema, [found])
        parts = [
            batch.rows[name].alias(kept) for name, kept in zip(self.exchange.types, self.exchange.kept, strict=True)
        ]
        partials = self.exchange.condensed([pl.DataFrame([batch.rows[EVERYTHING], *parts, batch.meta[TS]])])
        came = [c for multiset in self.multisets for c in self._best(run, batch, multiset, before)]
        with self.folding.blaming(self.keys):
            after = self.folding.merged(pl.DataFrame([*partials.get_columns()[:-1], *came]).hstack(before))
            after = after.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
            results = [pl.DataFrame(self.folding.results(states)) for states in (before, after)]
        there = True
        if self.retracts:
            rows = after[old(ROWS, "rows")]
            check_counts(rows, self.keys, self.operator.where)
            there = bool(rows[0])
        run.state.put(self.full, encode_values(self.schema, after) if there else [None])
        return self._change(results[0], results[1], partials[TS], had=found is not None, has=there)

    def _best(self, run: StepRun, batch: Batch, multiset: Multiset, before: pl.DataFrame) -> list[pl.Series]:
        """The best of the best values of tasks."""
        name, parts = multiset.bound.name, list(multiset.bound.parts)
        sides = [
            batch.rows.select(
                EVERYTHING,
                *(pl.col(side(of, name, part)).alias(new(name, part)) for part in parts),
                pl.lit(weight, pl.Int64).alias(WEIGHT),
            )
            for of, weight in ((BEFORE, -1), (AFTER, 1))
        ]
        return multiset.partials(run.state, pl.concat(sides), self.keys, self.shards, before)

    def _change(self, old: pl.DataFrame, new: pl.DataFrame, times: pl.Series, *, had: bool, has: bool) -> Batch | None:
        """The row that leaves, and the one that comes."""
        if had and has and old.equals(new):
            return None
        rows = [*([(old, -1)] if had else []), *([(new, 1)] if has else [])]
        if not rows:
            return None
        weights = pl.Series(WEIGHT, [weight for _, weight in rows], dtype=pl.Int64)
        meta = pl.DataFrame([times.new_from_index(0, len(rows)), weights])
        return Batch(pl.concat([row for row, _ in rows]), meta)


class TotalExchange(PartialExchange):
    """The batch form: a pile keeps one row."""

    def __init__(self, partials: Partials) -> None:
        bounds = [b.append_only() for b in partials.bounds if b.name != ROWS]
        super().__init__(partials, [EVERYTHING], bounds)

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        for batch in super().received(run, parcels):
            yield Batch(batch.rows.drop(EVERYTHING), batch.meta)
