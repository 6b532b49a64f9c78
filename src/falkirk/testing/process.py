"""One worker process with all tasks of an app, over a simulated cluster, and how it dies.

The code is that of production: take-over, circuits, steps, transactions, roll-forward. Only broker, disk and clock are
simulated. Every request to the cluster and every answer is a point at which the process may die (`Fault`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, TypeVar

from falkirk.checkpoint import takeover, transaction
from falkirk.checkpoint.ids import Offset, OwnerId
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.tasks import Owned
from falkirk.checkpoint.transaction import Fate
from falkirk.runtime.worker.task import RunningTask, check_sizes
from falkirk.testing.cluster import Cluster, Replays, Rereads, Tables
from falkirk.testing.simulator.broker import Pending
from falkirk.testing.simulator.group import Member
from falkirk.testing.simulator.log import SimLog
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
    """One life of the worker: it begins with all tasks taken over, and running."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        group = cluster.broker.group
        member = Member(group, NAME, group.join(NAME))
        self.log = SimLog(cluster.broker, OwnerId(NAME), member)
        self.pipeline = Pipeline()
        self.tables, self.rereads = Tables(cluster), Rereads(cluster)
        self.tables.read()
        owned = [Owned(bound.task) for bound in cluster.tasks]
        self._owned = owned
        self.tasks: list[RunningTask] = []
        if not owned:
            return
        self._drive(self.log.renew())
        self._drive(takeover.name(self.log, owned, owned, cluster.nonce))
        self._drive(takeover.fence(self.log, owned))
        for one in owned:
            self._drive(takeover.recover(self.log, cluster.disk, Replays(cluster), cluster, one))
            self._drive(takeover.admit(self.log, one))
        for bound, one in zip(cluster.tasks, owned, strict=True):
            circuit = bound.stage.circuit(bound.task.id.partition, cluster.layout)
            self.tasks.append(RunningTask(bound, one, circuit))
        for task in self.tasks:
            ends = task.ends
            task.join({i.partition: Offset(0) for i in task.bound.inputs if ends and i.partition not in ends})
            if not task.begun:
                starts = {i.partition: Offset(0) for i in task.bound.inputs} | self.tables.positions(task.bound)
                self.pipeline.stage(task.begin(starts, self.log.owner, cluster.now()))
            elif task.owned.correction is not None:
                self.pipeline.stage(task.correct(self.log.owner, cluster.now()))
            task.loaded()
            task.let_go()
        if self.pipeline.staged:
            self.commit()

    def close(self, rows: int | None) -> bool:
        """Run a step of every task that has something to do, over up to `rows` records of each partition. Returns whether
        there was one. Tables are always read to their end."""
        self.tables.read()
        for task in self.tasks:
            at = task.positions()
            for i in task.bound.inputs:
                # A joining topic is not read before the step that records it.
                if i.place not in at:
                    continue
                if found := self.cluster.read(i.place, at[i.place], None if i.input.table else rows):
                    task.offer(i.place, found)  # type: ignore[arg-type]  # as much of a message as is asked for
            if task.rows or task.due(self.cluster.now()):
                step = task.close(self.pipeline, self.log.owner, self.cluster.now(), self.tables, self.rereads)
                check_sizes(step, self.cluster.limits)
                self.pipeline.stage(step)
        return bool(self.pipeline.staged)

    def waiting(self) -> int:
        """How many records wait in the fullest partition, except tables."""
        inputs = [(t.positions(), i) for t in self.tasks for i in t.bound.inputs if not i.input.table]
        return max((len(self.cluster.read(i.place, at.get(i.place, Offset(0)))) for at, i in inputs), default=0)

    def commit(self, at: Callable[[Point], Order] = lambda _: Order.GO) -> bool:
        """Commit the closed steps. Returns whether it did. Raises Killed if `at` does."""
        steps = self.pipeline.begin()
        fates = self._drive(transaction.commit_steps(self.log, steps, self._owned), at)
        self.pipeline.settle(steps, fates)
        for task in self.tasks:
            task.rewind()
        return all(fate is Fate.COMMITTED for fate in fates)

    def flush(self) -> None:
        """The stores' contents survive the process."""
        for owned in self._owned:
            owned.opened().flush()

    def leave(self) -> None:
        """Hand the tasks over, with a last version of what is lazy."""
        for owned in self._owned:
            if not owned.task.recovery.rebuilds:
                store = self.cluster.disk.stores[owned.task.id]
                self.cluster.copies.upload(owned.task.id, store.snapshot(store.commit()))
            owned.opened().flush()
        self._drive(transaction.release(self.log, self._owned, self._owned))

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
