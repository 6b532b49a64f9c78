"""The rows of several streams."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.wording import counted


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Concat(Operator):
    """The rows of several streams."""

    kind: ClassVar[str] = "concat"
    row_wise: ClassVar[bool] = True

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed

    @property
    def words(self) -> str:
        return f"concat of {counted(len(self.inputs), 'stream')}"

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(lambda run, batch: batch, weighted=self.weighted(task))
