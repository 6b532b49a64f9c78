"""One step of an as-of join. The rule is in `falkirk.stream.operators.joins.asof`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.entries import FARTHEST, Numbers, Rows
from falkirk.state.indexed import Index
from falkirk.stream.dataflow.operator import Flowing, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.joins.interval_expiry import ENDS, Expiry
from falkirk.stream.operators.joins.join_side import Change
from falkirk.stream.operators.joins.join_step import Keys, Pairs, stacked
from falkirk.stream.operators.joins.nearest import Candidates
from falkirk.stream.operators.joins.timed_step import TimedRunner
from falkirk.stream.operators.joins.timeline import Reach, disjoint

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.asof import AsofJoin


class Partners(NamedTuple):
    """Rows of the right side that can be matched, each once. Its rows are numbered as those of the step, then those found."""

    candidates: Candidates
    rows: pl.DataFrame
    number: Numbers
    times: Numbers
    before: Numbers
    """The weight of each before the step."""
    after: Numbers


class AsofRunner(TimedRunner):
    """One as-of join in one task."""

    operator: AsofJoin

    def __init__(self, operator: AsofJoin, task: TaskContext) -> None:
        sign = -1 if operator.strategy == "backward" else 1
        super().__init__(operator, task, sign)
        self.nearest = operator.strategy == "nearest"
        self.reach = FARTHEST if operator.tolerance is None else operator.tolerance * self.unit
        if operator.expire:
            kept = operator.kept[0] * self.unit, operator.kept[1] * self.unit
            last = operator.tolerance is None
            self.expiry = Expiry(
                self.sides, kept, self.unit, task.tables[ENDS], task.first_shard, sign=sign, keep_last=last
            )  # fmt: skip

    def _joined(self, run: StepRun, left: Change, right: Change) -> Flowing | None:
        a, b, keys = self.opened(run, left, right)
        q = right.kept.places
        ends = q + self.reach if self.nearest else q
        hit = disjoint([Reach(keys.right, np.maximum(q, self.reach - FARTHEST) - self.reach, ends)])
        here = a.read([keys.all[i] for i in hit.slots.tolist()], hit.spans())
        slots, places = np.repeat(hit.slots, here.counts), here.rows.places
        partners = self._partners(b, keys, right, np.append(slots, keys.left), np.append(places, left.kept.places))
        self.sides[0].add(a, left)
        self.sides[1].add(b, right)

        def match(slots: Numbers, places: Numbers, weights: Numbers) -> Numbers:
            return partners.candidates.matches(slots, places, self.reach, weights > 0, nearest=self.nearest)

        new = match(keys.left, left.kept.places, partners.after)
        old, now = match(slots, places, partners.before), match(slots, places, partners.after)
        moved = np.flatnonzero(old != now)
        latest = np.zeros(len(keys.all) + 1, np.int64)
        np.maximum.at(latest, keys.right, right.kept.times)
        times = np.maximum(here.rows.times, latest[slots])[moved]
        weights, at = here.rows.weights[moved], left.rows.height + moved
        parts = [
            Pairs(np.arange(left.rows.height), *self._right(partners, new, left.kept.weights, left.kept.times)),
            Pairs(at, *self._right(partners, old[moved], -weights, times)),
            Pairs(at, *self._right(partners, now[moved], weights, times)),
        ]
        return self.output(parts, stacked(left.rows, self.sides[0].decoded(here.rows)), partners.rows, left, right)

    def _right(
        self, partners: Partners, found: Numbers, weights: Numbers, times: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        """The right rows of these matches, with weights and times."""
        numbers = np.append(partners.number, -1)[found]
        return numbers, weights, np.maximum(times, np.append(partners.times, 0)[found])

    def _partners(self, index: Index, keys: Keys, right: Change, slots: Numbers, places: Numbers) -> Partners:
        """The rows that these can match, before the step and after it."""
        reach = self._wanted(index, keys, slots, places)
        # Each row that is taken back can bring the next one into its place.
        gone = np.bincount(keys.right[(keys.right >= 0) & (right.kept.weights < 0)], minlength=len(keys.all))
        limits = None if self.nearest else (gone[reach.slots] + 1).tolist()
        found = index.read([keys.all[i] for i in reach.slots.tolist()], reach.spans(), limits)
        slots = np.repeat(reach.slots, found.counts)
        many = np.array([index.has_many(key) for key in keys.all], np.bool_)[slots]
        return _once(
            slots, found.rows, many, keys.right, right.kept, stacked(right.rows, self.sides[1].decoded(found.rows))
        )

    def _wanted(self, index: Index, keys: Keys, slots: Numbers, places: Numbers) -> Reach:
        """What is to be read of the right side: all in reach of a key with few rows; from each place on of one with many."""
        begins = places - self.reach if self.nearest else places
        ends = np.minimum(places, FARTHEST - self.reach) + self.reach
        if self.nearest:
            return disjoint([Reach(slots, begins, ends)])
        many = np.array([index.has_many(key) for key in keys.all] + [False], np.bool_)[slots]
        few = disjoint([Reach(slots[~many], begins[~many], ends[~many])])
        single = np.unique(np.column_stack([slots, begins, ends])[many], axis=0)
        return Reach(*(np.concatenate(columns) for columns in zip(few, Reach(*single.T), strict=True)))


def _once(
    slots: Numbers, found: Rows, many: npt.NDArray[np.bool_], changed: Numbers, change: Rows, rows: pl.DataFrame
) -> Partners:
    """Each row once, though it was found several times, or found and changed. `many`: whether a row found has an entry of its
    own. Then it may have been read several times; otherwise equal entries add up."""
    numbers: dict[tuple[int, bytes], int] = {}
    several = [
        numbers.setdefault(key, len(numbers))
        for key in zip([*changed.tolist(), *slots.tolist()], [*change.packed, *found.packed], strict=True)
    ]
    group, size, first = np.array(several, np.int64), len(numbers), len(change.packed)
    number = np.full(size, len(group))
    np.minimum.at(number, group, np.arange(len(group)))
    before, delta = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(before, group[first:][~many], found.weights[~many])
    np.maximum.at(before, group[first:][many], found.weights[many])
    np.add.at(delta, group[:first], change.weights)
    times = np.zeros(size, np.int64)
    np.maximum.at(times, group, np.append(change.times, found.times))
    whose, places = np.append(changed, slots)[number], np.append(change.places, found.places)[number]
    packed = [*change.packed, *found.packed]
    candidates = Candidates(whose, places, [packed[i] for i in number.tolist()])
    return Partners(candidates, rows, number, times, before, before + delta)
