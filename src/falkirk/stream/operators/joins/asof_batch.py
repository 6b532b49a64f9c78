"""The batch form of an as-of join: rows of a key meet in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from falkirk.state.codec import encode_values
from falkirk.state.entries import FARTHEST
from falkirk.stream.operators.joins.interval_batch import slots_of
from falkirk.stream.operators.joins.join_batch import OF, JoinExchange
from falkirk.stream.operators.joins.nearest import Candidates
from falkirk.stream.operators.joins.timeline import place_units, places_of

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.asof import AsofJoin


class AsofExchange(JoinExchange):
    """Sends rows as a join does, and gives each left row its match."""

    join: AsofJoin

    def paired(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        join, frames = self.join, (left, right)
        unit, *units = place_units([frame[of + c].dtype for frame, of, c in zip(frames, OF, join.times, strict=True)])
        sign = -1 if join.strategy == "backward" else 1
        places = [places_of(f[of + c], sign * u) for f, of, c, u in zip(frames, OF, join.times, units, strict=True)]
        slots = slots_of(join.sides, join.times, left, right)
        kept = join.sides[1].kept
        packed = encode_values(kept, right.select(pl.col(OF[1] + c).alias(c) for c in kept))
        # Equal rows are one candidate.
        reach = FARTHEST if join.tolerance is None else join.tolerance * unit
        found = Candidates(slots[1], places[1], packed).matches(
            slots[0], places[0], reach, np.ones(right.height, np.bool_), nearest=join.strategy == "nearest"
        )
        partners = pl.Series(found, dtype=pl.Int64).set(pl.Series(found < 0, dtype=pl.Boolean), None)
        return left.hstack([column.gather(partners) for column in right.get_columns()])
