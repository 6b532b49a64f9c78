"""Step n+1 runs while step n commits.

store ⊕ committing ⊕ staged     at most one of each per task; if `committing` aborts, so does `staged`, which builds on it
"""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import ClosedStep, InvariantError, Owned
from falkirk.checkpoint.transaction import Fate
from falkirk.state.store import Reader


class Pipeline:
    """The steps of one worker that are not yet decided."""

    def __init__(self) -> None:
        self.committing: dict[TaskId, ClosedStep] = {}
        self.staged: dict[TaskId, ClosedStep] = {}

    def newest(self, owned: Owned) -> ClosedStep | None:
        """The task's newest undecided step."""
        return self.staged.get(owned.task.id) or self.committing.get(owned.task.id)

    def top(self, owned: Owned) -> Reader:
        """The state that the task's next step reads."""
        step = self.newest(owned)
        return owned.opened() if step is None else step.overlay

    def last(self, owned: Owned) -> StepRecord | None:
        """The record that the task's next step follows."""
        step = self.newest(owned)
        return owned.last if step is None else step.record

    def stage(self, step: ClosedStep) -> None:
        """Hold a closed step until the one before it is decided."""
        if step.owned.task.id in self.staged:
            raise InvariantError(f"task {step.owned.task.id} has a staged step already")
        self.staged[step.owned.task.id] = step

    def begin(self) -> list[ClosedStep]:
        """The staged steps begin to commit."""
        if self.committing:
            raise InvariantError("a transaction is under way already")
        self.committing, self.staged = self.staged, {}
        return list(self.committing.values())

    def settle(self, steps: Sequence[ClosedStep], fates: Sequence[Fate]) -> list[Owned]:
        """The transaction is decided. Returns the tasks that must read again from `owned.last`."""
        rewind = []
        for step, fate in zip(steps, fates, strict=True):
            task = step.owned.task.id
            del self.committing[task]
            if fate is Fate.COMMITTED:
                if task in self.staged:
                    self.staged[task].overlay.below = step.owned.opened()
            else:
                self.staged.pop(task, None)
                rewind.append(step.owned)
        return rewind

    def forget(self, task: TaskId) -> None:
        """The task is lost: nothing of it will be committed."""
        self.staged.pop(task, None)
