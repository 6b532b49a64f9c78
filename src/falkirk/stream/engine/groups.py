"""`group_by(…).agg(…)`, incrementally.

state'[g] = merge(state[g], partial(rows of g))            for every group g that the step touches
change[g] = (result(state[g]), −1) + (result(state'[g]), +1)

rows ──▶ group_by, in order of first appearance ──▶ one get for all groups ──▶ merge ──▶ one put ──▶ Updates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import polars as pl

from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.aggregates.bound import old
from falkirk.stream.circuit import State
from falkirk.stream.engine.batch import ORIGIN, TS, WEIGHT, Batch, Updates, chosen, everywhere
from falkirk.stream.engine.folding import Folding
from falkirk.stream.engine.multiset import Multiset, check_counts
from falkirk.stream.engine.partitioners import Partitioners, some_keys
from falkirk.stream.engine.step import StepRun
from falkirk.stream.frames import frame_of
from falkirk.stream.operators import Group, Sink
from falkirk.stream.tables import GROUPS, ROWS, bounds, group_schema, multiset_bounds


class GroupRunner:
    """One grouping in one task."""

    def __init__(self, group: Group, tables: Mapping[str, int], partitioners: Partitioners | None) -> None:
        self.group, self.partitioners = group, partitioners
        self.table = tables[GROUPS]
        self.retracts = group.inputs[0].changes
        self.bounds = bounds(group)
        self.folding = Folding(group, self.bounds, weighted=self.retracts)
        self.schema = group_schema(group)
        (self.no_state,) = encode_values(self.schema, frame_of([{}], self.schema))
        self.multisets = [Multiset(b, group.columns, tables[b.name], group.where) for b in multiset_bounds(group)]

    def run(self, run: StepRun, batch: Batch) -> Updates:
        """Fold the rows into the groups' state, and say what changed."""
        columns = self.folding.columns
        frame = self.folding.arguments(run, batch)
        grouped = self.folding.partials(frame)
        # A select would go through the query engine for what is but a choice of columns.
        series = grouped.get_columns()
        keys, partials, meta = (
            pl.DataFrame(s) for s in (series[: len(columns)], series[len(columns) : -1], series[-1:])
        )

        spelling = self.group.partitioned
        assert spelling is not None
        key_bytes = spelling.encode(keys)
        hashes = murmur2([k or b"" for k in key_bytes])
        shards = shard_of(hashes)
        full = encode_keys(self.table, shards, keys.get_columns())
        before, had = self._states(run.state.get(full))
        if self.partitioners is not None and not had.all():
            self.partitioners.recall(lambda: spelling.encode(self._known(run.state)))
            self.partitioners.check(key_bytes, hashes, ~had, lambda group: self._rows(run, batch, keys, group))

        for multiset in self.multisets:
            partials = partials.with_columns(multiset.best(run.state, frame, keys, shards, before))
        with self.folding.blaming(keys, lambda group: self._rows(run, batch, keys, group)):
            after = self.folding.merged(partials.hstack(before))
            results = self.folding.results(before), self.folding.results(after)
        has = self._alive(keys, after)
        values: list[bytes | None] = list(encode_values(self.schema, after))
        if self.retracts:
            values = [v if alive else None for v, alive in zip(values, has, strict=True)]
        run.state.put(full, values)
        return Updates(
            old=keys.hstack(results[0]),
            new=keys.hstack(results[1]),
            had=had,
            has=has,
            meta=meta,
            columns=self.group.columns,
            key=spelling,
            key_bytes=key_bytes,
            hashes=hashes,
        )

    def visible(self, state: State, sink: Sink, keys: Sequence[bytes | None]) -> Batch | None:
        """The rows that these keys of a sink have now; None where the sink is not keyed by the groups."""
        group, key = self.group, sink.key
        columns = frozenset(group.columns)
        if key is None or sink.inputs[0].unique != columns or set(key.columns) != columns:
            return None
        decoded = key.decode(keys, {c: group.schema[c] for c in group.columns})
        if decoded.bad:
            return None
        frame = decoded.frame.select(group.columns)
        assert group.partitioned is not None
        shards = shard_of(murmur2([k or b"" for k in group.partitioned.encode(frame)]))
        states, had = self._states(state.get(encode_keys(self.table, shards, frame.get_columns())))
        rows = chosen(frame.hstack(self.folding.results(states)), had)
        return Batch(
            rows, pl.DataFrame({TS: [0] * rows.height, WEIGHT: [1] * rows.height}, {TS: pl.Int64, WEIGHT: pl.Int8})
        )

    def differences(
        self, run: StepRun, full: Sequence[bytes], before: list[bytes | None], after: list[bytes | None]
    ) -> Updates:
        """From some groups' states to others, by their keys in state: what of them is seen behind the grouping."""
        keys = decode_keys(pl.Schema({c: self.group.schema[c] for c in self.group.columns}), list(full))
        spelling = self.group.partitioned
        assert spelling is not None
        key_bytes = spelling.encode(keys)
        (old, had), (new, has) = self._states(before), self._states(after)
        with self.folding.blaming(keys):
            results = self.folding.results(old), self.folding.results(new)
        return Updates(
            old=keys.hstack(results[0]),
            new=keys.hstack(results[1]),
            had=had,
            has=has,
            meta=pl.DataFrame({TS: pl.Series([run.step.clock], dtype=pl.Int64).new_from_index(0, len(full))}),
            columns=self.group.columns,
            key=spelling,
            key_bytes=key_bytes,
            hashes=murmur2([k or b"" for k in key_bytes]),
        )

    def _states(self, found: list[bytes | None]) -> tuple[pl.DataFrame, pl.Series]:
        """A row of state a group, null where there is none; and whether there is one."""
        if None not in found:
            return decode_values(self.schema, cast("list[bytes]", found)), everywhere(True, len(found))
        there = pl.Series([v is not None for v in found])
        return decode_values(self.schema, [self.no_state if v is None else v for v in found]), there

    def _rows(self, run: StepRun, batch: Batch, keys: pl.DataFrame, group: int) -> str:
        """Where the rows of one group lie that this step brings, from the first to the last."""
        columns = self.folding.columns
        here = batch.rows.select(columns).with_row_index(ORIGIN)
        found = here.join(keys[group : group + 1], on=columns, nulls_equal=True, maintain_order="left")
        return run.span(batch, found[ORIGIN].to_list())

    def _known(self, state: State) -> pl.DataFrame:
        """Some groups that the task has."""
        schema = pl.Schema({c: self.group.schema[c] for c in self.group.columns})
        return decode_keys(schema, some_keys(state, {self.table}))

    def _alive(self, keys: pl.DataFrame, after: pl.DataFrame) -> pl.Series:
        """Which groups have rows left."""
        if not self.retracts:
            return everywhere(True, after.height)
        rows = after[old(ROWS, "rows")]
        check_counts(rows, keys, self.group.where)
        return rows > 0
