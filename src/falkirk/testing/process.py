"""One worker process with all tasks of an app, over a simulated cluster, and how it dies.

The code is that of production: the worker's core, take-over, circuits, steps, transactions, roll-forward. Only broker, disk
and clock are simulated. Every request to the cluster and every answer is a point at which the process may die (`Fault`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from itertools import count
from typing import Any, TypeVar

from falkirk.checkpoint import takeover
from falkirk.checkpoint.ids import Offset, OwnerId
from falkirk.checkpoint.tasks import Owned
from falkirk.checkpoint.worker import transactions
from falkirk.checkpoint.worker.aborts import Aborts
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import Drop, Leave, Recover, Rewind, Start
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.sizes import check_sizes
from falkirk.runtime.worker.task import RunningTask
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.calls import wait_for_ends
from falkirk.testing.cluster import Cluster
from falkirk.testing.edges import MemoryInputs, whole_topics
from falkirk.testing.replays import MemoryReplayer
from falkirk.testing.simulator.cluster.broker import Pending
from falkirk.testing.simulator.cluster.group import Member
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.points import Order, Point

T = TypeVar("T")

NAME = "worker"
COMMIT = "sends EndTxn(commit)"


class Killed(Exception):
    """The process is dead."""


class Ending(Enum):
    """How a crashed step comes to be committed after all."""

    UNSEEN = "the process dies with its commit on the way"
    UNHEARD = "the answer to the commit is lost, and the process lives"
    UNAPPLIED = "the process dies when the commit is answered, before the store has the step"
    UNFLUSHED = "the process dies with the step in its store, and the store loses it"
    FLUSHED = "the process dies with the step in its store"


class Process:
    """One life of the worker: it begins with all tasks taken over, and running. It has no threads: what its core says is done
    at once, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        group = cluster.broker.group
        member = Member(group, NAME, group.join(NAME))
        self.log = SimLog(cluster.broker, OwnerId(NAME), member)
        self.core = WorkerCore(aborts=Aborts(count(step=1_000).__next__))  # nothing is waited for
        self.inputs = MemoryInputs(cluster)
        self.tasks: list[RunningTask] = []
        if cluster.tasks:
            self._drive(self.log.renew())
            self.core.assign(bound.task for bound in cluster.tasks)
            self._perform()
            self._read(0)

    def close(self, rows: int | None) -> bool:
        """Run a step of every task that has something to do, over up to `rows` records of each partition. Returns whether
        there was one. Tables that rows are looked up in are always read to their end."""
        self._read(rows)
        for task in self.tasks:
            if task.rows or task.due(self.cluster.now()):
                step = task.close_step(
                    self.core.pipeline, self.log.owner, self.cluster.now(), self.inputs.tables, self.inputs.again
                )
                check_sizes(step, self.cluster.limits)
                self.core.pipeline.stage(step)
        return bool(self.core.pipeline.staged)

    def late(self) -> int:
        """How many rows came too late for the closed steps."""
        return sum(step.late for step in self.core.pipeline.staged.values())

    def waiting(self) -> int:
        """How many records wait in the fullest partition, except those of tables that rows are looked up in."""
        whole = whole_topics(self.cluster.plan)
        inputs = [(t.ends, i) for t in self.tasks for i in t.bound.inputs if i.place.topic not in whole]
        return max((len(self.cluster.read(i.place, at.get(i.partition, Offset(0)))) for at, i in inputs), default=0)

    def commit(self, at: Callable[[Point], Order] = lambda _: Order.GO) -> bool:
        """Commit the closed steps. Returns whether it did. Raises Killed if `at` does."""
        steps = list(self.core.pipeline.staged.values())
        self._perform(at)
        committed = all(step.owned.last is step.record for step in steps)
        for task in self.tasks:
            failures = task.circuit.failures if isinstance(task.circuit, StageCircuit) else None
            counted = None if failures is None else failures.windows
            task.rewind()
            if failures is not None and counted is not None and committed:
                failures.windows = counted  # as in production, only an abort forgets what has failed
            self.inputs.rewind(task)
        self._read(0)
        return committed

    def flush(self) -> None:
        """The stores' contents survive the process."""
        for owned in self.core.owned.values():
            owned.opened().flush()

    def leave(self) -> None:
        """Hand the tasks over, with a last version of what is lazy."""
        self.core.revoke(list(self.core.owned))
        self._perform()

    def _perform(self, at: Callable[[Point], Order] = lambda _: Order.GO) -> None:
        """Do what the core says, until there is nothing more to do. Raises Killed if `at` does."""
        while todo := self.core.todo():
            for instruction in todo:
                match instruction:
                    case Recover(tasks):
                        self._recover(tasks)
                    case Start(owned):
                        self._start(owned)
                    case Rewind():
                        pass  # see `commit`
                    case Leave(tasks):
                        for owned in tasks:
                            self._make_version(owned)
                    case Drop(owned):
                        takeover.abandon(owned)
                    case _:
                        run = transactions.run(instruction, self.log, self.cluster.nonce)
                        self.core.ended(self._drive(run, at))

    def _recover(self, tasks: Sequence[Owned]) -> None:
        self._drive(takeover.fence(self.log, tasks))
        for owned in tasks:
            replayer = MemoryReplayer(self.cluster)
            self._drive(takeover.recover(self.log, self.cluster.disk, replayer, self.cluster, owned))
            self.core.recovered(owned)

    def _start(self, owned: Owned) -> None:
        bound = self.cluster.tasks[owned.task.steps.partition]
        circuit = bound.stage.circuit(bound.task.id.partition, self.cluster.layout)
        self.tasks.append(task := RunningTask(bound, owned, circuit))
        task.join(self.inputs.joining(task))
        for step in task.first_steps(lambda: self.inputs.begins(task), self.log.owner, self.cluster.now()):
            self.core.pipeline.stage(step)
        self.inputs.add(task)

    def _make_version(self, owned: Owned) -> None:
        if not owned.task.recovery.rebuilds:
            store = self.cluster.disk.stores[owned.task.id]
            self.cluster.copies.upload(owned.task.id, store.snapshot(store.commit()))
        owned.opened().flush()

    def note_calls(self) -> None:
        """Count what operators have called."""
        for task in self.tasks:
            for operator, counts in task.circuit.calls().items():
                self.cluster.calls[operator] += counts.calls

    def end(self) -> None:
        """The process is gone, and what it had opened."""
        self.note_calls()
        for task in self.tasks:
            task.end()
        wait_for_ends()
        self.inputs.close()

    def _read(self, rows: int | None) -> None:
        """Take in tables, and up to `rows` records of each other partition."""
        self.inputs.allow(rows)
        for _ in Intake if self.tasks else ():  # each poll may lead to the next intake, and that one reads more
            self.inputs.poll(0)

    def _drive(self, work: Coroutine[Any, Any, T], at: Callable[[Point], Order] = lambda _: Order.GO) -> T:
        """Run a coroutine of the protocol to its end, through all its points."""
        order: Order | None = None
        try:
            while True:
                try:
                    point = work.send(order)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                self.cluster.broker.settle()
                order = at(point)
        finally:
            work.close()
            self.cluster.broker.settle()


