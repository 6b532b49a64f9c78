"""One step of `over` in one task: finds the rows that the changes reach, computes them again, and writes what is different.

segment    consecutive rows of a key: those whose frames may have a change
context    the rows before them and after them that their frames need

all rows           all rows of the key
running frames     from the first row that is equal to a change in the order, to the end of the key
                                                               context: one row before, which has the state that goes on
rows m, n          from n rows before a change to m after it   context: m rows before, n after
range d, e         times from t − e to t + d                   context: times from t − e − d to t + d + e
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice, starmap
from typing import NamedTuple

import numpy as np
import polars as pl

from falkirk.state.codec import (
    COMPLEMENT,
    decode_keys,
    decode_values,
    encode_keys,
    encode_values,
    prefix_end,
)
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, matched
from falkirk.stream.dataflow.operator import RESERVED, Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.groups.ends import Ends
from falkirk.stream.operators.groups.multiset import check_counts
from falkirk.stream.operators.groups.over import BACK, OLD, OLD_ENTRIES, ORDER, ROWS, Over
from falkirk.stream.operators.groups.over_frames import CONTEXT, SEGMENT

_GROUP, _COUNT = f"{RESERVED}.group", f"{RESERVED}.count"
_BY, _LOW, _HIGH, _FROM, _TO = (f"{RESERVED}.{c}" for c in ("by", "low", "high", "from", "to"))
COPY = 4
"""Bytes of the number of a copy, at the end of a key."""
AT_ONCE = 20_000
"""Rows that one step forgets. The next step goes on."""


class Change(NamedTuple):
    """A row that comes or is taken back."""

    order: bytes
    by: bytes
    low: bytes
    """Where rows begin that are read, if the frame is a range; `high` is where they end."""
    high: bytes
    first: bytes
    """Where rows begin whose frame has it; `last` is where they end."""
    last: bytes
    times: int
    row: int = 0
    """Its number among the rows of the step."""


class Item(NamedTuple):
    """A row of a segment, after the step."""

    segment: int
    group: int
    context: bool
    key: bytes
    source: int
    """The number of its stored value; −1 − the number of a row of the step, if it is new."""


class Found(NamedTuple):
    """What a step reads: stored values, the rows after the step, and the values that leave."""

    values: list[bytes]
    items: list[Item]
    gone: list[tuple[int, bytes, int]]
    """Group, key, number of the stored value."""


class OverRunner(Runner):
    """One `over` in one task."""

    def __init__(self, operator: Over, task: TaskContext) -> None:
        assert operator.partitioned is not None
        self.operator, self.key, self.partitioners = operator, operator.partitioned, task.partitioners
        self.retracts, self.columns = operator.inputs[0].changes, list(operator.columns)
        self.stored = pl.Schema({**operator.kept, **operator.parts})
        self.functions = operator.computing()
        self.rows, self.back, self.reach = task.tables[ROWS], task.tables.get(BACK, 0), operator.reach
        self.old = Ends(task.tables[OLD], task.first_shard) if operator.forgets else None

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.retracts)
        change = None if batch is None else self._changed(run, batch)
        if self.old is not None and (given := run.watermarks.get(self.operator)) is not None:
            self._forget(run.state, self.old, given.after)
        return change

    def wake_at(self, state: State) -> int | None:
        """At once, if rows are left to forget."""
        return 0 if self.old is not None and self.old.left(state) else None

    def _changed(self, run: StepRun, batch: Batch) -> Batch | None:
        self.functions.check(run, batch)
        rows, keys = self._netted(batch)
        spelt = self.key.encode(keys)
        hashes = murmur2(spelt)
        shards, by_group = shard_of(hashes), [keys[c] for c in self.columns]
        prefixes = encode_keys(self.rows, shards, by_group)
        backs = encode_keys(self.back, shards, by_group)
        found, known = Found([], [], []), np.zeros(keys.height, bool)
        every = zip(
            rows[_GROUP], starmap(Change, rows.select(ORDER, _BY, _LOW, _HIGH, _FROM, _TO, _COUNT).rows()), strict=True
        )
        for group, mine in groupby(enumerate(every), key=lambda numbered: numbered[1][0]):
            changes, size = [change._replace(row=row) for row, (_, change) in mine], len(found.values)
            self._read(run.state, group, prefixes[group], backs[group], changes, found, rows)
            known[group] = len(found.values) > size
        if self.partitioners is not None:
            self.partitioners.check(spelt, hashes, pl.Series(~known), lambda _: "")
        return self._computed(run.state, rows, keys, prefixes, backs, found)

    def _netted(self, batch: Batch) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of a step in order, each once, with their weights; and their keys, with the greatest timestamps."""
        operator = self.operator
        order, counts = operator.of(batch.rows).alias(ORDER), batch.weights.alias(_COUNT)
        frame = batch.rows.with_columns(order, counts, batch.meta[TS])
        keys = frame.group_by(self.columns, maintain_order=True).agg(pl.col(TS).max())
        rows = (
            frame.group_by([*self.columns, ORDER], maintain_order=True)
            .agg(pl.col(list(operator.kept)).first(), pl.col(_COUNT).sum())
            .filter(pl.col(_COUNT) != 0)
            .pipe(matched, keys.with_row_index(_GROUP), self.columns)
            .sort(_GROUP, ORDER)
        )
        by = operator.by(rows)
        width, before, after = operator.frame.width, operator.frame.preceding or 0, operator.frame.following
        bounds = {_LOW: -width, _HIGH: width, _FROM: -after, _TO: before}
        moved = [
            (self._moved(rows, size) if operator.frame.ranged else by).alias(name) for name, size in bounds.items()
        ]
        return rows.with_columns(by.alias(_BY), *moved), keys

    def _moved(self, rows: pl.DataFrame, size: int) -> pl.Series:
        """The bytes of times so much later."""
        name = self.operator.ordering.by[0]
        times = rows[name]
        bare = times.to_physical()
        moved = pl.select(
            (pl.lit(bare).cast(pl.Int128) + pl.lit(size, pl.Int128))
            .clip(bare.dtype.min(), bare.dtype.max())  # type: ignore[attr-defined]
            .cast(bare.dtype)
        ).to_series()
        return self.operator.by(pl.DataFrame([moved.cast(times.dtype).alias(name)]))

    def _read(
        self,
        state: State,
        group: int,
        prefix: bytes,
        back: bytes,
        changes: list[Change],
        found: Found,
        rows: pl.DataFrame,
    ) -> None:
        """Reads the segments of a key, and lays the changes over them."""
        end, at = prefix_end(prefix), 0
        while at < len(changes):
            first = changes[at]
            if self.operator.frame.running or self.operator.frame.whole:
                mine, there = changes, list(state.scan(prefix + first.by, end))
            elif self.operator.frame.ranged:
                mine = [first]
                for change in changes[at + 1 :]:
                    if change.low > mine[-1].high:
                        break
                    mine.append(change)
                there = list(state.scan(prefix + first.low, prefix_end(prefix + mine[-1].high)))
            else:
                mine, there = self._near(state, prefix, end, changes[at:])
            at += len(mine)
            before = self._before(state, prefix, back, first)
            bounds = self._bounds(prefix, mine, [key for key, _ in before], [key for key, _ in there])
            self._lay(group, prefix, mine, [*before, *there], bounds, found, rows)

    def _near(
        self, state: State, prefix: bytes, end: bytes, changes: list[Change]
    ) -> tuple[list[Change], list[tuple[bytes, bytes]]]:
        """The changes that are near to each other, and the rows up to the last one that they reach."""
        mine, there, left = 1, list[tuple[bytes, bytes]](), self.reach
        for key, value in state.scan(prefix + changes[0].by, end):
            while mine < len(changes) and prefix + changes[mine].by <= key:
                mine, left = mine + 1, self.reach
            if key[:-COPY] > prefix + changes[mine - 1].order:
                left -= 1
                if left < 0:
                    return changes[:mine], there
            there.append((key, value))
        return changes, there

    def _before(self, state: State, prefix: bytes, back: bytes, first: Change) -> list[tuple[bytes, bytes]]:
        """The rows before a segment that its frames need."""
        if not self.reach:
            return []
        start = prefix_end(back + first.by.translate(COMPLEMENT))
        found = islice(state.scan(start, prefix_end(back)), self.reach)
        keys = [prefix + key[len(back) :].translate(COMPLEMENT) for key, _ in found][::-1]
        pairs = zip(keys, state.get(keys), strict=True)
        return [(key, value) for key, value in pairs if value is not None]

    def _bounds(
        self, prefix: bytes, mine: Sequence[Change], before: Sequence[bytes], there: Sequence[bytes]
    ) -> tuple[bytes, bytes]:
        """The first key of rows whose frames may have a change, and the key after the last."""
        first, end = prefix + mine[0].by, prefix_end(prefix)
        frame = self.operator.frame
        if frame.ranged:
            return prefix + mine[0].first, prefix_end(prefix + mine[-1].last)
        if not frame.following:
            return first, end
        after = [key for key in there if key[:-COPY] > prefix + mine[-1].order]
        return [*before, first][-1 - frame.following :][0], [*after, end][: (frame.preceding or 0) + 1][-1]

    def _lay(
        self, group: int, prefix: bytes, mine: Sequence[Change], there: Sequence[tuple[bytes, bytes]],
        bounds: tuple[bytes, bytes], found: Found, rows: pl.DataFrame,
    ) -> None:  # fmt: skip
        """The rows of a segment after its changes."""
        (start, end), segment = bounds, found.items[-1].segment + 1 if found.items else 0
        by_order: dict[bytes, list[tuple[bytes, int]]] = {}
        for key, value in there:
            by_order.setdefault(key[len(prefix) : -COPY], []).append((key, len(found.values)))
            found.values.append(value)
        for change in mine:
            copies = by_order.setdefault(change.order, [])
            left = len(copies) + change.times
            if left < 0:
                shown = rows[change.row].select(*self.columns, *self.operator.kept)
                check_counts(pl.Series([left]), shown, self.operator.where)
            found.gone.extend((group, *copy) for copy in copies[left:])
            del copies[left:]
            for number in range(len(copies), left):
                copies.append((prefix + change.order + number.to_bytes(COPY, "big"), -1 - change.row))
        for order in sorted(by_order):
            copies = by_order[order]
            found.items.extend(Item(segment, group, not start <= key < end, key, source) for key, source in copies)

    def _computed(
        self, state: State, rows: pl.DataFrame, keys: pl.DataFrame, prefixes: Sequence[bytes], backs: Sequence[bytes],
        found: Found,
    ) -> Batch | None:  # fmt: skip
        """Computes the rows after the step, writes those that are different, and returns the change."""
        held = decode_values(self.stored, found.values)
        # with_columns first: without a kept column, select gives a frame of no rows.
        came = rows.with_columns(pl.lit(None, dtype).alias(c) for c, dtype in self.operator.parts.items())
        every = pl.concat([held, came.select(held.columns)], rechunk=True)
        source = np.array([i.source for i in found.items], np.int64)
        groups = np.array([i.group for i in found.items], np.int64)
        context = np.array([i.context for i in found.items], bool)
        place = np.where(source >= 0, source, held.height - 1 - source)
        segments = np.array([i.segment for i in found.items], np.int64)
        after = keys.select(self.columns)[groups].hstack(every[place])
        after = after.with_columns(pl.Series(SEGMENT, segments), pl.Series(CONTEXT, context))
        parts = self.functions.parts(self.operator.with_peers(after))

        live = np.flatnonzero(~context)
        was = after.select(parts.columns)[live]
        new = source[live] < 0
        differs = new | _differ(was, parts)
        self._write(state, after[live], parts, [found.items[i] for i in live], differs, new, backs, prefixes, found)
        shown = after.select(list(self.operator.inputs[0].schema))[live]
        results = [pl.DataFrame(self.functions.results(states, shown.select(self.columns))) for states in (was, parts)]
        changed = new | _differ(*results)
        told, taken = np.flatnonzero(changed), np.flatnonzero(changed & ~new)
        gone, of_gone = self._gone(held, keys, found)
        minus = pl.concat([gone, shown[taken].hstack(results[0][taken])])
        plus = shown[told].hstack(results[1][told])
        change = pl.concat([minus, plus.select(minus.columns)], rechunk=True).select(list(self.operator.schema))
        if not change.height:
            return None
        group = np.concatenate([of_gone, groups[live][taken], groups[live][told]])
        weights = pl.Series(WEIGHT, np.repeat(np.array([-1, 1], np.int64), [minus.height, plus.height]))
        return Batch(change, pl.DataFrame([keys[TS][group], weights]))

    def _gone(self, held: pl.DataFrame, keys: pl.DataFrame, found: Found) -> tuple[pl.DataFrame, np.ndarray]:
        """The rows that left, as they were shown, and their groups."""
        groups = np.array([group for group, _, _ in found.gone], np.int64)
        rows = held[np.array([number for _, _, number in found.gone], np.int64)]
        frame = keys.select(self.columns)[groups].hstack(rows)
        shown = frame.select(list(self.operator.inputs[0].schema))
        results = self.functions.results(rows.select(list(self.operator.parts)), shown.select(self.columns))
        return shown.hstack(results), groups

    def _write(
        self, state: State, rows: pl.DataFrame, parts: pl.DataFrame, items: Sequence[Item], differs: np.ndarray,
        new: np.ndarray, backs: Sequence[bytes], prefixes: Sequence[bytes], found: Found,
    ) -> None:  # fmt: skip
        places = np.flatnonzero(differs)
        stored = rows.with_columns(parts.get_columns())[places].select(list(self.stored))
        state.put([items[i].key for i in places.tolist()], [*encode_values(self.stored, stored)])
        state.put([key for _, key, _ in found.gone], [None] * len(found.gone))
        if self.reach:
            for pairs, value in (
                ([(items[i].group, items[i].key) for i in np.flatnonzero(new).tolist()], b""),
                (found.gone, None),
            ):
                turned = [backs[g] + key[len(prefixes[g]) :].translate(COMPLEMENT) for g, key, *_ in pairs]
                state.put(turned, [value] * len(turned))
        if self.old is not None:
            times = rows[self.operator.ordering.by[0]].to_physical().cast(pl.Int64)
            aged = np.flatnonzero(new & times.is_not_null().to_numpy())
            keys = pl.Series([items[i].key for i in aged.tolist()], dtype=pl.Binary)
            self.old.add(state, self.old.keys(times[aged], keys))

    def _forget(self, state: State, old: Ends, watermark: int) -> None:
        """Delete the rows that no frame needs that can still change:  t < watermark − e − d. A row that comes is in frames
        of rows up to e before it, and these have rows up to d before them."""
        found = old.before(state, watermark * self.operator.frame.per_milli - self.operator.frame.width, AT_ONCE)
        rows = decode_keys(OLD_ENTRIES, found[:AT_ONCE])[ROWS].to_list()
        state.put(rows, [None] * len(rows))
        old.delete(state, found, len(rows))


def _differ(a: pl.DataFrame, b: pl.DataFrame) -> np.ndarray:
    """Which rows are different."""
    masks = [x.ne_missing(y).to_numpy() for x, y in zip(a.get_columns(), b.get_columns(), strict=True)]
    return np.logical_or.reduce(masks) if masks else np.zeros(a.height, bool)
