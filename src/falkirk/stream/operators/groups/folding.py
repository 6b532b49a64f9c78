"""The computation of a grouping, as operations on columns. It does not depend on where the state is.

rows ──▶ partials, a row a group in order of first appearance ──▶ merged with the states before ──▶ results
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.stream.aggregates.arguments import one_zero
from falkirk.stream.aggregates.bound import Bound, GroupError, new, old
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, selected
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.translation import native
from falkirk.stream.operators.rows.expressing import evaluated

ROWS = ""
"""The aggregate that counts a group's rows; no output column has this name."""


class Folding:
    """The arithmetic of one grouping."""

    def __init__(self, group: Operator, columns: Sequence[str], bounds: Sequence[Bound], *, weighted: bool) -> None:
        self.group, self.bounds = group, bounds
        self.columns = list(columns)
        self.weighted, self.folds = weighted, all(b.folds for b in bounds)
        self.computed = native(
            [e.alias(name) for b in bounds for name, e in b.computed.items()], group.inputs[0].schema
        )
        weight = pl.col(WEIGHT) if weighted else None
        partials = [e.alias(new(b.name, part)) for b in bounds for part, e in b.partial(weight).items()]
        self.folded = [*partials, pl.col(TS).max()]

    def arguments(self, run: StepRun, batch: Batch) -> pl.DataFrame:
        """The rows, with additional columns for the aggregates' arguments that are expressions."""
        frame = batch.rows.hstack(batch.meta)
        if self.computed:
            frame = frame.hstack(evaluated(self.group, run, batch, lambda rows: selected(rows, self.computed)))
        return frame

    def partials(self, frame: pl.DataFrame) -> pl.DataFrame:
        """One row per group: its columns, the partials, and the greatest timestamp."""
        if self.weighted and not self.folds:
            frame = _one_by_one(frame)
        by = [one_zero(pl.col(c), frame.schema[c]).alias(c) if frame.schema[c].is_float() else c for c in self.columns]
        return frame.group_by(by, maintain_order=True).agg(self.folded)

    def merged(self, frame: pl.DataFrame) -> pl.DataFrame:
        """New states from partials and the states before. Raises GroupError."""
        parts = {old(b.name, part): merged for b in self.bounds for part, merged in b.merge(frame).items()}
        return selected(frame, [merged.alias(name) for name, merged in parts.items()])

    def results(self, states: pl.DataFrame) -> list[pl.Series]:
        """The columns of the aggregates. Raises GroupError."""
        columns = {b.name: b.result(states) for b in self.bounds if b.name != ROWS}
        if all(isinstance(c, pl.Series) for c in columns.values()):
            return [c.alias(name) for name, c in columns.items() if isinstance(c, pl.Series)]
        return selected(states, [c.alias(name) for name, c in columns.items()]).get_columns()

    @contextmanager
    def blaming(self, keys: pl.DataFrame, rows_of: Callable[[int], str] = lambda group: "") -> Iterator[None]:
        """Turns a GroupError into a UserCodeError with the group's name and the origin of its rows."""
        try:
            yield
        except GroupError as error:
            group = f"{self.group.where}, group {keys.row(error.row, named=True)}"
            where = ", ".join(filter(None, [group, rows_of(error.row)]))
            raise UserCodeError(error.what, where=where, hint=error.hint) from error


def _one_by_one(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row as often as it comes or is taken back, with a weight of 1 or −1: users' aggregates see rows, not weights."""
    times = frame[WEIGHT].abs()
    if not len(times) or times.max() == 1:
        return frame
    return frame[np.repeat(np.arange(frame.height), times.to_numpy())].with_columns(pl.col(WEIGHT).sign())
