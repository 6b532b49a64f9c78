"""Another regime for the operators that follow."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WithRegime(Operator):
    """Another regime for the operators that follow."""

    kind: ClassVar[str] = "with_regime"
    row_wise: ClassVar[bool] = True
    changes_regime: ClassVar[bool] = True

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | set(self.partitioned.columns if self.partitioned else ())

    def constant(self, column: str) -> bool:
        return self.inputs[0].constant(column)

    @property
    def words(self) -> str:
        return f"with_regime: {self.regime.kind}"

    def runner(self, task: TaskContext) -> Runner:
        return RowWise(lambda run, batch: batch, weighted=self.weighted(task))
