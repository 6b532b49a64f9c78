"""The frame of each row of `over`, and what the functions give for it.

    rows m, n       the row, the m rows before it, and the n rows after it
    range d, e      the rows with a time from t − d to t + e, equal times included
    all             all rows of the key
    running         all rows up to the row:                     state(i) = merge(state(i − 1), partial(row i))
    running range   all rows up to the last row with its time

A bounded frame is folded from its rows. A running one begins with the state of the last row before the frame of rows that is
computed; then all rows are merged by doubling: after k rounds, state(i) has the 2ᵏ rows up to i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.stream.aggregates.bound import Bound, old
from falkirk.stream.aggregates.positions import BoundPosition, BoundRank, BoundShift
from falkirk.stream.dataflow.batch import TS, Batch, nulls, selected
from falkirk.stream.dataflow.operator import RESERVED, Operator
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.translation import native
from falkirk.stream.operators.groups.group_batch import RowExchange
from falkirk.stream.operators.rows.expressing import evaluated

SEGMENT, CONTEXT, PEERS = f"{RESERVED}.segment", f"{RESERVED}.context", f"{RESERVED}.peers"
_ROW = f"{RESERVED}.row"
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows the functions see."""

    kind: Literal["rows", "range", "all"]
    preceding: int | None
    """So many rows, or units of the column of times; None: all."""
    per_milli: int = 1
    """How many of these units make a millisecond."""
    following: int = 0
    """So many rows, or units, after the row; 0 if it is running."""

    @property
    def width(self) -> int:
        """From the first to the last row or unit of a bounded frame: 0 if it has one."""
        return (self.preceding or 0) + self.following

    @property
    def running(self) -> bool:
        """Whether a row is in the frames of all rows after it."""
        return self.preceding is None and not self.whole

    @property
    def ranged(self) -> bool:
        """Whether it is a bounded span of the column of times."""
        return self.kind == "range" and self.preceding is not None

    @property
    def whole(self) -> bool:
        """Whether all rows of a key have the same frame: all of them."""
        return self.kind == "all"

    def __str__(self) -> str:
        if self.whole:
            return "all rows"
        unit = " rows" if self.kind == "rows" else ""
        after = f", {self.following}{unit} after" if self.following else ""
        return f"{self.kind}: {'all rows' if self.running else f'{self.preceding}{unit}'} before{after}"


