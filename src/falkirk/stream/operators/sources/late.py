"""The late rows of the source that is its input."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Late(Operator):
    """The late rows of the source that is its input."""

    kind: ClassVar[str] = "late"
    passes_time: ClassVar[bool] = False

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed

    def runner(self, task: TaskContext) -> Runner:
        return LateRunner(self)


class LateRunner(Runner):
    """The late rows of this step. The source is read before it."""

    def __init__(self, late: Late) -> None:
        self.of = late.inputs[0]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        return run.late.get(self.of)
