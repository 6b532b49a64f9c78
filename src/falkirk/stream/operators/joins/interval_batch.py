"""The batch form of an interval join: rows of a key meet in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from falkirk.state.codec import encode_keys
from falkirk.state.entries import Numbers
from falkirk.stream.operators.joins.join_batch import OF, JoinExchange
from falkirk.stream.operators.joins.join_side import Side
from falkirk.stream.operators.joins.join_step import matches
from falkirk.stream.operators.joins.timeline import Reach, place_units, places_of, timeline

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.interval import IntervalJoin


class IntervalExchange(JoinExchange):
    """Sends rows as a join does, and pairs those near each other."""

    join: IntervalJoin

    def paired(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        join, frames = self.join, (left, right)
        unit, *units = place_units([frame[of + c].dtype for frame, of, c in zip(frames, OF, join.times, strict=True)])
        places = [places_of(f[of + c], u) for f, of, c, u in zip(frames, OF, join.times, units, strict=True)]
        slots = slots_of(join.sides, join.times, left, right)
        line, order = timeline(slots[1], places[1], np.ones(right.height, np.int64))
        reach = Reach(slots[0], places[0] + join.lower * unit, places[0] + join.upper * unit)
        i, j = matches(*line.within(reach))
        j = order[j]
        alone = [np.setdiff1d(np.arange(frame.height), found) for frame, found in ((left, i), (right, j))]
        if join.how in ("semi", "anti"):
            return left[np.unique(i) if join.how == "semi" else alone[0]]
        parts = [left[i].hstack(right[j])]
        parts += [left[alone[0]]] if join.how in ("left", "full") else []
        parts += [right[alone[1]]] if join.how in ("right", "full") else []
        return pl.concat(parts, how="diagonal", rechunk=True)


def slots_of(
    sides: tuple[Side, Side], times: tuple[str, str], left: pl.DataFrame, right: pl.DataFrame
) -> tuple[Numbers, Numbers]:
    """The number of each row's key; −1 where it or the time is null."""
    numbers: dict[bytes, int] = {}
    found = []
    for frame, of, side, time in zip((left, right), OF, sides, times, strict=True):
        columns = [frame[of + c] for c in side.on]
        keys = encode_keys(0, np.zeros(frame.height, np.uint16), columns)
        slots = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        for column in (*columns, frame[of + time]):
            slots[column.is_null().to_numpy()] = -1
        found.append(slots)
    return found[0], found[1]
