"""A Python function of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from falkirk.blame import FAILURES
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.catching import Catching, rows_for
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.frames import as_given
from falkirk.stream.operators.rows.expressing import made_batch


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Map(Operator):
    """A Python function of each row."""

    kind: ClassVar[str] = "map"
    row_wise: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    function: Callable[[dict[str, Any]], Mapping[str, Any]]

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(partial(mapped, self), weighted=self.weighted(task))


def mapped(operator: Map, run: StepRun, batch: Batch) -> Batch:
    """One row of a user's function for each row."""
    catching = Catching(operator, run, batch)
    function = operator.function
    made: list[Any] = []
    for i, row in rows_for(batch.rows, catching.row):
        try:
            made.append(as_given(function(row)))
        except FAILURES as error:
            catching.row(i, error)
    every = range(len(batch))
    return made_batch(
        catching, batch, made, [i for i in every if i not in catching.failed] if catching.failed else every
    )
