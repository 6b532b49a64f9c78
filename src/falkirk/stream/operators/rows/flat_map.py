"""A Python function of each row that gives any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
class FlatMap(Operator):
    """A Python function of each row that gives any number of rows."""

    kind: ClassVar[str] = "flat_map"
    row_wise: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]]

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(partial(flat_mapped, self), weighted=self.weighted(task))


def flat_mapped(operator: FlatMap, run: StepRun, batch: Batch) -> Batch:
    """Any number of rows of a user's function for each row."""
    catching = Catching(operator, run, batch)
    made: list[Any] = []
    origins: list[int] = []
    for i, row in rows_for(batch.rows, catching.row):
        try:
            # A generator runs while its results are read. So reading them is part of the call.
            several = _listed(operator.function(row))
        except FAILURES as error:
            catching.row(i, error)
        else:
            made += several
            origins += [i] * len(several)
    return made_batch(catching, batch, made, origins)


def _listed(rows: Any) -> list[Any]:
    if rows is None or isinstance(rows, Mapping):
        raise TypeError(f"flat_map gives an iterable of dicts, not {'None' if rows is None else 'one dict'}")
    return [as_given(row) for row in rows]
