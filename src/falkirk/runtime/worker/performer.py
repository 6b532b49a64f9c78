"""Does what a commit domain's core says, and tells it what has ended.

WorkerCore ──Name, Admit, Commit, Release──▶ the committer's thread
           ──Recover───────────────────────▶ a thread for each task
           ──Start, Rewind, Leave, Drop────▶ at once, in the worker's thread
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from falkirk.checkpoint.takeover import abandon
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import (
    Commit,
    Drop,
    Instruction,
    Leave,
    Name,
    Recover,
    Rewind,
    Start,
    Transaction,
)
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.running import RunningTasks
from falkirk.runtime.worker.takeovers import TakeOvers

Decided: TypeAlias = Callable[[Commit, Sequence[Fate], float], None]
"""Told of each commit before the core is: the fates of its steps, and the seconds that it took."""


@dataclass(slots=True)
class UnderWay:
    """A transaction in the committer's thread."""

    job: Transaction
    outcome: Future[Sequence[Fate]]
    began: float
    ended: float | None = None
    """A while before the worker's thread takes note of it, if that runs a step meanwhile."""

    def note_end(self, _: object) -> None:
        """Called in the committer's thread."""
        self.ended = time.monotonic()


class Performer:
    """Carries out the instructions of one commit domain's core."""

    def __init__(
        self,
        core: WorkerCore,
        committer: Committer,
        take_overs: TakeOvers,
        tasks: RunningTasks,
        decided: Decided,
        traces: Traces,
    ) -> None:
        self._core, self._committer, self._take_overs, self._tasks = core, committer, take_overs, tasks
        self._decided, self._traces = decided, traces
        self._under_way: UnderWay | None = None

    def perform(self, *, take_over: bool = True) -> None:
        """Tell the core what has ended, and do what it says: see `WorkerCore.todo`. Raises what transactions and recoveries
        have raised."""
        if self._under_way is not None and self._under_way.outcome.done():
            self.wait()
        for owned in self._take_overs.ended():
            self._core.recovered(owned)
        for instruction in self._core.todo(take_over=take_over):
            self._do(instruction)
        self._take_overs.note_blocked(self._core.blocked)

    def wait(self) -> None:
        """Wait until the transaction under way has ended, if there is one."""
        if self._under_way is None:
            return
        it, self._under_way = self._under_way, None
        fates = it.outcome.result()
        if isinstance(it.job, Commit):
            self._decided(it.job, fates, (it.ended or time.monotonic()) - it.began)
        self._core.ended(fates)

    @property
    def departing(self) -> bool:
        """Whether the group waits until tasks have left."""
        return self._core.departing

    def committing(self) -> float | None:
        """Seconds since steps were sent, until that is decided."""
        it = self._under_way
        return time.monotonic() - it.began if it is not None and isinstance(it.job, Commit) else None

    @property
    def idle(self) -> bool:
        """No transaction is under way."""
        return self._under_way is None

    @property
    def over(self) -> bool:
        """Nothing is under way in another thread, whether the core knows it or not."""
        return (self._under_way is None or self._under_way.outcome.done()) and not self._take_overs.any

    def finish(self) -> None:
        """Wait for the transaction under way, and tell nobody how it has ended."""
        if self._under_way is not None:
            self._under_way.outcome.exception()

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Recover(tasks):
                self._take_overs.recover(tasks)
            case Start(owned):
                self._tasks.start(owned, self._take_overs.circuit(owned))
            case Rewind(owned):
                self._tasks.rewind(owned)
            case Leave(tasks):
                self._tasks.leave(tasks)
            case Drop(owned):
                self._take_overs.forget(owned)
                self._tasks.drop(owned)
                abandon(owned)
            case _:
                self._transact(instruction)

    def _transact(self, job: Transaction) -> None:
        if isinstance(job, Name):
            self._take_overs.prefetch(job.tasks)
        began, outcome = time.monotonic(), self._committer.transact(job)
        self._under_way = UnderWay(job, outcome, began)
        outcome.add_done_callback(self._under_way.note_end)
        if isinstance(job, Name):
            self._traces.taking_over(job.tasks, outcome)
        elif isinstance(job, Commit):
            self._traces.committing(job.steps, outcome)
