"""A running task, and as much of a commit domain as runs its steps, without a cluster."""

from __future__ import annotations

from collections import Counter
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
from falkirk.runtime.messages.stats import Stats
from falkirk.runtime.observe.traces import Traces
from falkirk.runtime.worker.domain import CommitDomain
from falkirk.runtime.worker.performer import Performer
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.task import RunningTask
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
    regime = SimpleNamespace(selective=None)
    stage: Any = SimpleNamespace(
        id="stats", evolution=lambda circuit: evolution, calls_others=False, most_rows=None, regime=regime
    )
    return RunningTask(BoundTask(task, stage, (bound,)), owned, circuit)


def domain_of(*tasks: RunningTask, traces: Traces) -> CommitDomain:
    """As much of a commit domain as it needs to run steps and hand them to a committer: the step 0 of each task is staged."""
    committed: Future[Sequence[Fate]] = Future()
    committed.set_result([Fate.COMMITTED] * len(tasks))
    positions = SimpleNamespace(positions=lambda bound: {}, seen=lambda bound, held=False: {})
    domain = CommitDomain.__new__(CommitDomain)
    domain._shared = SimpleNamespace(  # type: ignore[assignment]
        app=SimpleNamespace(limits=Counter()),
        inputs=SimpleNamespace(tables=positions, again=None),
        stats=Stats(),
        traces=traces,
    )
    domain.core, domain.queue, domain._first_row, domain._threads = WorkerCore(), RunQueue(), None, None
    domain.core.owned = {task.owned.task.steps.partition: task.owned for task in tasks}
    domain.log = SimpleNamespace(owner=OwnerId("me"))  # type: ignore[assignment]
    committer: Any = SimpleNamespace(transact=lambda job: committed)
    take_overs: Any = SimpleNamespace(ended=lambda: (), note_blocked=lambda partitions: None)
    domain.performer = Performer(domain.core, committer, take_overs, SimpleNamespace(), lambda *_: None, traces)  # type: ignore[arg-type]
    for task in tasks:
        starts = dict.fromkeys((i.partition for i in task.bound.inputs), Offset(0))
        for step in task.first_steps(lambda starts=starts: starts, domain.log.owner, Millis(0)):
            domain.core.pipeline.stage(step)
        domain.queue.changed(task)
    return domain
