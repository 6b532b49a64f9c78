"""Rows move to the task that owns their key."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.formats import Key
from falkirk.stream.operators.sources.source import Source


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Repartition(Operator):
    """Rows move to the task that owns their key."""

    kind: ClassVar[str] = "repartition"
    row_wise: ClassVar[bool] = True
    key: Key

    @property
    def added_for(self) -> Source | None:
        """The source, if this is the exchange that repartition=True adds after it."""
        (before,) = self.inputs
        return before if isinstance(before, Source) and not before.checked else None

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | set(self.key.columns)

    def constant(self, column: str) -> bool:
        return self.inputs[0].constant(column)

    @property
    def words(self) -> str:
        return f"repartition: by {', '.join(self.key.columns)}"

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(lambda run, batch: batch, weighted=self.weighted(task))
