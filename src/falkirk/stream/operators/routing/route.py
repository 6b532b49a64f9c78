"""Rows that name their topic in a sink of several topics. A filter and an ordinary sink for each topic follow it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.catching import Catching, Misfit
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun

ROUTE = (
    "fix the row, or list the topic in the sink's topic=[…]; to continue without such rows: on_error=fk.DeadLetter()"
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Route(Operator):
    """Rows that name their topic in a sink of several topics. A filter and an ordinary sink for each topic follow it."""

    kind: ClassVar[str] = "sink"
    row_wise: ClassVar[bool] = True
    can_refuse: ClassVar[bool] = True
    by: str
    topics: tuple[str, ...]

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | {self.by}

    @property
    def words(self) -> str:
        return f"sink {self.id}: each row to the topic that {self.by} names, of {', '.join(self.topics)}"

    @property
    def exact_words(self) -> str:
        return ""

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(self._known, weighted=self.weighted(task))

    def _known(self, run: StepRun, batch: Batch) -> Batch:
        """The rows that name one of the topics."""
        topics = list(self.topics)
        named = batch.rows[self.by]
        known = named.is_in(topics).fill_null(value=False)
        catching = Catching(self, run, batch)
        for i in (~known).arg_true():
            what = f"column {self.by!r} names topic {named[i]!r}, and the sink has {', '.join(topics)}"
            catching.row(i, Misfit(what, ROUTE))
        catching.close(len(batch))
        return batch if known.all() else batch.filter(known)