class Deaths:
    """All deaths in one step, in as many attempts as it takes: the argument of `Process.commit` until it is `over`.

    With `before`, the process dies once before every kind of request that precedes the commit, and once before every kind
    that finds out the outcome of a lost commit; then that is found out. At last the step is committed, as the ending says.
    """

    def __init__(self, cluster: Cluster, ending: Ending, *, before: bool) -> None:
        self._cluster, self._ending, self._before = cluster, ending, before
        self._tried: set[str] = set()
        self.over = False
        """The step is committed, or will be before anyone reads."""

    def __call__(self, point: Point) -> Order:
        """At a point. Raises Killed."""
        if point.what == f"{COMMIT}: done":
            self.over = True
            if self._ending is Ending.UNAPPLIED:
                raise Killed
            return Order.LOSE if self._ending is Ending.UNHEARD else Order.GO
        # The number of partitions makes no difference, nor whether a dying process has seen an answer.
        kind = point.what.rstrip("0123456789")
        fatal = not kind.endswith(": done") and not kind.startswith("has queued")
        if self._before and not self.over and fatal and kind not in self._tried:
            self._tried.add(kind)
            raise Killed
        if point.what == COMMIT and point.request is not None:
            if self._before:
                return Order.LOSE
            if self._ending is Ending.UNSEEN:
                self._cluster.broker.under_way.append(Pending(point.what, point.request))
                self.over = True
                raise Killed
        return Order.GO

    def aborted(self) -> None:
        """The worker has found that its commit was lost."""
        self._before = False
