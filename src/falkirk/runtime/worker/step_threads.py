"""Steps that run in threads of their own, while the worker's loop goes on.

    worker's thread      open ──▶ …polls the group, reads, runs and commits other tasks' steps…  ──▶ finish, stage
    step's thread                 decode ──▶ operators ──waits for calls──▶ operators, encode

Two kinds of stages run so. One waits for others' answers (`enrich`): each of its steps has a thread. The other has longer
steps than the quickest stage of its worker: its steps take turns in one thread, and the quick stage does not wait for them.

A task has one step under way. It begins the next when that one is staged. If the task is taken away, or the step before is
aborted, a step that waits for calls or for its turn is cancelled; and nothing comes of one that runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import NamedTuple

from falkirk.runtime.worker.task import OpenStep, RunningTask
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.stream.dataflow.circuit import StepOutput
from falkirk.stream.stages.plan import Stage

MOST = 256
"""Steps that wait for answers at a time. A thread that waits costs little."""


class EndedStep(NamedTuple):
    """A step whose circuit has run, or failed."""

    task: RunningTask
    step: OpenStep
    result: Future[StepOutput]
    began: float


class StepThreads:
    """The threads in which one commit domain runs steps."""

    def __init__(self, most: int) -> None:
        """`most`: how many steps run at a time."""
        self._pool = ThreadPool(most, "step")
        self._began: dict[RunningTask, float] = {}

    def begin(self, task: RunningTask, step: OpenStep) -> None:
        """Run a step of this task."""
        task.under_way = (step, self._pool.submit(partial(_run, task, step)))
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

    def close(self) -> None:
        """No step follows. It does not wait for those that run."""
        self._pool.close()


def step_threads(stage: Stage, stages: Sequence[Stage]) -> StepThreads | None:
    """The threads of a stage's steps; None if the worker's loop runs them. `stages`: all of the flow."""
    if stage.calls_others:
        return StepThreads(MOST)
    if stage.regime.step <= min(other.regime.step for other in stages):
        return None
    # Several at a time would gain little under the interpreter's lock, and keep the quick stage from it longer.
    return StepThreads(1)


def _run(task: RunningTask, step: OpenStep) -> StepOutput:
    if step.given.cancellation is not None and step.given.cancellation.cancelled:
        raise CancelledError
    return task.run_step(step)
