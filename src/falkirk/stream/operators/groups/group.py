"""`group_by(…).agg(…)`, incrementally.

state'[g] = merge(state[g], partial(rows of g))            for every group g that the step touches
change[g] = (result(state[g]), −1) + (result(state'[g]), +1)

rows ──▶ group_by, in order of first appearance ──▶ one get for all groups ──▶ merge ──▶ one put ──▶ Updates
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, cast

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_types, decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.aggregates.bound import Bound, Context, old
from falkirk.stream.aggregates.builtin import BoundLen
from falkirk.stream.aggregates.values import OfValues
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, Updates, chosen, everywhere, matched, present
from falkirk.stream.dataflow.earlier import From, Function
from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import Change, Flowing, Operator, ResultRunner, Runner, TaskContext, joined
from falkirk.stream.dataflow.partitioners import Partitioners, some_keys
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import columns_read, text, words
from falkirk.stream.definition.frames import frame_of
from falkirk.stream.formats import Key
from falkirk.stream.operators.groups.folding import ROWS, Folding
from falkirk.stream.operators.groups.group_batch import group_exchange
from falkirk.stream.operators.groups.group_versions import (
    GROUPS,
    check_earlier_group,
    kept_aggregates,
    keyed_alike,
    regrouped,
)
from falkirk.stream.operators.groups.multiset import Multiset, check_counts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Group(Operator):
    """One row for each group, kept up to date."""

    kind: ClassVar[str] = "group_by"
    stateful: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = True
    keeps_result: ClassVar[bool] = True
    main_table: ClassVar[str] = GROUPS
    columns: tuple[str, ...]
    aggregates: Mapping[str, Bound]
    version: int

    @property
    def bounds(self) -> Sequence[Bound]:
        """The state of each group. With retractions it includes the number of rows: a group without rows is gone."""
        if not self.inputs[0].changes:
            return list(self.aggregates.values())
        count = BoundLen(Context(ROWS, self.inputs[0].schema, True, self.where), arguments={}, words="rows")
        return [count, *self.aggregates.values()]

    @property
    def multisets(self) -> Sequence[OfValues]:
        """The aggregates that need every value of a group."""
        return [b for b in self.aggregates.values() if isinstance(b, OfValues) and b.keeps_values]

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    @property
    def state_schema(self) -> pl.Schema:
        """The columns of a group's row of state."""
        return pl.Schema({column: dtype for b in self.bounds for column, dtype in b.states().items()})

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        arguments = [e for bound in self.aggregates.values() for e in bound.arguments.values()]
        return set(self.columns) | columns_read(arguments, self.inputs[port].schema)

    @property
    def words(self) -> str:
        kept = ", ".join(f"{b.name} = {b.kind}" for b in self.bounds if b.name)
        placed = ", ".join(self.partitioned.columns) if self.partitioned else ""
        return f"group_by {self.id}: {', '.join(self.columns)} → {kept}; state placed by {placed}"

    @property
    def exact_words(self) -> str:
        arguments = [f"{b.name}: {', '.join(map(text, b.arguments.values()))}" for b in self.aggregates.values()]
        return f"{self.state_words()}, {'; '.join(arguments)}"

    def runner(self, task: TaskContext) -> Runner:
        return GroupRunner(self, task.tables, task.partitioners)

    def exchange(self) -> Exchange:
        return group_exchange(self, self.columns, [b.append_only() for b in self.aggregates.values()])

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.columns}
        kept = "; ".join(f"{b.name or 'rows'} = {b.words} [{words(b.parts)}]" for b in self.bounds)
        return f"{self.id} v{self.version}: {words(keys)} → {kept} (placed by {self.partitioned!r})"

    def tables(self) -> Sequence[str]:
        return [GROUPS, *(b.name for b in self.multisets)]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {GROUPS: self.state_schema}

    def scales(self) -> Mapping[str, int]:
        return {f"{b.name}.{part}": scale for b in self.bounds for part, scale in b.scales.items()}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def readable(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        folding = Folding(self, self.columns, self.bounds, weighted=self.inputs[0].changes)
        keys = rows.select(self.state_columns)
        with folding.blaming(keys):
            return keys.hstack(folding.results(rows))

    def keyed_as(self, was: str) -> bool:
        return keyed_alike(was, self.state_words(), {c: self.schema[c] for c in self.columns})

    def was(self, one: From, where: str) -> Group:
        if not one.agg or one.state is not None or one.tables:
            raise DefinitionError(
                "it does not say which aggregates there were", where=where, hint='agg={"n": fk.len()}'
            )
        before = self.inputs[0]
        bound = {n: a.bind(Context(n, before.schema, before.changes, where)) for n, a in one.agg.items()}
        was = replace(self, version=one.version, aggregates=bound)
        check_value_types(was.state_schema, where)
        return was

    def check_earlier(self, was: Group, by: Mapping[str, Function], where: str) -> None:
        check_earlier_group(was, self, by, where)

    def carries(self, was: Group, table: str) -> bool:
        return table == GROUPS or table in {b.name for b in kept_aggregates(was, self)}

    def change(self, was: Group, function: Function | None, table: str) -> Change | None:
        same = table != GROUPS or (function is None and was.state_schema == self.state_schema)
        return None if same else partial(regrouped, was, self, function)


class GroupRunner(ResultRunner):
    """One grouping in one task."""

    def __init__(self, group: Group, tables: Mapping[str, int], partitioners: Partitioners | None) -> None:
        self.group, self.partitioners = group, partitioners
        self.table = tables[GROUPS]
        self.retracts = group.inputs[0].changes
        self.bounds = group.bounds
        self.folding = Folding(group, group.columns, self.bounds, weighted=self.retracts)
        self.schema = group.state_schema
        self.key_schema = pl.Schema({c: group.schema[c] for c in group.state_columns})
        (self.no_state,) = encode_values(self.schema, frame_of([{}], self.schema))
        self.multisets = [
            Multiset(b, group.columns, self.key_schema, tables[b.name], group.where, weighted=self.retracts)
            for b in group.multisets
        ]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Updates | None:
        """Fold the rows into the groups' state, and return the changes."""
        batch = joined(inputs, weighted=self.retracts)
        if batch is None:
            return None
        columns = self.folding.columns
        frame = self.folding.arguments(run, batch)
        grouped = self.folding.partials(frame)
        # A select would start the query engine only to choose columns.
        series = grouped.get_columns()
        keys, partials, meta = (
            pl.DataFrame(s) for s in (series[: len(columns)], series[len(columns) : -1], series[-1:])
        )

        spelling = self.group.partitioned
        assert spelling is not None
        key_bytes = spelling.encode(keys)
        hashes = murmur2(key_bytes)
        shards = shard_of(hashes)
        full = encode_keys(self.table, shards, [keys[c] for c in self.key_schema])
        before, had = self._states(run.state.get(full))
        if self.partitioners is not None and not had.all():
            self.partitioners.recall(lambda: spelling.encode(self._known(run.state)))
            self.partitioners.check(key_bytes, hashes, ~had, lambda group: self._rows(run, batch, keys, group))

        for multiset in self.multisets:
            added = multiset.partials(run.state, frame, keys, shards, before)
            partials = pl.DataFrame([*partials.get_columns(), *added])
        with self.folding.blaming(keys, lambda group: self._rows(run, batch, keys, group)):
            after = self.folding.merged(partials.hstack(before))
            results = self.folding.results(before), self.folding.results(after)
        has = self._alive(run, batch, keys, after)
        run.state.put(full, present(encode_values(self.schema, after), has))
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

    def visible(self, state: State, sink: Operator, key: Key | None, keys: Sequence[bytes | None]) -> Batch | None:
        """The current rows of these keys of a sink; None if the sink's key is not the group's columns."""
        group = self.group
        columns = frozenset(group.columns)
        if key is None or sink.inputs[0].unique != columns or set(key.columns) != columns:
            return None
        decoded = key.decode(keys, {c: group.schema[c] for c in group.columns})
        if decoded.bad:
            return None
        frame = decoded.frame.select(group.columns)
        assert group.partitioned is not None
        shards = shard_of(murmur2(group.partitioned.encode(frame)))
        states, had = self._states(state.get(encode_keys(self.table, shards, [frame[c] for c in self.key_schema])))
        rows = chosen(frame.hstack(self.folding.results(states)), had)
        return Batch(
            rows, pl.DataFrame({TS: [0] * rows.height, WEIGHT: [1] * rows.height}, {TS: pl.Int64, WEIGHT: pl.Int64})
        )

    def differences(
        self, run: StepRun, full: Sequence[bytes], before: list[bytes | None], after: list[bytes | None]
    ) -> Updates:
        """The change that later operators see between two sets of group states, given by their keys in state."""
        keys = decode_keys(self.key_schema, list(full)).select(self.group.columns)
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
            hashes=murmur2(key_bytes),
        )

    def _states(self, found: list[bytes | None]) -> tuple[pl.DataFrame, pl.Series]:
        """One row of state per group, null if there is none; and whether there is one."""
        if None not in found:
            return decode_values(self.schema, cast("list[bytes]", found)), everywhere(True, len(found))
        there = pl.Series([v is not None for v in found])
        return decode_values(self.schema, [self.no_state if v is None else v for v in found]), there

    def _rows(self, run: StepRun, batch: Batch, keys: pl.DataFrame, group: int) -> str:
        """The addresses of one group's rows in this step, from the first to the last."""
        columns = self.folding.columns
        here = batch.rows.select(columns).with_row_index(ORIGIN)
        found = matched(here, keys[group : group + 1], columns, how="inner")
        return run.span(batch, found[ORIGIN].to_list())

    def _known(self, state: State) -> pl.DataFrame:
        """Some groups that the task has."""
        return decode_keys(self.key_schema, some_keys(state, {self.table}))

    def _alive(self, run: StepRun, batch: Batch, keys: pl.DataFrame, after: pl.DataFrame) -> pl.Series:
        """Which groups have rows left. Raises UserCodeError with the first row that a group has not."""
        if not self.retracts:
            return everywhere(True, after.height)
        rows = after[old(ROWS, "rows")]
        if (wrong := (rows < 0).arg_true()).len():
            group = wrong[0]
            taken = batch.filter(batch.meta[WEIGHT] < 0).rows
            gone = matched(taken, keys[group : group + 1], self.folding.columns, how="inner")
            where = filter(None, [self.group.where, self._rows(run, batch, keys, group)])
            check_counts(rows[group : group + 1], gone[:1], ", ".join(where))
        return rows > 0
