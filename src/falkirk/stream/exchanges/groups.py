"""`group_by(…).agg(…)` in a batch: one row a group, when all of its rows have been seen.

state(g) = merge(partial(rows of g in piece 1), partial(rows of g in piece 2), …)        by halves, in the order of pieces

Where an aggregate's states cannot be merged, as is so with those that users make, rows are sent, and folded one pile after
another:  state(g) ← merge(state(g), partial(rows of g in the pile)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from falkirk.stream.aggregates.bound import new, old
from falkirk.stream.engine.batch import TS, Batch
from falkirk.stream.engine.folding import Folding
from falkirk.stream.engine.step import StepRun
from falkirk.stream.exchanges.base import MOST, BucketRun, Pile, SendsRows, together
from falkirk.stream.exchanges.place import Place
from falkirk.stream.formats import Key
from falkirk.stream.operators import Group

_BEFORE = f"{TS}.before"


def group_exchange(group: Group) -> PartialExchange | RowExchange:
    """The cheaper of the two that can be."""
    return (PartialExchange if all(b.folds for b in group.aggregates.values()) else RowExchange)(group)


class _GroupExchange:
    """What both share. No row is ever taken back, whatever the grouping is of: it sees final rows only."""

    def __init__(self, group: Group) -> None:
        self.folding = Folding(group, [b.append_only() for b in group.aggregates.values()], weighted=False)
        self.columns = self.folding.columns
        self.key = Key(self.columns if len(self.columns) > 1 else self.columns[0])
        self.states = {c: dtype for b in self.folding.bounds for c, dtype in b.states().items()}

    def merged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Group columns, states and timestamps, from partials, and states before where there are any."""
        missing = [pl.lit(None, dtype).alias(c) for c, dtype in self.states.items() if c not in frame.columns]
        keys = frame.select(self.columns)
        with self.folding.blaming(keys):
            states = self.folding.merged(frame.with_columns(missing))
        return pl.concat([keys, states, frame.select(TS)], how="horizontal")

    def finished(self, states: pl.DataFrame) -> Batch:
        """The groups' rows."""
        keys = states.select(self.columns)
        with self.folding.blaming(keys):
            results = self.folding.results(states)
        return Batch(keys.hstack(results), states.select(TS))


class PartialExchange(_GroupExchange):
    """Sends one row a group."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        parts = [(b.name, part) for b in self.folding.bounds for part in b.parts]
        self.as_partials = {old(*part): new(*part) for part in parts}

    def sent(self, run: StepRun, batch: Batch) -> pl.DataFrame:
        return self.folding.partials(self.folding.arguments(run, batch))

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """One row a group: neighbours are merged, as long as there are any."""
        whole = together(frames)
        rows = whole.with_row_index("row").group_by(self.columns, maintain_order=True).agg("row")["row"]
        if len(rows) == whole.height:
            return whole
        counts = rows.list.len()
        whole = whole[rows.explode()]
        nth = pl.select(pl.int_ranges(0, counts)).to_series().explode()
        while nth.max() > 0:  # type: ignore[operator]
            first = nth % 2 == 0
            # A row that has a neighbour is the state, the neighbour the partial; one that has none is a partial alone.
            paired = (nth.shift(-1) == nth + 1).fill_null(False).filter(first)
            whole = self._halved(whole.filter(first), whole.shift(-1).filter(first), paired)
            nth = (nth // 2).filter(first)
        return whole

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        pile, most = Pile(self), MOST
        for _, partials in parcels:
            pile.add(partials)
            if pile.rows > most:
                pile.condense()
                most = max(MOST, 2 * pile.rows)
        yield self.finished(self.merged(pile.take()))

    def _halved(self, left: pl.DataFrame, right: pl.DataFrame, paired: pl.Series) -> pl.DataFrame:
        columns = {c: left[c] for c in self.columns}
        for state, partial in self.as_partials.items():
            columns[partial] = right[partial].zip_with(paired, left[partial])
            nothing = pl.Series([None], dtype=self.states[state]).new_from_index(0, left.height)
            columns[state] = left[partial].zip_with(paired, nothing)
        later = right[TS].zip_with(paired, left[TS])
        columns[TS] = later.zip_with(later > left[TS], left[TS])
        return self.merged(pl.DataFrame(columns)).rename(self.as_partials)


class RowExchange(SendsRows, _GroupExchange):
    """Sends the columns that are grouped by and aggregated."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        arguments = [c for b in self.folding.bounds for c in b.arguments]
        self.sending = list(dict.fromkeys([*self.columns, *arguments, TS]))

    def sent(self, run: StepRun, batch: Batch) -> pl.DataFrame:
        return self.folding.arguments(run, batch).select(self.sending)

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        pile, states = Pile(self), None
        for _, rows in parcels:
            pile.add(rows)
            if pile.rows > MOST:
                states = self._folded(states, pile.take())
        if pile.rows:
            states = self._folded(states, pile.take())
        assert states is not None
        yield self.finished(states)

    def _folded(self, states: pl.DataFrame | None, rows: pl.DataFrame) -> pl.DataFrame:
        partials = self.folding.partials(rows)
        if states is None:
            return self.merged(partials)
        before = states.rename({TS: _BEFORE})
        both = partials.join(before, on=self.columns, how="left", nulls_equal=True, maintain_order="left")
        both = both.with_columns(pl.max_horizontal(TS, _BEFORE).alias(TS))
        untouched = states.join(partials, on=self.columns, how="anti", nulls_equal=True, maintain_order="left")
        return pl.concat([untouched, self.merged(both)], rechunk=True)
