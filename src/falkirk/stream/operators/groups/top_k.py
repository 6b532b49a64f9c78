"""`group_by(…).top_k(…)`: the k best rows of each group, kept up to date.

top'[g]    = the first k of rows'[g], in their order; with ties, and all that are equal to the last of them in `by`
change[g]  = top'[g] − top[g]

.top    group → its top, in order, with the count of each row        read and written for each group that a step touches
.rows   group, order → row and count                                 all rows; only if rows can be taken back

A full top says of every row up to its last one whether it is there. So a change needs no other row, unless the change leaves
fewer than k of those. Then the rows that come next are read from `.rows`: as many as are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.state.codec import decode_values, encode_keys, encode_values, prefix_end
from falkirk.state.entries import Rows, unpacked
from falkirk.state.indexed import entries_in, few
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, matched, present
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, piled, together
from falkirk.stream.dataflow.operator import RESERVED, Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.formats import Key, column_key
from falkirk.stream.operators.groups.multiset import check_counts, counts_in
from falkirk.stream.operators.groups.ordering import Ordering
from falkirk.wording import counted

TOP, ALL = ".top", ".rows"
_ORDER, _GROUP, _ROWS, _START, _LAST, _RANK, _TIE = (
    f"{RESERVED}.{c}" for c in ("order", "group", "rows", "start", "last", "rank", "tie")
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TopK(Operator):
    """The k best rows of each group."""

    kind: ClassVar[str] = "top_k"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = TOP
    indexed: ClassVar[bool] = True
    passes_time: ClassVar[bool] = False  # A row of any time can come back, when a better one is taken back.
    k: int
    columns: tuple[str, ...]
    ordering: Ordering
    rank: str | None
    ties: bool
    version: int
    lenient: bool = False
    """Whether a row that is taken back, and never came, passes if its group has no row. Otherwise it stops the app."""

    @property
    def kept(self) -> pl.Schema:
        """The columns that are kept of a row: all except those of the group."""
        return pl.Schema({c: t for c, t in self.inputs[0].schema.items() if c not in self.columns})

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    @property
    def words(self) -> str:
        order = ", ".join(
            f"{'smallest' if small else 'greatest'} {c}"
            for c, small in zip(self.ordering.by, self.ordering.smallest, strict=True)
        )
        ties = ", with ties" if self.ties else ""
        return f"top_k {self.id}: {counted(self.k, 'row')} of each {', '.join(self.columns)}, {order} first{ties}"

    @property
    def notes(self) -> Sequence[str]:
        return ("keeps all rows, because rows can be taken back",) if self.inputs[0].changes else ()

    @property
    def exact_words(self) -> str:
        return f"{self.state_words()}, rank {self.rank}"

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.columns}
        return (
            f"{self.id} v{self.version}: {words(keys)} → {self.k} of {words(self.kept)} by {self.ordering.words}"
            f"{' with ties' if self.ties else ''} "
            f"(placed by {self.partitioned!r})"
        )

    def tables(self) -> Sequence[str]:
        return [TOP, ALL] if self.inputs[0].changes else [TOP]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {TOP: self.kept}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def runner(self, task: TaskContext) -> Runner:
        return TopKRunner(self, task)

    def exchange(self) -> Exchange:
        return TopKExchange(self)


class TopKRunner(Runner):
    """One `top_k` in one task."""

    def __init__(self, operator: TopK, task: TaskContext) -> None:
        assert operator.partitioned is not None
        self.operator, self.key, self.partitioners = operator, operator.partitioned, task.partitioners
        self.retracts, self.k = operator.inputs[0].changes, operator.k
        self.columns, self.kept = list(operator.columns), operator.kept
        self.counted = pl.Schema({**self.kept, _ROWS: pl.Int64()})
        self.held = pl.Schema({_GROUP: pl.UInt32(), _ORDER: pl.Binary(), **self.counted})
        self.top, self.all = task.tables[TOP], task.tables.get(ALL, 0)

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.retracts)
        if batch is None:
            return None
        changed, keys = self._changed(batch)
        spelt = self.key.encode(keys)
        hashes = murmur2(spelt)
        shards, by_group = shard_of(hashes), [keys[c] for c in self.columns]
        full = encode_keys(self.top, shards, [*by_group, pl.Series([b""]).new_from_index(0, keys.height)])
        found = run.state.get(full)
        if self.partitioners is not None:
            self.partitioners.check(spelt, hashes, pl.Series([v is None for v in found]), lambda _: "")

        before = self._top_of(self._decoded(found))
        if not self.retracts:
            rows = self._together(before, changed, pl.col(_ROWS).sum())
        else:
            prefixes = encode_keys(self.all, shards, by_group)
            changed, unknown = self._count(run.state, prefixes, keys, changed)
            rows = self._together(before, changed, pl.col(_ROWS).last())
            rows = self._refilled(run.state, prefixes, before, rows)
        after = self._top_of(rows)
        self._save(run.state, full, found, after)
        if self.retracts and unknown.height:
            before = self._presumed(before, after, unknown)
        return self._change(keys, before, after)

    def _changed(self, batch: Batch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of a step, each once, with their weights as counts; and their groups, with the greatest timestamps."""
        order, counts = self.operator.ordering.of(batch.rows).alias(_ORDER), batch.weights.alias(_ROWS)
        frame = batch.rows.with_columns(order, counts, batch.meta[TS])
        keys = frame.group_by(self.columns, maintain_order=True).agg(pl.col(TS).max())
        rows = (
            frame.group_by([*self.columns, _ORDER], maintain_order=True)
            .agg(pl.col(list(self.kept)).first(), pl.col(_ROWS).sum())
            .pipe(matched, keys.with_row_index(_GROUP), self.columns)
        )
        return rows.select(list(self.held)), keys

    def _decoded(self, found: Sequence[bytes | None]) -> pl.DataFrame:
        """The stored tops of all groups."""
        rows, groups = unpacked([entries_in(value) if value else b"" for value in found])
        counted = decode_values(self.kept, rows.packed).with_columns(pl.Series(_ROWS, rows.weights, pl.Int64))
        return self._held(pl.Series(groups), counted)

    def _held(self, groups: pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
        order = self.operator.ordering.of(rows).alias(_ORDER)
        return rows.with_columns(groups.cast(pl.UInt32).alias(_GROUP), order).select(list(self.held))

    def _together(self, before: pl.DataFrame, changed: pl.DataFrame, count: pl.Expr) -> pl.DataFrame:
        """The rows of tops, and those that have changed."""
        both = pl.concat([before.select(list(self.held)), changed])
        return both.group_by(_GROUP, _ORDER, maintain_order=True).agg(pl.col(list(self.kept)).first(), count)

    def _top_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The first rows of each group, in order, with the number of rows before each; with ties, of the better ones."""
        ordered = rows.filter(pl.col(_ROWS) > 0).sort(_GROUP, _ORDER)
        start = (pl.col(_ROWS).cum_sum().over(_GROUP) - pl.col(_ROWS)).alias(_START)
        ordered = ordered.with_columns(start)
        if self.operator.ties:
            tied = ordered.with_columns(self.operator.ordering.bare.of(ordered).alias(_TIE))
            ordered = tied.with_columns(pl.col(_START).min().over(_GROUP, _TIE)).drop(_TIE)
        return ordered.filter(pl.col(_START) < self.k)

    def _count(
        self, state: State, prefixes: Sequence[bytes], keys: pl.DataFrame, changed: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Change the counts of these rows. Returns the rows with their new counts, and those that are taken back and never
        came."""
        pairs = zip(changed[_GROUP].to_list(), changed[_ORDER].to_list(), strict=True)
        full = [prefixes[g] + order for g, order in pairs]
        rows = counts_in(state.get(full), self.counted, _ROWS) + changed[_ROWS]
        counted = keys.select(self.columns)[changed[_GROUP]].hstack(changed.select(list(self.kept)))
        if not self.operator.lenient:
            check_counts(rows, counted, self.operator.where)
        unknown, rows = changed.filter(rows < 0), rows.clip(0)
        after = changed.with_columns(rows.alias(_ROWS))
        values = encode_values(self.counted, after.select(list(self.counted)))
        state.put(full, present(values, rows != 0))
        return after, unknown

    def _presumed(self, before: pl.DataFrame, after: pl.DataFrame, unknown: pl.DataFrame) -> pl.DataFrame:
        """The tops before, and for each group that has none, then and now, one of the rows that never came."""
        known = pl.concat([before[_GROUP], after[_GROUP]])
        alone = unknown.filter(~pl.col(_GROUP).is_in(known.implode())).unique(_GROUP, keep="first", maintain_order=True)
        counted = alone.with_columns(pl.lit(1, pl.Int64).alias(_ROWS), pl.lit(0, pl.Int64).alias(_START))
        return pl.concat([before, counted.select(before.columns)])

    def _refilled(
        self, state: State, prefixes: Sequence[bytes], before: pl.DataFrame, rows: pl.DataFrame
    ) -> pl.DataFrame:
        """With more rows of the groups whose full tops have lost rows."""
        full = before.group_by(_GROUP).agg(pl.col(_ORDER).last().alias(_LAST), pl.col(_ROWS).sum())
        bounds = full.filter(pl.col(_ROWS) >= self.k).select(_GROUP, _LAST)
        known = rows.join(bounds, on=_GROUP, maintain_order="left").filter(pl.col(_ORDER) <= pl.col(_LAST)).drop(_LAST)
        left = bounds.join(known.group_by(_GROUP).agg(pl.col(_ROWS).sum()), on=_GROUP, how="left")
        short = left.with_columns(pl.col(_ROWS).fill_null(0)).filter(pl.col(_ROWS) < self.k).sort(_GROUP)
        if not short.height:
            return rows
        groups, values = list[int](), list[bytes]()
        for group, last, there in short.rows():
            prefix = prefixes[group]
            more = self._after(state, prefix, last, self.k - there)
            groups += [group] * len(more)
            values += more
        kept = [rows.join(short, on=_GROUP, how="anti"), known.join(short, on=_GROUP, how="semi")]
        found = self._held(pl.Series(groups, dtype=pl.Int64), decode_values(self.counted, values))
        return pl.concat([frame.select(list(self.held)) for frame in (*kept, found)])

    def _after(self, state: State, prefix: bytes, last: bytes, missing: int) -> list[bytes]:
        """The rows of a group that come next after one: as many as are missing, and those that tie with the last of them."""
        # No order is a prefix of another: this is the next key after the last one.
        after = state.scan(prefix + last + b"\0", prefix_end(prefix))
        more = [value for _, value in islice(after, missing)]
        if self.operator.ties and more:
            row = decode_values(self.counted, more[-1:])
            tied = prefix + self.operator.ordering.bare.of(row)[0]
            more += [value for _, value in takewhile(lambda pair: pair[0].startswith(tied), after)]
        return more

    def _save(self, state: State, full: Sequence[bytes], found: Sequence[bytes | None], after: pl.DataFrame) -> None:
        nothing = np.zeros(after.height, np.int64)
        counts = after[_ROWS].to_numpy()
        entries = Rows(encode_values(self.kept, after.select(list(self.kept))), counts, nothing, nothing).entries()
        groups = after[_GROUP].to_numpy()
        # Rows are in the order of their groups.
        ends = np.searchsorted(groups, np.arange(len(full)), side="right").tolist()
        sums = np.bincount(groups, counts, len(full)).astype(np.int64).tolist()
        tops = [few(entries[first:last], n) for first, last, n in zip([0, *ends], ends, sums, strict=False)]
        staged = [(k, new) for k, old, new in zip(full, found, tops, strict=True) if new != old]
        state.put([k for k, _ in staged], [new for _, new in staged])

    def _change(self, keys: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame) -> Batch:
        """The difference of two tops."""
        ranked = [_RANK] if self.operator.rank else []
        change = (
            pl.concat([self._shown(before, -1), self._shown(after, 1)])
            .group_by(_GROUP, _ORDER, *ranked, maintain_order=True)
            .agg(pl.col(list(self.kept)).first(), pl.col(WEIGHT).sum())
            .filter(pl.col(WEIGHT) != 0)
        )
        groups = keys[change[_GROUP]]
        rows = groups.select(self.columns).hstack(change.drop(WEIGHT, _GROUP, _ORDER))
        rows = rows.rename({_RANK: self.operator.rank}) if self.operator.rank else rows
        return Batch(rows.select(list(self.operator.schema)), groups.select(TS).hstack(change.select(WEIGHT)))

    def _shown(self, top: pl.DataFrame, sign: int) -> pl.DataFrame:
        """The rows of tops that others see; with a rank, each row by itself."""
        if self.operator.ties:
            places = [(pl.col(_START) + 1).alias(_RANK)] if self.operator.rank else []
            return top.with_columns((sign * pl.col(_ROWS)).alias(WEIGHT), *places).drop(_START, _ROWS)
        times = pl.min_horizontal(pl.col(_ROWS), self.k - pl.col(_START))
        if self.operator.rank is None:
            return top.with_columns((sign * times).alias(WEIGHT)).drop(_START, _ROWS)
        top = top.with_columns(times.alias(_ROWS))
        each = top[np.repeat(np.arange(top.height), top[_ROWS].to_numpy())]
        rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(_GROUP).alias(_RANK)
        return each.with_columns(rank, pl.lit(sign, pl.Int64).alias(WEIGHT)).drop(_START, _ROWS)


class TopKExchange:
    """The batch form: a pile keeps the k best rows of each group."""

    def __init__(self, operator: TopK) -> None:
        self.operator, self.columns = operator, list(operator.columns)
        self.key = column_key(self.columns)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return self.condensed([batch.rows.select(list(self.operator.inputs[0].schema)).hstack(batch.meta.select(TS))])

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        operator = self.operator
        return operator.ordering.best(together(frames), self.columns, operator.k, _ORDER, ties=operator.ties)

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        best = piled(self, parcels)
        if self.operator.rank:
            number = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(self.columns)
            rank = self.operator.ordering.rank(best, self.columns, _ORDER) if self.operator.ties else number
            best = best.with_columns(rank.alias(self.operator.rank))
        yield Batch(best.select(list(self.operator.schema)), best.select(TS))
