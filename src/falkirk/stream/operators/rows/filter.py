"""Rows for which every predicate is true."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

import narwhals as nw
import polars as pl

from falkirk.stream.dataflow.batch import Batch, selected
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import columns_read, text
from falkirk.stream.definition.translation import native
from falkirk.stream.operators.rows.expressing import expressed


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Filter(Operator):
    """Rows for which every predicate is true."""

    kind: ClassVar[str] = "filter"
    row_wise: ClassVar[bool] = True
    runs_in_gateways: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    predicates: tuple[nw.Expr, ...]

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | columns_read(self.predicates, self.inputs[port].schema)

    def constant(self, column: str) -> bool:
        return self.inputs[0].constant(column)

    @property
    def words(self) -> str:
        return f"filter: {', '.join(map(text, self.predicates))}"

    def runner(self, task: TaskContext) -> Runner:
        all_true = pl.all_horizontal(native(self.predicates, self.inputs[0].schema)).alias("all")

        def run(run: StepRun, batch: Batch) -> Batch:
            found, batch = expressed(self, run, batch, lambda rows: selected(rows, [all_true]))
            mask = found.to_series()
            return batch if mask.all(ignore_nulls=False) else batch.filter(mask)

        return RowWise(run, weighted=self.weighted(task))
