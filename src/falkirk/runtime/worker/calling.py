"""Steps that wait for others' answers (`enrich`): each runs in a thread of its own, and the worker's loop goes on.

    worker's thread      open ──▶ …polls the group, reads, runs and commits other tasks' steps…  ──▶ finish, stage
    step's thread                 decode ──▶ operators ──waits for calls──▶ operators, encode

A task has one step under way. It begins the next when that one is staged. If the task is taken away, or the step before is
aborted, the calls that are under way are cancelled, and nothing comes of the step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from falkirk.runtime.worker.task import OpenStep, RunningTask
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.stream.dataflow.circuit import StepOutput

MOST = 256
"""Steps that run at a time. A thread that waits costs little."""


class EndedStep(NamedTuple):
    """A step whose circuit has run, or failed."""

    task: RunningTask
    step: OpenStep
    result: Future[StepOutput]
    began: float


class CallingSteps:
    """Those of one commit domain."""

    def __init__(self) -> None:
        self._pool = ThreadPool(MOST, "step")
        self._began: dict[RunningTask, float] = {}

    def begin(self, task: RunningTask, step: OpenStep) -> None:
        """Run a step of this task."""
        task.under_way = (step, self._pool.submit(partial(task.run, step)))
        self._began[task] = time.monotonic()

    def ended(self) -> Iterator[EndedStep]:
        """The steps that have ended, each once, without those that were cancelled."""
        for task, began in list(self._began.items()):
            if task.under_way is None:
                del self._began[task]
            elif task.under_way[1].done():
                (step, result), task.under_way = task.under_way, None
                del self._began[task]
                yield EndedStep(task, step, result, began)

    def any(self) -> bool:
        """Whether a step is under way."""
        return any(task.under_way is not None for task in self._began)
