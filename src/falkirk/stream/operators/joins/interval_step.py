"""One step of an interval join. The rule is in `falkirk.stream.operators.joins.interval`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from falkirk.state.entries import Numbers
from falkirk.state.indexed import Index
from falkirk.stream.dataflow.operator import Flowing, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.joins.interval_expiry import ENDS, Expiry
from falkirk.stream.operators.joins.join_side import Change
from falkirk.stream.operators.joins.join_step import Keys, Pairs, matches, single, stacked, swapped
from falkirk.stream.operators.joins.timed_step import TimedRunner
from falkirk.stream.operators.joins.timeline import Reach, Timeline, disjoint, timeline

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.interval import IntervalJoin


class Near(NamedTuple):
    """Rows from an index, key by key in the order of their places."""

    rows: pl.DataFrame
    times: Numbers
    weights: Numbers
    line: Timeline


class IntervalRunner(TimedRunner):
    """One interval join in one task."""

    operator: IntervalJoin

    def __init__(self, operator: IntervalJoin, task: TaskContext) -> None:
        super().__init__(operator, task)
        self.lower, self.upper = operator.lower * self.unit, operator.upper * self.unit
        if operator.expire:
            kept = operator.kept[0] * self.unit, operator.kept[1] * self.unit
            self.expiry = Expiry(self.sides, kept, self.unit, task.tables[ENDS], task.first_shard)

    def _joined(self, run: StepRun, left: Change, right: Change) -> Flowing | None:
        a, b, keys = self.opened(run, left, right)
        reach = self._of_left(keys.left, left.kept.places), self._of_right(keys.right, right.kept.places)
        to_b, to_a = [reach[0]], [reach[1]]
        # Who found partners before is told by their number, so the partners of all rows near a change are read.
        if self.how != "inner" and self.how != "right":
            to_b.append(self._around(keys.right, right.kept.places))
        if self.how in ("right", "full"):
            to_a.append(self._around(keys.left, left.kept.places))
        there = self._near(1, b, keys, disjoint(to_b))
        self.sides[0].add(a, left)
        here = self._near(0, a, keys, disjoint(to_a))
        self.sides[1].add(b, right)
        terms = self._terms(left, right, keys, reach, here, there)
        return self.output(terms, stacked(left.rows, here.rows), stacked(right.rows, there.rows), left, right)

    def _terms(
        self, left: Change, right: Change, keys: Keys, reach: tuple[Reach, Reach], here: Near, there: Near
    ) -> Iterator[Pairs]:
        """The terms of the rule, as in a join."""
        i, j = matches(*there.line.within(reach[0]))
        m, n = matches(*here.line.within(reach[1]))
        if self.operator.pairs:
            times = np.maximum(left.kept.times[i], there.times[j])
            yield Pairs(i, right.rows.height + j, left.kept.weights[i] * there.weights[j], times)
            times = np.maximum(right.kept.times[m], here.times[n])
            yield Pairs(left.rows.height + n, m, right.kept.weights[m] * here.weights[n], times)
        if self.how in ("left", "full", "anti", "semi"):
            sign = -1 if self.how == "semi" else 1
            alone = there.line.sums(reach[0]) == 0
            yield single(np.flatnonzero(alone if self.how != "semi" else ~alone), left)
            hit = np.unique(n)
            near = self._of_left(here.line.slots[hit], here.line.places[hit])
            before = there.line.sums(near)
            after = before + timeline(keys.right, right.kept.places, right.kept.weights)[0].sums(near)
            flipped = _flipped(here, hit, n, right.kept.times[m], before, after, left.rows.height)
            yield flipped._replace(weights=sign * flipped.weights)
        if self.how in ("right", "full"):
            yield swapped(single(np.flatnonzero(here.line.sums(reach[1]) == 0), right))
            hit = np.unique(j)
            near = self._of_right(there.line.slots[hit], there.line.places[hit])
            after = here.line.sums(near)
            before = after - timeline(keys.left, left.kept.places, left.kept.weights)[0].sums(near)
            yield swapped(_flipped(there, hit, j, left.kept.times[i], before, after, right.rows.height))

    def _of_left(self, slots: Numbers, places: Numbers) -> Reach:
        """What rows of the left reach on the right."""
        return Reach(slots, places + self.lower, places + self.upper)

    def _of_right(self, slots: Numbers, places: Numbers) -> Reach:
        return Reach(slots, places - self.upper, places - self.lower)

    def _around(self, slots: Numbers, places: Numbers) -> Reach:
        """What rows of the other side reach, if they reach these."""
        width = self.upper - self.lower
        return Reach(slots, places - width, places + width)

    def _near(self, port: int, index: Index, keys: Keys, reach: Reach) -> Near:
        """The rows of one side within these spans."""
        found = index.read([keys.all[i] for i in reach.slots.tolist()], reach.spans())
        line = Timeline(np.repeat(reach.slots, found.counts), found.rows.places, found.rows.weights)
        return Near(self.sides[port].decoded(found.rows), found.rows.times, found.rows.weights, line)


def _flipped(
    found: Near, hit: Numbers, hits: Numbers, causes: Numbers, before: Numbers, after: Numbers, start: int
) -> Pairs:
    """Rows found that lost their partners or got some, of those that were hit. `start`: the place of the first row found."""
    signs = np.subtract(after == 0, before == 0, dtype=np.int64)
    latest = found.times.copy()
    np.maximum.at(latest, hits, causes)
    which = np.flatnonzero(signs)
    rows = hit[which]
    return Pairs(start + rows, np.full(len(rows), -1), found.weights[rows] * signs[which], latest[rows])
