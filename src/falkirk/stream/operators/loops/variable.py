"""What the body of a loop is given: the rows of the iteration before. It exists only inside the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Operator, Runner, TaskContext


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LoopVariable(Operator):
    """The rows of the iteration before."""

    kind: ClassVar[str] = "iterate"

    def runner(self, task: TaskContext) -> Runner:
        raise AssertionError("the loop has its rows")
