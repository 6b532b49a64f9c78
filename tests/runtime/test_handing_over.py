"""A worker hands a task over whose steps the broker refuses: nothing of it is left behind to be committed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, TaskId, TopicPartition
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.runtime.app import BoundInput, BoundTask
from falkirk.runtime.task import RunningTask
from falkirk.runtime.traces import SILENT
from falkirk.runtime.worker import Stats, Worker
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity
from falkirk.stream.plan import Input


class Refusing:
    """Stands for the committer, and for what else a hand-over asks: every transaction is aborted."""

    def __init__(self) -> None:
        self.commits = 0
        self.released: list[TaskId] = []

    def commit(self, steps: Sequence[ClosedStep]) -> Future[list[Fate]]:
        self.commits += 1
        future: Future[list[Fate]] = Future()
        future.set_result([Fate.ABORTED] * len(steps))
        return future

    def release(self, tasks: Sequence[Owned]) -> None:
        self.released += [owned.task.id for owned in tasks]

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def running(partition: int) -> RunningTask:
    """A task that has begun, and has no step yet."""
    task = Task(TaskId("stats", partition), TopicPartition("steps", partition), None, True)
    owned = Owned(task, nonce=Nonce("n"), store=MemoryStore(Identity("app", str(task.id), "f")))
    for phase in (Phase.NAMING, Phase.FENCING, Phase.ROLLING, Phase.RUNNING):
        owned.enter(phase)
    place = InputPartition("", "bids", "id", partition)
    bound = BoundInput(Input("bids", "bids", "source"), TopicPartition("bids", partition), place)
    circuit: Any = SimpleNamespace(wake_at=lambda state: None, moving=lambda state: False, rewind=lambda: None)
    return RunningTask(BoundTask(task, SimpleNamespace(id="stats"), (bound,)), owned, circuit)  # type: ignore[arg-type]


def worker_of(*tasks: RunningTask) -> tuple[Worker, Refusing]:
    """A worker that runs these tasks, the step 0 of each staged."""
    refusing = Refusing()
    worker = Worker.__new__(Worker)
    worker.__dict__ |= {
        "tasks": {t.owned.task.steps.partition: t for t in tasks}, "pipeline": Pipeline(), "owner": OwnerId("me"),
        "stats": Stats(), "traces": SILENT, "pacer": refusing, "maintenance": refusing, "_committer": refusing,
        "_commit": None, "_commit_began": 0.0, "_assigned": {t.owned.task.steps.partition for t in tasks},
        "_inputs": refusing, "_take_overs": SimpleNamespace(give_up=lambda partitions: None),
        "clock": SimpleNamespace(now=lambda: Millis(0)),
    }  # fmt: skip

    def begin(task: RunningTask) -> None:
        starts = {i.partition: Offset(0) for i in task.bound.inputs}
        worker.pipeline.stage(task.begin(starts, worker.owner, worker.clock.now()))

    worker._begin = begin  # type: ignore[method-assign]
    for task in tasks:
        begin(task)
    return worker, refusing


def test_a_first_step_that_was_aborted_goes_with_its_task() -> None:
    leaves, stays = running(0), running(1)
    worker, committer = worker_of(leaves, stays)

    worker._on_revoked([0])

    assert committer.commits == 1
    assert committer.released == [leaves.owned.task.id]
    assert leaves.owned.phase is Phase.IDLE
    assert set(worker.tasks) == {1}
    assert set(worker.pipeline.staged) == {stays.owned.task.id}, "the next commit would ask an idle task for its store"