class Functions:
    """The functions of one `over`."""

    def __init__(
        self, operator: Operator, columns: Sequence[str], bounds: Sequence[Bound], frame: Frame, time: str
    ) -> None:
        self.operator, self.columns = operator, list(columns)
        self.bounds, self.frame, self.time = bounds, frame, time
        self.aggregates = [b for b in bounds if not isinstance(b, BoundPosition)]
        self.positions = [b for b in bounds if isinstance(b, BoundPosition)]
        self.folds = RowExchange(operator, [_ROW], self.aggregates)
        self.computing = native(
            [e.alias(name) for b in self.positions for name, e in b.computed.items()], operator.inputs[0].schema
        )
        self.schema = pl.Schema({c: dtype for b in bounds for c, dtype in b.states().items()})

    def check(self, run: StepRun, batch: Batch) -> None:
        """That arguments of functions can be computed for rows that come. Raises UserCodeError with a row's address."""
        if exprs := [*self.folds.folding.computed, *self.computing]:
            evaluated(self.operator, run, batch, lambda rows: selected(rows, exprs))

    def parts(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The parts of the functions for each row that is no context, in order.

        `rows`: consecutive rows, segment by segment, each with some of the rows before and after it as context. The context
        of a running frame has its parts.
        `PEERS` is equal in rows that are equal in the order."""
        wanted = (~rows[CONTEXT]).arg_true().to_numpy().astype(np.int64)
        columns: dict[str, pl.Series] = {}
        if self.aggregates:
            states = self._running if self.frame.running else self._whole if self.frame.whole else self._bounded
            columns |= states(rows, wanted)
        for position in self.positions:
            columns |= (_ranks if isinstance(position, BoundRank) else self._shifted)(position, rows, wanted)  # type: ignore[arg-type]
        return pl.DataFrame([columns[name].alias(name).cast(dtype) for name, dtype in self.schema.items()])

    def results(self, parts: pl.DataFrame, keys: pl.DataFrame) -> list[pl.Series]:
        """The output columns. `keys`: those of the rows, for errors."""
        with self.folds.folding.blaming(keys):
            by_name = {b.name: b.result(parts) for b in self.bounds}
        return [
            r.alias(n) if isinstance(r, pl.Series) else parts.select(r.alias(n)).to_series() for n, r in by_name.items()
        ]

    def _shifted(self, bound: BoundShift, rows: pl.DataFrame, wanted: Places) -> dict[str, pl.Series]:
        frame = rows.with_columns(self.computing) if self.computing else rows
        return {old(bound.name, "x"): frame.select(bound.shifted().shift(bound.n).over(SEGMENT)).to_series()[wanted]}

    def _whole(self, rows: pl.DataFrame, wanted: Places) -> dict[str, pl.Series]:
        """Folds the rows of each key once."""
        _, number = np.unique(rows[SEGMENT].to_numpy()[wanted], return_inverse=True)
        return {name: series[number] for name, series in self._states(rows, wanted, number).items()}

    def _bounded(self, rows: pl.DataFrame, wanted: Places) -> dict[str, pl.Series]:
        """Folds the rows of each frame."""
        first, last = self._bounds(rows, wanted)
        sizes = last - first + 1
        ends = np.cumsum(sizes)
        index = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + sizes, sizes)
        return self._states(rows, index, np.repeat(np.arange(len(wanted)), sizes))

    def _bounds(self, rows: pl.DataFrame, wanted: Places) -> tuple[Places, Places]:
        """The first and the last row of the frame of each row."""
        assert self.frame.preceding is not None
        begins = _firsts(rows[SEGMENT].to_numpy())
        if self.frame.kind == "rows":
            sizes = np.bincount(begins, minlength=len(begins))[begins]
            last = np.minimum(begins + sizes - 1, np.arange(len(begins)) + self.frame.following)
            return np.maximum(begins[wanted], wanted - self.frame.preceding), last[wanted]
        # Nulls are last, and equal to each other only.
        times = rows[self.time].to_physical().cast(pl.Int64).fill_null(_LAST).to_numpy()
        size, after = self.frame.preceding, self.frame.following
        first, last = wanted.copy(), wanted.copy()
        starts = begins[wanted]
        for start in np.unique(starts):
            mine = starts == start
            end = start + int((begins == start).sum())
            segment, t = times[start:end], times[wanted[mine]]
            lowest = np.where((t == _LAST) | (t < _FIRST + size), np.where(t == _LAST, t, _FIRST), t - size)
            highest = np.where(t < _LAST - after, t + after, np.where(t == _LAST, t, _LAST - 1))
            first[mine] = start + np.searchsorted(segment, lowest, "left")
            last[mine] = start + np.searchsorted(segment, highest, "right") - 1
        return first, last

    def _running(self, rows: pl.DataFrame, wanted: Places) -> dict[str, pl.Series]:
        states, keys = self._states(rows, wanted, np.arange(len(wanted))), rows.select(self.columns)[wanted]
        segments = rows[SEGMENT].to_numpy()
        places, begins = np.arange(len(wanted)), _firsts(segments[wanted])
        fresh = places == begins
        # The context is one row at least, unless the segment begins its key.
        carried = np.where(fresh & (wanted > _firsts(segments)[wanted]), wanted - 1, -1)
        states = self._merged(states, _taken(rows.select(list(states)), carried), keys)
        step, longest = 1, int((places - begins).max(initial=0))
        while step <= longest:
            earlier = np.where(places - step >= begins, places - step, -1)
            states = self._merged(states, _taken(pl.DataFrame(states), earlier), keys)
            step *= 2
        if self.frame.kind == "range":
            peers = rows[PEERS].to_numpy()[wanted]
            ends = np.r_[(peers[1:] != peers[:-1]) | fresh[1:], True]
            last = np.minimum.accumulate(np.where(ends, places, len(places))[::-1])[::-1]
            states = {name: series[last] for name, series in states.items()}
        return states

    def _states(self, rows: pl.DataFrame, index: Places, number: Places) -> dict[str, pl.Series]:
        """The states of frames: their rows, and the number of the frame of each."""
        folding = self.folds.folding
        frame = rows.with_columns(folding.computed) if folding.computed else rows
        frame = frame[index].with_columns(pl.Series(_ROW, number), pl.lit(0, pl.Int64).alias(TS))
        keys = rows.select(self.columns)[index[np.r_[True, number[1:] != number[:-1]][: len(number)]]]
        merged = self.folds.merged(folding.partials(frame), keys=keys).get_columns()[1:-1]
        return {name: series.alias(name) for name, series in zip(self.folds.types, merged, strict=True)}

    def _merged(
        self, states: dict[str, pl.Series], before: Sequence[pl.Series], keys: pl.DataFrame
    ) -> dict[str, pl.Series]:
        """The states before, if there are any, with these after them. `keys`: those of their rows, for errors."""
        height = len(next(iter(states.values())))
        partials = [states[name].alias(kept) for name, kept in zip(self.folds.types, self.folds.kept, strict=True)]
        frame = pl.DataFrame(
            [pl.Series(_ROW, np.arange(height)), *partials, pl.Series(TS, [0]).new_from_index(0, height)]
        )
        merged = self.folds.merged(frame, before, keys).get_columns()[1:-1]
        return {name: series.alias(name) for name, series in zip(self.folds.types, merged, strict=True)}


def _firsts(segments: Places) -> Places:
    """The first row of the segment of each row, given these segments.

    >>> _firsts(np.array([4, 4, 7, 7, 7])).tolist()
    [0, 0, 2, 2, 2]
    """
    fresh = np.r_[True, segments[1:] != segments[:-1]][: len(segments)]
    return np.maximum.accumulate(np.where(fresh, np.arange(len(segments)), 0))


def _taken(frame: pl.DataFrame, places: Places) -> list[pl.Series]:
    """The rows at these places; nulls at −1."""
    index = pl.Series(places)
    index = index.set(index < 0, None).cast(pl.UInt32)
    return [
        nulls(series.dtype, len(index))
        if index.null_count() == len(index)
        else pl.select(pl.lit(series).gather(index)).to_series()
        for series in frame.get_columns()
    ]


def _ranks(bound: BoundRank, rows: pl.DataFrame, wanted: Places) -> dict[str, pl.Series]:
    """The numbers of places, from those of the row before the segment, if there is one."""
    segments = rows[SEGMENT].to_numpy()
    begins, places, first = _firsts(segments)[wanted], np.arange(len(wanted)), _firsts(segments[wanted])
    context = wanted[first] - 1
    has = context >= begins
    carried = {
        part: np.where(has, rows[old(bound.name, part)].fill_null(0).to_numpy()[np.maximum(context, 0)], 0)
        for part in bound.parts
    }
    peers = rows[PEERS].to_numpy()
    other = (wanted == begins) | (peers[wanted] != peers[np.maximum(wanted - 1, 0)])
    number = carried["row_number"] + places - first + 1
    # The row at which its peers begin; if that is before the segment, the carried rank is theirs.
    opened = np.maximum.accumulate(np.where(other, places, -1))
    rank = np.where(opened >= first, number[np.maximum(opened, 0)], carried["rank"])
    opens = np.cumsum(other)
    dense = carried["dense_rank"] + opens - (opens[first] - other[first])
    found = {"row_number": number, "rank": rank, "dense_rank": dense}
    return {old(bound.name, part): pl.Series(values.astype(np.int64)) for part, values in found.items()}
