"""A Python function of the frame of a step's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import polars as pl

from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, concatenated
from falkirk.stream.dataflow.catching import Catching, Misfit, sifted
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.operators.rows.expressing import evaluated


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MapBatches(Operator):
    """A Python function of the frame of a step's rows."""

    kind: ClassVar[str] = "map_batches"
    row_wise: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    function: Callable[[pl.DataFrame], pl.DataFrame]

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(partial(batch_mapped, self), weighted=self.weighted(task))


def batch_mapped(operator: MapBatches, run: StepRun, batch: Batch) -> Batch:
    """A user's function of the whole frame. It is called for the rows of each weight separately, those that are taken back
    first: what it makes of them has that weight, however many rows that are."""
    if WEIGHT not in batch.meta.columns:
        return _batch_mapped(operator, run, batch)
    weight = batch.meta[WEIGHT]
    parts = [batch.filter(weight == each) for each in weight.unique().sort()]
    return concatenated([_batch_mapped(operator, run, part) for part in parts], weighted=True)


def _batch_mapped(operator: MapBatches, run: StepRun, batch: Batch) -> Batch:
    def function(frame: pl.DataFrame) -> pl.DataFrame:
        rows: Any = operator.function(frame)
        if not isinstance(rows, pl.DataFrame) or rows.schema != operator.schema:
            given = f"a frame of {words(rows.schema)}" if isinstance(rows, pl.DataFrame) else type(rows).__name__
            raise Misfit(
                f"the function gave {given}, not a Polars frame of {words(operator.schema)}",
                "return these columns in this order, or name others with returns={…}",
            )
        return rows

    catching = Catching(operator, run, batch)
    if not catching.goes_on:
        return _with_meta(evaluated(operator, run, batch, function), batch.meta)
    pieces = sifted(catching, batch.rows, function)
    catching.close(len(batch))
    nothing = Batch(operator.schema.to_frame(), batch.meta[:0])
    made = [_with_meta(rows, batch.meta[piece.start : piece.stop]) for piece, rows in pieces]
    return concatenated(made, weighted=False) if made else nothing


def _with_meta(rows: pl.DataFrame, meta: pl.DataFrame) -> Batch:
    """The function's output rows with metadata. If there are as many output rows as input rows, each has the metadata of the
    row in its place. Otherwise all have the greatest timestamp, and their records are known only if there was one."""
    if rows.height == meta.height:
        return Batch(rows, meta)
    last = meta[-1:].with_columns(pl.lit(meta[TS].max()).alias(TS))
    if ORIGIN in meta.columns and meta.height > 1:
        last = last.with_columns(pl.lit(None, pl.UInt32()).alias(ORIGIN))
    return Batch(rows, last[[0] * rows.height])
