"""What a commit domain of a worker does next, decided from what has happened: no I/O, and no thread.

    group ──assigned, revoked, lost──▶ ┌────────────┐ ──instructions──▶ driver
    driver ────────what has ended────▶ │ WorkerCore │
    driver ───────────────steps──────▶ └────────────┘

Three drivers follow it: the worker that runs in production, the simulator's, which is killed at each point, and that of
`falkirk.testing`. So the explored order of things is the one that runs.

A task that is assigned goes through the phases of its ownership (`tasks.Phase`), one instruction a phase:

    IDLE ──Name──▶ NAMING ──▶ FENCING ──Recover──▶ ROLLING ──▶ ROLLED ──Admit──▶ RUNNING ──Leave, Release──▶ RELEASING
     ▲                                                                              │                           │
     └───────────── Drop: another owner, revoked, or lost, and named again if it is still assigned ◀────────────┘

Invariants:

    one transaction     at most one of Name, Admit, Commit, Release is under way
    one ownership       a task is named only when its earlier ownership here has ended: a store is open once
    no step follows     a step that was aborted, a name of another, or `released`
    revoked             never runs again, and only a task that ran is released
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.tasks import InvariantError, Owned, Phase, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.aborts import Aborts
from falkirk.checkpoint.worker.instructions import (
    Admit,
    Commit,
    Drop,
    Instruction,
    Leave,
    Name,
    Recover,
    Release,
    Rewind,
    Start,
    Transaction,
)


def ran(taken: Sequence[Owned]) -> list[Owned]:
    """Those of the ownerships that run, and that no other worker has."""
    return [o for o in taken if o.phase is Phase.RUNNING and not o.revoked and not o.lost]


def releasable(taken: Sequence[Owned]) -> list[Owned]:
    """Those whose ownership `released` may end: they have fenced their predecessors. `released` of any other would hide
    predecessors that may still have a transaction open."""
    return ran(taken)


class WorkerCore:
    """One worker's decisions. Tasks are identified by their partitions of the steps topic.

    >>> from falkirk.checkpoint.ids import TaskId, TopicPartition
    >>> from falkirk.checkpoint.regimes import Lazy
    >>> core = WorkerCore()
    >>> core.assign([Task(TaskId("stats", 0), TopicPartition("steps", 0), Lazy())])
    >>> [name] = core.todo()
    >>> name.tasks[0].task.id, core.todo()      # nothing more until its transaction has ended
    (TaskId(stage='stats', partition=0), [])
    """

    def __init__(self, ownership: Callable[[Task], Owned] = Owned, aborts: Aborts | None = None) -> None:
        """`ownership`: makes the ownership with which a take-over begins. `aborts`: with another clock than the machine's."""
        self._ownership = ownership
        self.aborts = aborts or Aborts()
        self.unnamed = Aborts(self.aborts.clock)
        """The transactions that were to name tasks, and failed."""
        self.pipeline = Pipeline()
        self.assigned: dict[int, Task] = {}
        self.owned: dict[int, Owned] = {}
        """The ownerships of assigned tasks, from their names on."""
        self.transaction: Transaction | None = None
        """The one under way."""
        self._idle: dict[int, None] = {}
        """Assigned, and to be named."""
        self._rolled: list[Owned] = []
        self._recovering: list[Owned] = []
        self._given_up: list[Owned] = []
        """Revoked before they ran. What is under way for them ends by itself, and none of them is admitted."""
        self._departure: Iterator[Instruction] | None = None
        """What is left to do before the group is answered."""
        self._ready: list[Instruction] = []

    # -- what the group says -------------------------------------------------------------------------------------------

    def assign(self, tasks: Iterable[Task]) -> None:
        """The group assigns these tasks: they are taken over."""
        for task in tasks:
            self.assigned[task.steps.partition] = task
            if task.steps.partition not in self.owned:
                self._idle[task.steps.partition] = None

    def revoke(self, partitions: Iterable[int], *, clean: bool = True) -> None:
        """The group takes these tasks away. `clean`: it waits until their last steps are committed and released. Else the
        session has ended, and others own them, or will. Those that do not run yet never will. Then `departing` says until
        when the group is kept waiting."""
        if self._departure is not None:
            raise InvariantError("the group takes tasks away before it was answered")
        taken = []
        for partition in partitions:
            self.assigned.pop(partition, None)
            self._idle.pop(partition, None)
            if (owned := self.owned.get(partition)) is None:
                continue
            taken.append(owned)
            if owned.phase is not Phase.RUNNING:
                owned.revoked = True
                self._given_up.append(self.owned.pop(partition))
        self._departure = self._depart(taken, clean=clean)

    @property
    def departing(self) -> bool:
        """Whether the group waits until tasks have left."""
        return self._departure is not None

    # -- what to do ----------------------------------------------------------------------------------------------------

    def todo(self, *, take_over: bool = True) -> list[Instruction]:
        """What to do now; each instruction is given once, and those without an answer are carried out before the next call.
        `take_over`: whether tasks may be named."""
        if self.transaction is None:
            if self._departure is None:
                instruction = self._next(take_over=take_over)
            elif (instruction := next(self._departure, None)) is None:
                self._departure = None
            if instruction is not None:
                self._give(instruction)
        ready, self._ready = self._ready, []
        return ready

    def _next(self, *, take_over: bool) -> Instruction | None:
        if self._rolled:
            rolled, self._rolled = self._rolled, []
            return Admit(rolled)
        ending = self.ending()
        if take_over and not self.unnamed.waiting() and (idle := [p for p in self._idle if p not in ending]):
            mine, named = self.mine(), [self._ownership(self.assigned[p]) for p in idle]
            for p, owned in zip(idle, named, strict=True):
                self.owned[p] = owned
                del self._idle[p]
            return Name(named, mine)
        if self.pipeline.staged and not self.aborts.waiting():
            return self._commit()
        return None

    def _commit(self) -> Commit:
        steps = self.pipeline.begin()
        # Those of tasks that are lost are not sent.
        if gone := [str(s.owned.task.id) for s in steps if not self._has(s.owned) and not s.owned.lost]:
            raise InvariantError(f"steps are staged of tasks that have left: {', '.join(gone)}")
        return Commit(steps, self.mine())

    def _depart(self, taken: Sequence[Owned], *, clean: bool) -> Iterator[Instruction]:
        """What happens to tasks that the group takes away, one after the other, each when no transaction is under way."""
        if clean:
            if self.pipeline.staged:
                yield self._commit()
            # A first step that was aborted is staged again. It goes with its task.
            if running := ran(taken):
                yield Leave(running)
            if leaving := releasable(taken):
                yield Release(leaving, self.mine())
        for owned in taken:
            if self._has(owned):
                self._drop(owned)

    def _give(self, instruction: Instruction) -> None:
        if isinstance(instruction, Transaction):
            self.transaction = instruction
        self._ready.append(instruction)

    # -- what has ended ------------------------------------------------------------------------------------------------

    def ended(self, fates: Sequence[Fate] = ()) -> None:
        """The transaction under way has ended. `fates`: of the steps, if it was a Commit. Raises ClusterError if the broker
        refuses them, however often."""
        transaction, self.transaction = self.transaction, None
        match transaction:
            case Name(tasks):
                self.unnamed.named(tasks)
                self._recovering += tasks
                self._ready.append(Recover(tasks))
            case Admit(tasks):
                for owned in tasks:
                    if owned.phase is Phase.RUNNING and not owned.revoked:
                        self._ready.append(Start(owned))
                    else:
                        self._drop(owned)
            case Commit(steps):
                self.aborts.decided(steps, fates)
                rewound = self.pipeline.settle(steps, fates)
                self._ready += [Rewind(owned) for owned in rewound if not owned.lost and self._has(owned)]
            case None:
                raise InvariantError("a transaction ends, and none is under way")
        # Whoever renews the producer learns who else was named.
        for owned in [owned for owned in self.owned.values() if owned.lost]:
            self._drop(owned)

    def recovered(self, owned: Owned) -> None:
        """A recovery has ended: the task is ROLLED, or IDLE."""
        self._recovering.remove(owned)
        if owned.revoked or owned.phase is Phase.IDLE:
            self._drop(owned)
        else:
            self._rolled.append(owned)

    # -- ownerships ----------------------------------------------------------------------------------------------------

    def mine(self) -> list[Owned]:
        """Every ownership that this worker has, is about to have, or had when it was revoked."""
        return [owned for owned in [*self.owned.values(), *self._given_up] if owned.phase is not Phase.IDLE]

    def ending(self) -> set[int]:
        """The tasks that were given up, and of which a job is under way still."""
        return {owned.task.steps.partition for owned in self._given_up}

    @property
    def blocked(self) -> list[int]:
        """The tasks that have come back, and wait until the ownership that was given up has ended."""
        return sorted(self._idle.keys() & self.ending()) if self._given_up else []

    @property
    def quiet(self) -> bool:
        """Nothing is under way, and nothing is due."""
        jobs = self.transaction or self._recovering or self._rolled or self._departure or self._ready
        return not jobs and not self._idle and not self.pipeline.staged

    def _drop(self, owned: Owned) -> None:
        """The ownership is over. Whoever is still assigned the task takes it over again."""
        partition = owned.task.steps.partition
        # Started or rewound now, it would stage a first step, to be committed when others may own the task.
        self._ready = [i for i in self._ready if not (isinstance(i, Start | Rewind) and i.owned is owned)]
        self.pipeline.forget(owned.task.id)
        if owned in self._given_up:
            self._given_up.remove(owned)
        if self._has(owned):
            del self.owned[partition]
            if partition in self.assigned:
                self._idle[partition] = None
        if owned.phase is not Phase.IDLE:
            self._ready.append(Drop(owned))

    def _has(self, owned: Owned) -> bool:
        return self.owned.get(owned.task.steps.partition) is owned
