"""Which of a commit domain's tasks may have a step to run.

    pending    rows have arrived, and are not in a step yet
    due        a timer, a joining topic, or state to be moved asks for a step, at a known time

A turn looks at these tasks only, so that it costs by what has arrived, not by the number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

from falkirk.checkpoint.ids import Millis
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.task import RunningTask


class RunQueue:
    """The tasks of one commit domain that may have a step to run. Whoever changes a task says so here."""

    def __init__(self) -> None:
        self._pending: dict[RunningTask, None] = {}
        self._due_at: dict[RunningTask, int] = {}

    def arrived(self, tasks: Iterable[RunningTask]) -> None:
        """Rows have arrived for these tasks."""
        self._pending |= {task: None for task in tasks if task.rows or task.bytes}

    def changed(self, task: RunningTask) -> None:
        """The task was started, has run a step, or was rewound: its rows and its timer are others now."""
        if not task.rows and not task.bytes:
            self._pending.pop(task, None)
        if (at := task.due_at) is None:
            self._due_at.pop(task, None)
        else:
            self._due_at[task] = at

    def forget(self, task: RunningTask) -> None:
        """The task leaves."""
        self._pending.pop(task, None)
        self._due_at.pop(task, None)

    @property
    def rows(self) -> int:
        """The rows that wait for a step."""
        return sum(task.rows for task in self._pending if not _reads_ahead(task))

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(task.bytes for task in self._pending if not _reads_ahead(task))

    def pending(self) -> list[RunningTask]:
        """The tasks that have rows and may run."""
        return [task for task in self._pending if _may_run(task)]

    def due(self, now: Millis) -> list[RunningTask]:
        """The tasks that need a step now, whether they have rows or not, and may run."""
        return [task for task, at in self._due_at.items() if at <= now and _may_run(task)]


def _reads_ahead(task: RunningTask) -> bool:
    """Whether it is full by itself (`RunningTask.full`), and need not hold up others meanwhile."""
    return task.under_way is not None and task.bound.stage.most_rows is not None


def _may_run(task: RunningTask) -> bool:
    return task.begun and task.intake is not Intake.HELD and task.under_way is None
