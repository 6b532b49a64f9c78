"""min and max inside a loop: an ordered table counts each value of a group, by iteration.

    best(g, i) = the first value v, in order, with table[g, v](i) > 0

The table is read from its beginning, until a value is found that was there before this step, and one that is there now. So
the cost is the number of values that are better at a later iteration, and not the size of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from falkirk.state.codec import COMPLEMENT
from falkirk.state.scalars import decode_scalar, encode_scalar
from falkirk.state.timed import Row, RowCoding, TimedTable, Times, added, until
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.loops.node import never_added
from falkirk.stream.operators.loops.rows import NAN, is_integer

Best = tuple[Any] | None
"""A value; None: the group has none."""


class Extreme:
    """The values of one aggregate in one task."""

    def __init__(self, name: str, dtype: pl.DataType, group: pl.Schema, where: str, *, greatest: bool) -> None:
        self.name, self.dtype, self.greatest, self.where = name, dtype, greatest, where
        integers = [is_integer(t) for t in group.values()]
        self.coding = RowCoding([*integers, is_integer(dtype) and not greatest])

    def bind(self, table: int, shard: int) -> None:
        self.table, self.shard = table, shard

    def begin(self, run: StepRun) -> None:
        self.stored = TimedTable(run.state, self.table, self.shard, self.coding)
        self.new: dict[Row, dict[bytes, tuple[Any, Times]]] = {}
        """By group and the order of values: the value as it is stored, and the changes of this step."""
        self.seen: dict[Row, list[tuple[bytes, Any, Times]]] = {}
        """The stored values of a group that were read, in order."""
        self.unseen: dict[Row, Iterator[tuple[Row, Times]]] = {}
        """Those that follow."""

    def add(self, i: int, group: Row, value: Any, weight: int) -> None:
        """A value comes, or goes, at iteration i."""
        kept = self._kept(value)
        _, times = self.new.setdefault(group, {}).setdefault(encode_scalar(kept), (kept, {}))
        if total := times.get(i, 0) + weight:
            times[i] = total
        else:
            times.pop(i, None)

    def best(self, group: Row, i: int) -> tuple[Best, Best]:
        """The best value at iteration i: before this step, and now."""
        before: Best = None
        now: Best = None
        changes = self.new.get(group, {})
        waiting = sorted(changes, reverse=True)
        for order, kept, times in self._stored(group):
            while waiting and waiting[-1] < order:
                only = waiting.pop()
                now = now or self._if_there(changes[only], i)
            had = has = until(times, i)
            if waiting and waiting[-1] == order:
                has += until(changes[waiting.pop()][1], i)
            before = before or ((kept,) if had > 0 else None)
            now = now or ((kept,) if has > 0 else None)
            if before and now:
                break
        while waiting and not now:
            now = self._if_there(changes[waiting.pop()], i)
        return self._shown(before), self._shown(now)

    def end(self) -> dict[Row, dict[int, int]]:
        """Write the changes. Returns, by group, how many more values have changes at an iteration than before."""
        changes = {(*group, kept): times for group, values in self.new.items() for kept, times in values.values()}
        known = dict(zip(changes, self.stored.times(list(changes)), strict=True))
        for row in self.stored.write(changes, known):
            raise never_added({self.name: self._shown(row[-1:])}, self.where)
        entries: dict[Row, dict[int, int]] = {}
        for row, change in changes.items():
            before = known[row]
            counts = entries.setdefault(row[:-1], {})
            after = added(before, change)
            for i in change:
                counts[i] = counts.get(i, 0) + (i in after) - (i in before)
        return entries

    def _stored(self, group: Row) -> Iterator[tuple[bytes, Any, Times]]:
        """The values of a group in state, in order. They are read once, and as far as somebody asks."""
        if group not in self.seen:
            self.seen[group], self.unseen[group] = [], self.stored.rows(group)
        seen, unseen = self.seen[group], self.unseen[group]
        yield from seen
        for row, times in unseen:
            seen.append((encode_scalar(row[-1]), row[-1], times))
            yield seen[-1]

    def _if_there(self, change: tuple[Any, Times], i: int) -> Best:
        kept, times = change
        return (kept,) if until(times, i) > 0 else None

    def _kept(self, value: Any) -> Any:
        """The value in keys of state, where the best value is the first. NaN is the last of all."""
        if not self.greatest:
            return value
        return encode_scalar(None if value != value else value).translate(COMPLEMENT)

    def _shown(self, best: Row | None) -> Best:
        if best is None:
            return None
        (kept,) = best
        if self.greatest:
            kept, _ = decode_scalar(kept.translate(COMPLEMENT), 0)
            kept = NAN if kept is None else kept
        return (NAN,) if kept != kept else (kept,)
