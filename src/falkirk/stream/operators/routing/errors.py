"""The failures of the operator that is its input."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext
from falkirk.stream.dataflow.step import StepRun


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Errors(Operator):
    """The failures of the operator that is its input."""

    kind: ClassVar[str] = "errors"
    gives_errors: ClassVar[bool] = True

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return set()

    def runner(self, task: TaskContext) -> Runner:
        return ErrorsRunner(self)


class ErrorsRunner(Runner):
    """The failures of this step. Its input runs before it."""

    def __init__(self, errors: Errors) -> None:
        self.of = errors.inputs[0]

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        return run.errors.get(self.of)
