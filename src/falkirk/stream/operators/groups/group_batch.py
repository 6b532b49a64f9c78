"""`group_by(…).agg(…)` in a batch: one row per group, after all of its rows.

state(g) = merge(partial(rows of g in piece 1), partial(rows of g in piece 2), …)        by halves, in the order of pieces

The states of some aggregates cannot be merged, for example of users' aggregates. Then the exchange sends rows and folds them
pile by pile:  state(g) ← merge(state(g), partial(rows of g in the pile)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from falkirk.stream.aggregates.bound import Bound, new, old
from falkirk.stream.dataflow.batch import TS, Batch, matched, nulls
from falkirk.stream.dataflow.exchange import MOST, BucketRun, Pile, SendsRows, piled, together
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import column_key
from falkirk.stream.operators.groups.folding import Folding

_ROW, _BEFORE = "__falkirk_row", ".before"


def group_exchange(group: Operator, columns: Sequence[str], bounds: Sequence[Bound]) -> PartialExchange | RowExchange:
    """The cheaper possible exchange."""
    return (PartialExchange if all(b.folds for b in bounds) else RowExchange)(group, columns, bounds)


class _GroupExchange:
    """The base of both exchanges. A batch has only final rows, so it takes none back; `weighted`: for partials in a stream.

    Frames have the group's columns first and the greatest timestamp last. The columns between them have internal names,
    because a group's columns can have any other name. They are found by their position.
    """

    def __init__(
        self, group: Operator, columns: Sequence[str], bounds: Sequence[Bound], *, weighted: bool = False
    ) -> None:
        self.folding = Folding(group, columns, bounds, weighted=weighted)
        self.columns = self.folding.columns
        self.key = column_key(self.columns)
        parts = [(b.name, part, dtype) for b in self.folding.bounds for part, dtype in b.parts.items()]
        self.types = {old(name, part): dtype for name, part, dtype in parts}
        self.kept = [new(name, part) for name, part, _ in parts]
        """States, named as partials."""

    def merged(
        self, partials: pl.DataFrame, before: Sequence[pl.Series] | None = None, keys: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """New states from partials and, if there are any, the states before: one column each. `keys`: what errors name, if
        not the group's columns."""
        columns, middle, latest = self._parts(partials)
        if before is None:
            before = [nulls(dtype, partials.height) for dtype in self.types.values()]
        named = [series.alias(name) for name, series in zip(self.types, before, strict=True)]
        with self.folding.blaming(pl.DataFrame(columns) if keys is None else keys):
            states = self.folding.merged(pl.DataFrame([*middle, *named]))
        kept = [states[name].alias(as_partial) for name, as_partial in zip(self.types, self.kept, strict=True)]
        return pl.DataFrame([*columns, *kept, latest])

    def finished(self, states: pl.DataFrame) -> Batch:
        """The groups' rows."""
        columns, middle, latest = self._parts(states)
        keys = pl.DataFrame(columns)
        with self.folding.blaming(keys):
            results = self.folding.results(pl.DataFrame(dict(zip(self.types, middle, strict=True))))
        return Batch(keys.hstack(results), latest.to_frame())

    def _parts(self, frame: pl.DataFrame) -> tuple[list[pl.Series], list[pl.Series], pl.Series]:
        """The group's columns, the internal columns, and the timestamps."""
        series = frame.get_columns()
        return series[: len(self.columns)], series[len(self.columns) : -1], series[-1]


class PartialExchange(_GroupExchange):
    """Sends one row per group."""

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return self.folding.partials(self.folding.arguments(run, batch))

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """One row per group: merges neighbouring rows of one group until there are none."""
        whole = together(frames)
        rows = whole.with_row_index(_ROW).group_by(self.columns, maintain_order=True).agg(_ROW)[_ROW]
        if len(rows) == whole.height:
            return whole
        whole = whole[rows.explode()]
        nth = pl.select(pl.int_ranges(0, rows.list.len())).to_series().explode()
        while nth.max() > 0:  # type: ignore[operator]
            first = nth % 2 == 0
            paired = (nth.shift(-1) == nth + 1).fill_null(False).filter(first)
            whole = self._halved(whole.filter(first), whole.shift(-1).filter(first), paired)
            nth = (nth // 2).filter(first)
        return whole

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        yield self.finished(self.merged(piled(self, parcels)))

    def _halved(self, left: pl.DataFrame, right: pl.DataFrame, paired: pl.Series) -> pl.DataFrame:
        """If a row has a neighbour, the row is the state and the neighbour is the partial. Otherwise it is only a partial."""
        columns, states, latest = self._parts(left)
        _, others, later = self._parts(right)
        partials = [b.zip_with(paired, a) for a, b in zip(states, others, strict=True)]
        before = [a.zip_with(paired, nulls(a.dtype, len(a))) for a in states]
        latest = later.zip_with(paired & (later > latest), latest)
        return self.merged(pl.DataFrame([*columns, *partials, latest]), before)


class RowExchange(SendsRows, _GroupExchange):
    """Sends the group's columns and the aggregated columns."""

    def __init__(self, group: Operator, columns: Sequence[str], bounds: Sequence[Bound]) -> None:
        super().__init__(group, columns, bounds)
        arguments = [c for b in self.folding.bounds for c in b.arguments]
        self.sending = list(dict.fromkeys([*self.columns, *arguments, TS]))

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
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
        joined = matched(partials, states, self.columns, suffix=_BEFORE)
        *before, earlier = joined.get_columns()[partials.width :]
        latest = pl.select(pl.max_horizontal(partials[TS], earlier)).to_series().alias(TS)
        untouched = matched(states, partials, self.columns, how="anti")
        return pl.concat([untouched, self.merged(partials.with_columns(latest), before)], rechunk=True)
