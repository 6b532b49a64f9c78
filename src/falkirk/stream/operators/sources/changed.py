"""From the records of a change stream to rows with weights.

    weights                  (row, weight)    ↦  weight · row
    envelopes                (before, after)  ↦  −before + after
    envelopes, with a key    the row after, or −1 for its key: the last of each key counts, and `Latest` knows what was before

It is linear and has no state. In a batch there are no retractions: equal rows meet, and what is left of them goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import polars as pl

from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.catching import Catching, Misfit
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, together
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.outlets import WEIGHT_COLUMN
from falkirk.stream.formats import Key
from falkirk.stream.formats.debezium import AFTER, BEFORE, OP
from falkirk.stream.operators.groups.multiset import check_counts

MOST = 1_000_000_000
"""The greatest weight of a record: sums of larger ones could be beyond 64 bits, and wrap."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Changed(Operator):
    """The records of a change stream as rows with weights."""

    kind: ClassVar[str] = "changes"
    can_fail: ClassVar[bool] = True
    passes_time: ClassVar[bool] = False
    enveloped: bool
    """Whether records are envelopes. False: they are rows with a column of weights."""
    last: Key | None = None
    """Of envelopes: only the last row of each key counts."""

    @property
    def words(self) -> str:
        return f"changes of {self.inputs[0].id}: {'envelopes' if self.enveloped else WEIGHT_COLUMN}"

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        # What is left of equal rows depends on all of their columns.
        return set(self.inputs[port].schema)

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(partial(signed, self), weighted=False)

    def exchange(self) -> Exchange | None:
        return ChangedExchange(self) if self.last is None else None


def signed(operator: Changed, run: StepRun, batch: Batch) -> Batch:
    """The rows of these records, with weights."""
    if not operator.enveloped:
        return _weighed(operator, run, batch)
    op, before, after = (batch.rows[c] for c in (OP, BEFORE, AFTER))
    come = op.is_in(["c", "r", "u"])
    if operator.last is None:
        gone = op.is_in(["u", "d"])
        parts = [_side(operator, batch, before, gone, -1), _side(operator, batch, after, come, 1)]
        return Batch(pl.concat([p.rows for p in parts], rechunk=True), pl.concat([p.meta for p in parts], rechunk=True))
    known = pl.when(come).then(after).otherwise(before).alias(AFTER)
    weight = come.cast(pl.Int64) * 2 - 1
    shown = batch.rows.select(known).to_series()
    return _side(operator, batch, shown, come | (op == "d"), weight)


def _side(operator: Changed, batch: Batch, rows: pl.Series, here: pl.Series, weight: pl.Series | int) -> Batch:
    weights = weight if isinstance(weight, pl.Series) else pl.Series([weight]).new_from_index(0, len(rows))
    frame = rows.struct.unnest().select(list(operator.schema))
    return Batch(frame, batch.meta.with_columns(weights.alias(WEIGHT))).filter(here)


def _weighed(operator: Changed, run: StepRun, batch: Batch) -> Batch:
    given = batch.rows[WEIGHT_COLUMN]
    weights = given.cast(pl.Int64, strict=False)
    fits = weights.is_between(-MOST, MOST).fill_null(value=False)
    catching = Catching(operator, run, batch)
    for i in (~fits).arg_true():
        what = "null" if given[i] is None else f"{given[i]}, beyond ±{MOST:,}"
        hint = "write how often the row comes: 1, or −1 if it is taken back"
        catching.row(i, Misfit(f"column {WEIGHT_COLUMN!r} is {what}", hint))
    catching.close(len(batch))
    rows = batch.rows.select(list(operator.schema))
    return Batch(rows, batch.meta.with_columns(weights.alias(WEIGHT))).filter(fits & (weights != 0))


class ChangedExchange:
    """The batch form: equal rows meet in a bucket, and their weights are added."""

    def __init__(self, operator: Changed) -> None:
        self.operator, self.columns = operator, list(operator.schema)
        # As an array, for not every type has a text of its own.
        self.key = Key(self.columns)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        changed = signed(self.operator, run, batch)
        return changed.rows.hstack(changed.meta.select(TS, WEIGHT))

    def condensed(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return (
            together(frames)
            .group_by(self.columns, maintain_order=True)
            .agg(pl.col(TS).max(), pl.col(WEIGHT).sum())
            .filter(pl.col(WEIGHT) != 0)
        )

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        left = self.condensed([frame for _, frame in parcels])
        check_counts(left[WEIGHT], left.select(self.columns), self.operator.where)
        each = left.select(pl.all().exclude(WEIGHT).repeat_by(WEIGHT).explode())
        yield Batch(each.select(self.columns), each.select(TS))
