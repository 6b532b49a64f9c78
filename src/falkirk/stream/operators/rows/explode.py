"""`stream.explode(column)`: a row for each element of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun


def explode(before: Operator, line: str, column: str) -> Operator:
    """A row for each element of a list column, with the other columns repeated. A row whose list is empty or null gives no
    row, as in SQL and Spark.

    Raises DefinitionError if there is no such column, or if it has no lists.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> orders = flow.source("orders", value=fk.Json({"id": int, "items": fk.List(fk.String)}))
    >>> orders.explode("items").sink("items", value=fk.Json())
    >>> fk.testing.run(flow, {"orders": [{"id": 1, "items": ["lamp", "chair"]}]}).sinks["items"].rows
    [{'id': 1, 'items': 'lamp'}, {'id': 1, 'items': 'chair'}]
    """
    where = f"explode ({line})"
    if column not in before.schema:
        raise DefinitionError(f"there is no column {column!r}", where=where, hint=did_you_mean(column, before.schema))
    dtype = before.schema[column]
    if not isinstance(dtype, pl.List):
        raise DefinitionError(f"column {column!r} is {dtype}, and not a list", where=where)
    return Explode(
        id=Explode.kind, line=line, inputs=(before,), schema=pl.Schema({**before.schema, column: dtype.inner}),
        changes=before.changes, partitioned=before.partitioned, root=before.root, regime=before.regime, time=before.time,
        column=column,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Explode(Operator):
    """A row for each element of a list."""

    kind: ClassVar[str] = "explode"
    row_wise: ClassVar[bool] = True
    runs_in_gateways: ClassVar[bool] = True
    column: str

    @property
    def words(self) -> str:
        return f"{self.kind}: {self.column}"

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(self._exploded, weighted=self.weighted(task))

    def _exploded(self, run: StepRun, batch: Batch) -> Batch:
        lists = batch.rows[self.column]
        times = lists.list.len().fill_null(0)
        rows = batch.gather(pl.Series(np.repeat(np.arange(len(lists)), times.to_numpy())))
        elements = lists.filter(times > 0).explode().alias(self.column)
        return Batch(rows.rows.with_columns(elements), rows.meta)
