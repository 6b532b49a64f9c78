"""One step of a join. The rule is in `falkirk.stream.operators.joins.join`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from falkirk.state.entries import Numbers
from falkirk.state.indexed import Index
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.joins.join_side import Change, SideRunner, There

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.join import Join

LEFT, RIGHT = "left", "right"
"""The tables."""
_NONE: Numbers = np.zeros(0, np.int64)


class Pairs(NamedTuple):
    """Rows of the output: for each, its row on the left and on the right (−1: none), its weight and its time."""

    left: Numbers
    right: Numbers
    weights: Numbers
    times: Numbers


class JoinRunner(Runner):
    """One join in one task."""

    def __init__(
        self, operator: Join, task: TaskContext, times: Sequence[tuple[str | None, int]] = ((None, 1), (None, 1))
    ) -> None:
        """`times`: the column by which rows of each side are kept in order, if there is one, and the unit of their places."""
        self.operator, self.how = operator, operator.how
        self.sides = [
            SideRunner(side, table, task, operator.where, weighted=before.changes, time=time, unit=unit)
            for side, table, before, (time, unit) in zip(
                operator.sides, (LEFT, RIGHT), operator.inputs, times, strict=True
            )
        ]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        left, right = (side.change(flowing) for side, flowing in zip(self.sides, inputs, strict=True))
        if not left.rows.height and not right.rows.height:
            return None
        a, b, keys = self.opened(run, left, right)
        counts = _Counts() if self.how == "inner" else _Counts.of(a.sums(keys.all), b.sums(keys.all), left, right, keys)
        pairs = self.operator.pairs
        there = self._found(1, b, keys, np.unique(keys.left) if pairs else _NONE)
        self.sides[0].add(a, left)
        here = self._found(0, a, keys, np.unique(keys.right) if pairs else np.flatnonzero(counts.by_right))
        self.sides[1].add(b, right)
        parts = self._parts(left, right, here, there, keys, counts)
        return self.output(parts, stacked(left.rows, here.rows), stacked(right.rows, there.rows), left, right)

    def opened(self, run: StepRun, left: Change, right: Change) -> tuple[Index, Index, Keys]:
        """The indexes of both sides, with the keys of a step."""
        a, b = (side.index(run) for side in self.sides)
        touched = [key for key in dict.fromkeys([*left.keys, *right.keys]) if key is not None]
        for side, index, change in zip(self.sides, (a, b), (left, right), strict=True):
            index.open(touched)
            side.check(run, index, change)
        numbers: dict[bytes | None, int] = {key: n for n, key in enumerate(touched)}
        return a, b, Keys(touched, left.slots(numbers), right.slots(numbers))

    def _found(self, port: int, index: Index, keys: Keys, slots: Numbers) -> There:
        """The rows of one side that have these keys."""
        slots = slots[slots >= 0]
        return self.sides[port].there(index, [keys.all[i] for i in slots.tolist()], slots, len(keys.all))

    def _parts(
        self, left: Change, right: Change, here: There, there: There, keys: Keys, counts: _Counts
    ) -> Iterator[Pairs]:
        """The terms of the rule. Rows of the left are those of the change, then those found; on the right likewise."""
        if self.operator.pairs:
            i, j = matches(there.firsts[keys.left], there.counts[keys.left])
            times = np.maximum(left.kept.times[i], there.times[j])
            yield Pairs(i, right.rows.height + j, left.kept.weights[i] * there.weights[j], times)
            i, j = matches(here.firsts[keys.right], here.counts[keys.right])
            times = np.maximum(right.kept.times[i], here.times[j])
            yield Pairs(left.rows.height + j, i, right.kept.weights[i] * here.weights[j], times)
        if self.how in ("left", "full", "anti", "semi"):
            sign = -1 if self.how == "semi" else 1
            alone = counts.before[1][keys.left] == 0
            yield single(np.flatnonzero(alone if self.how != "semi" else ~alone), left)
            yield _flipped(right, keys.right, here, sign * counts.by_right, left.rows.height)
        if self.how in ("right", "full"):
            yield swapped(single(np.flatnonzero(counts.after[0][keys.right] == 0), right))
            yield swapped(_flipped(left, keys.left, there, counts.by_left, right.rows.height))

    def output(
        self, parts: Iterable[Pairs], left: pl.DataFrame, right: pl.DataFrame, one: Change, other: Change
    ) -> Flowing | None:
        """The rows of the result. `one`, `other`: the changes of both sides."""
        found = Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        if not len(found.weights):
            return None
        rows = self._columns(found, left, right)
        if not self.operator.changes:
            times = pl.Series(TS, np.repeat(found.times, found.weights))
            often = np.repeat(np.arange(rows.height), found.weights)
            return Batch(rows if rows.height == len(often) else rows[often], times.to_frame())
        meta = pl.DataFrame({TS: found.times, WEIGHT: found.weights})
        # Only the bilinear terms of one side's changes cannot cancel each other.
        if self.how == "inner" and not (one.rows.height and other.rows.height):
            return Batch(rows, meta)
        net = (
            rows.hstack(meta)
            .group_by(rows.columns, maintain_order=True)
            .agg(pl.col(TS).max(), pl.col(WEIGHT).sum())
            .filter(pl.col(WEIGHT) != 0)
        )
        return Batch(net.select(rows.columns), net.select(TS, WEIGHT)) if net.height else None

    def _columns(self, found: Pairs, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        lefts, rights = _places(found.left), _places(found.right)
        columns = []
        for out in self.operator.columns:
            sides = [(left, lefts, out.left), (right, rights, out.right)]
            given = [frame[name].gather(places) for frame, places, name in sides if name is not None]
            column = given[0] if len(given) == 1 else given[0].zip_with(lefts.is_not_null(), given[1])
            columns.append(column.alias(out.name))
        return pl.DataFrame(columns)


class Keys(NamedTuple):
    """The keys of a step, and their numbers row by row: −1 for a null."""

    all: list[bytes]
    left: Numbers
    right: Numbers


class _Counts(NamedTuple):
    """The number of rows of each key on both sides, before and after the step; at last, those of null: none."""

    before: tuple[Numbers, Numbers] = (_NONE, _NONE)
    after: tuple[Numbers, Numbers] = (_NONE, _NONE)

    @classmethod
    def of(cls, a: Numbers, b: Numbers, left: Change, right: Change, keys: Keys) -> _Counts:
        before, after = [], []
        for sums, change, slots in ((a, left, keys.left), (b, right, keys.right)):
            before.append(np.append(sums, 0))
            after.append(before[-1].copy())
            np.add.at(after[-1], slots, change.kept.weights)
            after[-1][-1] = 0
        return cls((before[0], before[1]), (after[0], after[1]))

    @property
    def by_right(self) -> Numbers:
        """By key: whether rows on the left lose (1) or get (−1) their partners:  [B' = 0] − [B = 0]."""
        return self._passed(1)

    @property
    def by_left(self) -> Numbers:
        """The same for rows on the right."""
        return self._passed(0)

    def _passed(self, side: int) -> Numbers:
        before, after = self.before[side] == 0, self.after[side] == 0
        difference: Numbers = np.subtract(after, before, dtype=np.int64)
        return difference


def matches(firsts: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Each row with all its partners, which are `counts` rows from `firsts` on.

    >>> [numbers.tolist() for numbers in matches(np.array([5, 0, 2]), np.array([2, 0, 1]))]
    [[0, 0, 2], [5, 6, 2]]
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) + np.repeat(firsts - begins, counts)


def single(rows: Numbers, change: Change) -> Pairs:
    """Changed rows without a partner."""
    return Pairs(rows, np.full(len(rows), -1), change.kept.weights[rows], change.kept.times[rows])


def _flipped(cause: Change, slots: Numbers, found: There, signs: Numbers, start: int) -> Pairs:
    """Rows found, whose keys lost their partners or got some. `start`: the place of the first row found."""
    keys = np.flatnonzero(signs)
    i, j = matches(found.firsts[keys], found.counts[keys])
    latest = np.zeros(len(signs), np.int64)
    np.maximum.at(latest, slots, cause.kept.times)
    times = np.maximum(found.times[j], latest[keys][i])
    return Pairs(start + j, np.full(len(j), -1), found.weights[j] * signs[keys][i], times)


def swapped(rows: Pairs) -> Pairs:
    return rows._replace(left=rows.right, right=rows.left)


def stacked(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([first, second], rechunk=True) if second.height else first


def _places(rows: Numbers) -> pl.Series:
    """As places to gather from; −1 is none."""
    places = pl.Series(rows, dtype=pl.Int64)
    return places.set(places < 0, None) if (rows < 0).any() else places
