"""`group_by(…).agg(…)` inside a loop.

    y(i)   = { group → result(rows of the group in X(i)) }       for groups that have rows
    Dy(i)  = (result now, +1) + (result before this step, −1)     for groups that this step has changed

    .groups   group → by iteration: values that change there · rows · the parts of aggregates
    .name     group, value → { iteration → weight }                              for each min and max

The parts at an iteration are the sum of those up to it. A group that has been changed needs work at each later iteration
that it has in state, because its result may become the one before again. An iteration without rows or parts stays in state
as long as values change there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl

from falkirk.state.codec import encode_key
from falkirk.state.timed import Row
from falkirk.stream.dataflow.operator import TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.loops.extremes import Extreme
from falkirk.stream.operators.loops.folds import Fold, Parts
from falkirk.stream.operators.loops.linear import picked
from falkirk.stream.operators.loops.node import Due, Node, ZSet, add, never_added

ENTRIES, ROWS, FIRST = 0, 1, 2
"""Places in the parts of a group."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[int, list[int | bytes]]).decode
_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output column."""

    of: int | None
    """The column of the input that is aggregated."""
    how: Fold | Extreme
    at: int
    """Where its parts begin."""


@dataclass(slots=True)
class Group:
    """One group in one step."""

    old: dict[int, Parts]
    new: dict[int, Parts] = field(default_factory=dict)
    last: tuple[Row | None, Row | None] = (None, None)
    """The results of the iteration before: before this step, and now."""


class GroupNode(Node):
    """One grouping."""

    def __init__(
        self, columns: Sequence[str], schema: pl.Schema, aggregates: Sequence[Aggregate], width: int, where: str
    ) -> None:
        """`schema`: of the input; `width`: how many parts a group has."""
        self.columns, self.aggregates, self.width, self.where = list(columns), list(aggregates), width, where
        self.group_of: Callable[[Row], Row] = picked(self.columns, list(schema))
        self.extremes = [a.how for a in aggregates if isinstance(a.how, Extreme)]
        self.tables = ("groups", *(e.name for e in self.extremes))

    def bind(self, task: TaskContext, shard: int, prefix: str) -> None:
        self.table, self.shard = task.tables[f"{prefix}.groups"], shard
        for extreme in self.extremes:
            extreme.bind(task.tables[f"{prefix}.{extreme.name}"], shard)

    def begin(self, run: StepRun, time: int) -> None:
        self.state = run.state
        self.groups: dict[Row, Group] = {}
        self.later = Due()
        for extreme in self.extremes:
            extreme.begin(run)

    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        (change,) = changes
        again = self.later.take(i)
        by_group: dict[Row, list[tuple[Row, int]]] = {}
        for row, weight in change.items():
            by_group.setdefault(self.group_of(row), []).append((row, weight))
        self._open(i, [group for group in by_group if group not in self.groups])
        for group, rows in by_group.items():
            self._add(i, group, rows)
        total: ZSet = {}
        for key in dict.fromkeys((*by_group, *again)):
            one = self.groups[key]
            was, one.last = one.last, self._results(key, one, i)
            if was != one.last:
                signs = zip((*one.last, *was), (-1, 1, 1, -1), strict=True)
                for result, sign in signs:
                    if result is not None:
                        add(total, (*key, *result), sign)
        return total

    def due(self) -> Iterable[int]:
        return self.later.iterations()

    def end(self) -> None:
        for extreme in self.extremes:
            for key, entries in extreme.end().items():
                for i, more in entries.items():
                    self.groups[key].new.setdefault(i, [0] * self.width)[ENTRIES] += more
        keys, values = list[bytes](), list[bytes | None]()
        for key, group in self.groups.items():
            after = {i: _sum(group.old.get(i), group.new.get(i)) for i in sorted({*group.old, *group.new})}
            kept = {i: parts for i, parts in after.items() if any(parts)}
            if sum(parts[ROWS] for parts in kept.values()) < 0:
                raise never_added(dict(zip(self.columns, key, strict=True)), self.where)
            keys.append(self._full(key))
            values.append(_bytes_of(kept) if kept else None)
        self.state.put(keys, values)

    def _open(self, i: int, keys: Sequence[Row]) -> None:
        """Read groups that this step changes for the first time, at iteration i."""
        found = self.state.get([self._full(key) for key in keys]) if keys else []
        for key, value in zip(keys, found, strict=True):
            group = self.groups[key] = Group({} if value is None else _parts_of(value))
            self.later.add(key, i, group.old)

    def _add(self, i: int, key: Row, rows: Sequence[tuple[Row, int]]) -> None:
        parts = self.groups[key].new.setdefault(i, [0] * self.width)
        for row, weight in rows:
            parts[ROWS] += weight
            for aggregate in self.aggregates:
                value = None if aggregate.of is None else row[aggregate.of]
                if isinstance(aggregate.how, Fold):
                    aggregate.how.add(parts, aggregate.at, value, weight)
                elif value is not None:
                    aggregate.how.add(i, key, value, weight)

    def _results(self, key: Row, group: Group, i: int) -> tuple[Row | None, Row | None]:
        """The results at iteration i, before this step and now; None for a group without rows."""
        before = _until(group.old, i, self.width)
        now = list(map(int.__add__, before, _until(group.new, i, self.width)))
        results: list[list[Any]] = [[], []]
        for aggregate in self.aggregates:
            how = aggregate.how
            if isinstance(how, Extreme):
                best = how.best(key, i) if before[ROWS] or now[ROWS] else (None, None)
                values = [None if one is None else one[0] for one in best]
            else:
                places = slice(aggregate.at, aggregate.at + how.width)
                values = [how.result(parts[places]) for parts in (before, now)]
            for result, value in zip(results, values, strict=True):
                result.append(value)
        return (tuple(results[0]) if before[ROWS] else None, tuple(results[1]) if now[ROWS] else None)

    def _full(self, key: Row) -> bytes:
        return encode_key(self.table, self.shard, key)


def _sum(one: Parts | None, other: Parts | None) -> Parts:
    if one is None or other is None:
        return list(one or other or ())
    return list(map(int.__add__, one, other))


def _until(parts: dict[int, Parts], i: int, width: int) -> Parts:
    """Σ parts[j] for j ≤ i."""
    found = [p for j, p in parts.items() if j <= i]
    return found[0] if len(found) == 1 else [sum(column) for column in zip(*found, strict=True)] or [0] * width


def _bytes_of(parts: dict[int, Parts]) -> bytes:
    """Integers beyond 64 bits are bytes."""
    cells = {
        i: [n if n in _LONG else n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True) for n in numbers]
        for i, numbers in parts.items()
    }
    return _encode(cells)


def _parts_of(value: bytes) -> dict[int, Parts]:
    return {
        i: [int.from_bytes(n, "little", signed=True) if isinstance(n, bytes) else n for n in numbers]
        for i, numbers in _decode(value).items()
    }
