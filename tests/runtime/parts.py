"""A running task, and as much of a worker as runs its steps, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Literal

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, TaskId, TopicPartition
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.runtime.app.app import BoundInput, BoundTask
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.performer import Performer
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.worker import Worker
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity
from falkirk.stream.dataflow.topics import Input


def running(partition: int, kind: Literal["source", "edge"] = "source") -> RunningTask:
    """A task that has begun, and has no step yet."""
    task = Task(TaskId("stats", partition), TopicPartition("steps", partition), Lazy())
    owned = Owned(task, nonce=Nonce("n"), store=MemoryStore(Identity("app", str(task.id), "f")))
    for phase in (Phase.NAMING, Phase.FENCING, Phase.ROLLING, Phase.ROLLED, Phase.RUNNING):
        owned.enter(phase)
    place = InputPartition("", "bids", "id", partition)
    bound = BoundInput(Input("bids", "bids", kind), TopicPartition("bids", partition), place)
    circuit: Any = SimpleNamespace(wake_at=lambda state: None, rewind=lambda: None)
    evolution = SimpleNamespace(moving=lambda state: False)
    stage: Any = SimpleNamespace(id="stats", evolution=lambda circuit: evolution, calls_others=False, most_rows=None)
    return RunningTask(BoundTask(task, stage, (bound,)), owned, circuit)


def worker_of(*tasks: RunningTask, traces: Traces) -> Worker:
    """As much of a worker as it needs to run steps and hand them to a committer: the step 0 of each task is staged."""
    committed: Future[Sequence[Fate]] = Future()
    committed.set_result([Fate.COMMITTED] * len(tasks))
    worker = Worker.__new__(Worker)
    worker.core, worker.owner, worker.traces = WorkerCore(), OwnerId("me"), traces
    worker._queue, worker._first_row = RunQueue(), 0.0
    committer: Any = SimpleNamespace(transact=lambda job: committed)
    take_overs: Any = SimpleNamespace(ended=lambda: (), note_blocked=lambda partitions: None)
    worker._performer = Performer(worker.core, committer, take_overs, SimpleNamespace(), lambda *_: None, traces)  # type: ignore[arg-type]
    for task in tasks:
        starts = {i.partition: Offset(0) for i in task.bound.inputs}
        worker.core.pipeline.stage(task.begin(starts, worker.owner, Millis(0)))
        worker._queue.changed(task)
    return worker
