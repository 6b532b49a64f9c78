"""Sessions in a batch: one row per session, after all rows of its group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.exchange import BucketRun, SendsRows, together
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import column_key
from falkirk.stream.operators.windows.session_fold import SessionFold, groups_of
from falkirk.stream.operators.windows.spans import of_times, united

if TYPE_CHECKING:
    from falkirk.stream.operators.windows.session_group import SessionGroup


class SessionExchange(SendsRows):
    """Sends the columns of the group, the time, and the aggregated columns."""

    def __init__(self, group: SessionGroup) -> None:
        self.fold, self.columns, self.time = SessionFold(group), list(group.columns), group.session.column
        self.key = column_key(self.columns)
        arguments = [c for b in group.aggregates.values() for c in b.arguments]
        self.sending = list(dict.fromkeys([*self.columns, self.time, *arguments, TS]))

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return self.fold.folding.arguments(run, batch).select(self.sending).filter(pl.col(self.time).is_not_null())

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        rows = together([frame for _, frame in parcels])
        if not rows.height:
            return
        group, keys = groups_of(rows, self.columns)
        numbers, spans = united(of_times(group, self.fold.times(rows), self.fold.gap))
        made = self.fold.folded(rows, numbers, spans, self.fold.without(len(spans)), keys, lambda _: "")
        labels = self.fold.labels(keys, made.spans)
        with self.fold.folding.blaming(labels):
            results = self.fold.folding.results(made.states)
        yield Batch(labels.hstack(results), pl.DataFrame({TS: made.times}))
