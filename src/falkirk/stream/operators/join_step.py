"""One step of a join. The rule is in `falkirk.stream.operators.join`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.join_side import Change, Found, Numbers, SideRunner

if TYPE_CHECKING:
    from falkirk.stream.operators.join import Join

LEFT, RIGHT = "left", "right"
"""The tables."""


class Rows(NamedTuple):
    """Rows of the output: for each, its row on the left and on the right (−1: none), its weight and its time."""

    left: Numbers
    right: Numbers
    weights: Numbers
    times: Numbers


class JoinRunner(Runner):
    """One join in one task."""

    def __init__(self, operator: Join, task: TaskContext) -> None:
        self.operator, self.how = operator, operator.how
        self.sides = [
            SideRunner(side, table, task, operator.where, weighted=before.changes)
            for side, table, before in zip(operator.sides, (LEFT, RIGHT), operator.inputs, strict=True)
        ]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        left, right = (side.change(flowing) for side, flowing in zip(self.sides, inputs, strict=True))
        if not left.rows.height and not right.rows.height:
            return None
        a, b = (side.index(run) for side in self.sides)
        touched = [*left.by_key, *right.by_key]
        for index in (a, b):
            index.open(touched)
        for side, index, change in zip(self.sides, (a, b), (left, right), strict=True):
            side.check(run, index, change)
        before = {key: (a.rows(key), b.rows(key)) for key in touched}
        counts = {key: (*n, n[0] + left.total(key), n[1] + right.total(key)) for key, n in before.items()}
        flips = _Flips(counts)
        a.load(left.by_key, right.by_key if self.operator.pairs else flips.by_right(right.by_key))
        b.load(right.by_key, left.by_key if self.operator.pairs else ())
        there = self.sides[1].found(b, left.by_key if self.operator.pairs else ())
        self.sides[0].add(a, left)
        here = self.sides[0].found(a, right.by_key if self.operator.pairs else flips.by_right(right.by_key))
        self.sides[1].add(b, right)
        a.save()
        b.save()
        parts = list(self._parts(left, right, here, there, flips))
        whole = Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        return self._output(whole, _stacked(left.rows, here.rows), _stacked(right.rows, there.rows), left, right)

    def _parts(self, left: Change, right: Change, here: Found, there: Found, flips: _Flips) -> Iterator[Rows]:
        """The terms of the rule. Rows of the left are those of the change, then those found; on the right likewise."""
        if self.operator.pairs:
            i, j = _matches(*there.spans_of(left.keys))
            times = np.maximum(left.times[i], there.times[j])
            yield Rows(i, right.rows.height + j, left.weights[i] * there.weights[j], times)
            i, j = _matches(*here.spans_of(right.keys))
            times = np.maximum(right.times[i], here.times[j])
            yield Rows(left.rows.height + j, i, right.weights[i] * here.weights[j], times)
        if self.how in ("left", "full", "anti", "semi"):
            sign = -1 if self.how == "semi" else 1
            alone = flips.alone_before(left.keys) if self.how != "semi" else ~flips.alone_before(left.keys)
            yield _single(np.flatnonzero(alone), left)
            yield _flipped(right, here, flips.by_right(right.by_key), left.rows.height, sign)
        if self.how in ("right", "full"):
            yield _swapped(_single(np.flatnonzero(flips.alone_after(right.keys)), right))
            yield _swapped(_flipped(left, there, flips.by_left(left.by_key), right.rows.height, 1))

    def _output(
        self, found: Rows, left: pl.DataFrame, right: pl.DataFrame, one: Change, other: Change
    ) -> Flowing | None:
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

    def _columns(self, found: Rows, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        lefts, rights = _places(found.left), _places(found.right)
        columns = []
        for out in self.operator.columns:
            sides = [(left, lefts, out.left), (right, rights, out.right)]
            given = [frame[name].gather(places) for frame, places, name in sides if name is not None]
            column = given[0] if len(given) == 1 else given[0].zip_with(lefts.is_not_null(), given[1])
            columns.append(column.alias(out.name))
        return pl.DataFrame(columns)


class _Flips:
    """The number of rows of each touched key on both sides, before and after the step."""

    def __init__(self, counts: Mapping[bytes, tuple[int, int, int, int]]) -> None:
        self.counts = counts

    def by_right(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The keys whose rows on the left lose (1) or get (−1) their partners:  [B' = 0] − [B = 0]."""
        return self._passed(keys, 1)

    def by_left(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The same for rows on the right."""
        return self._passed(keys, 0)

    def _passed(self, keys: Iterable[bytes], side: int) -> dict[bytes, int]:
        found = {key: (self.counts[key][2 + side] == 0) - (self.counts[key][side] == 0) for key in keys}
        return {key: sign for key, sign in found.items() if sign}

    def alone_before(self, keys: Sequence[bytes | None]) -> npt.NDArray[np.bool_]:
        """[B = 0] for keys of the left."""
        return np.array([key is None or self.counts[key][1] == 0 for key in keys], np.bool_)

    def alone_after(self, keys: Sequence[bytes | None]) -> npt.NDArray[np.bool_]:
        """[A' = 0] for keys of the right."""
        return np.array([key is None or self.counts[key][2] == 0 for key in keys], np.bool_)


def _matches(firsts: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Each row with all its partners, which are `counts` rows from `firsts` on."""
    rows = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) + np.repeat(firsts - begins, counts)


def _single(rows: Numbers, change: Change) -> Rows:
    """Changed rows without a partner."""
    return Rows(rows, np.full(len(rows), -1), change.weights[rows], change.times[rows])


def _flipped(cause: Change, found: Found, signs: Mapping[bytes, int], start: int, sign: int) -> Rows:
    """Rows found, whose keys lost their partners or got some. `start`: the place of the first row found."""
    keys = list(signs)
    i, j = _matches(*found.spans_of(keys))
    latest = np.array([max(time for _, time in cause.by_key[key].values()) for key in keys], np.int64)
    weights = found.weights[j] * np.array([sign * s for s in signs.values()], np.int64)[i]
    return Rows(start + j, np.full(len(j), -1), weights, np.maximum(found.times[j], latest[i]))


def _swapped(rows: Rows) -> Rows:
    return rows._replace(left=rows.right, right=rows.left)


def _stacked(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([first, second], rechunk=True) if second.height else first


def _places(rows: Numbers) -> pl.Series:
    """As places to gather from; −1 is none."""
    places = pl.Series(rows, dtype=pl.Int64)
    return places.set(places < 0, None) if (rows < 0).any() else places
