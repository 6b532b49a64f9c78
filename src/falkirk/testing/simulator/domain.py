"""What a commit domain of a worker does: take tasks over, run steps, commit them, let tasks go.

Its core decides what it does next, as in a real worker (`falkirk.checkpoint.worker`). Threads as there: the worker's `main`
computes, another runs transactions (it is named after what it commits), and each task that is taken over has a `recovery`,
in parallel with the others' and with steps of other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from falkirk.checkpoint import takeover
from falkirk.checkpoint.correction import close_correction
from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, TaskId
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ownerships import last_named
from falkirk.checkpoint.ports import Clock, Replayer
from falkirk.checkpoint.records import Range, decode
from falkirk.checkpoint.regimes.floors import Floor, Floors, kept_from
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import Owned, Phase, Task, ends, next_clock
from falkirk.checkpoint.worker import transactions
from falkirk.checkpoint.worker.aborts import Aborts
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import Admit, Commit, Drop, Leave, Name, Recover, Release, Rewind, Start
from falkirk.errors import DiskError, SourceError
from falkirk.runtime.worker.pacing import Pacer, each_of
from falkirk.state.store import Progress
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.line import TURNS_A_SECOND
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.cluster.partition import OutOfRange
from falkirk.testing.simulator.disk import Disk, SimStore, Snapshot
from falkirk.testing.simulator.points import Order, Point, reach
from falkirk.testing.simulator.toy import Toy, ToyReplayer

THREADS: dict[type, str] = {Name: "naming", Admit: "admission", Commit: "committer", Release: "release"}
FLUSH_EVERY = 2
"""Commits between two flushes."""
MOST_ROWS = 1_000
"""The rows of a step, at most: more than a run has."""


class Thread(Protocol):
    """A coroutine that another part of the process has started."""

    @property
    def done(self) -> bool: ...
    @property
    def result(self) -> Any: ...


@dataclass(slots=True)
class TaskFloors:
    """What was noted at each copied version of a task: below which offsets it needs nothing."""

    steps: Floors = field(default_factory=lambda: Floors(keep=0.0))
    edges: Floors = field(default_factory=lambda: Floors(keep=0.0, behind=1))
    """Where the edges were at the last versions, at the latest. The newest does not count, as its copy may be damaged."""


@dataclass(slots=True)
class Domain:
    """The tasks of one life of one worker that commit together: it does what its core says."""

    toy: Toy
    broker: SimBroker
    log: SimLog
    disk: Disk
    clock: Clock
    fresh: Callable[[], Nonce]
    choose: Callable[[int], int]
    spawn: Callable[[str, Coroutine[Any, Any, Any]], Thread]
    corrects: bool
    core: WorkerCore = field(init=False)
    pacer: Pacer = field(init=False)
    """How large a step is, where writing is slow."""
    _running: dict[int, Owned] = field(default_factory=dict)
    _transaction: Thread | None = None
    _recoveries: list[tuple[Owned, Thread]] = field(default_factory=list)
    _upkeep: dict[int, Thread] = field(default_factory=dict)
    _floors: dict[int, TaskFloors] = field(default_factory=dict)
    _applied: int = 0

    def __post_init__(self) -> None:
        self.core = WorkerCore(aborts=Aborts(lambda: self.broker.now / TURNS_A_SECOND))
        self.pacer = Pacer(limit=1.0, max_rows=MOST_ROWS, max_bytes=1 << 20)

    async def turn(self) -> bool:
        """What a round of the worker's loop does for it. Returns whether there was anything to do."""
        self.check_upkeep()
        return self.heard() | self.staged() | await self.acted()

    async def depart(self) -> bool:
        """The same while the group waits for its tasks to leave: no step is run."""
        return self.heard() | await self.acted()

    # what the core says

    def heard(self) -> bool:
        """Tell the core what has ended. Returns whether anything has."""
        ended = [recovery for recovery in self._recoveries if recovery[1].done]
        for recovery in ended:
            self._recoveries.remove(recovery)
            self.core.recovered(recovery[0])
        if self._transaction is None or not self._transaction.done:
            return bool(ended)
        commit, fates = self.core.transaction, self._transaction.result
        self._transaction = None
        self.core.ended(fates)
        if isinstance(commit, Commit):
            self.pacer.decided(commit.steps, fates, self.log.waited / TURNS_A_SECOND)
            self.maintain()
        return True

    async def acted(self) -> bool:
        """Do what the core says. Returns whether there was anything."""
        todo = self.core.todo()
        for instruction in todo:
            match instruction:
                case Recover(tasks):
                    for owned in tasks:
                        work = self.recover(owned)
                        self._recoveries.append((owned, self.spawn(f"recovery of {owned.task.id.partition}", work)))
                case Leave(tasks):
                    for owned in tasks:
                        await self.leave(owned)
                case Start(owned):
                    self.start(owned)
                case Drop(owned):
                    await self.stop(owned)
                    takeover.abandon(owned)
                case Rewind(owned):
                    self.rewind(owned)
                case Name() | Admit() | Commit() | Release():
                    if isinstance(instruction, Name):
                        for owned in instruction.tasks:
                            self.disk.prefetch(owned.task.id)
                    name = THREADS[type(instruction)]
                    self._transaction = self.spawn(name, transactions.run(instruction, self.log, self.fresh))
        return bool(todo)

    async def recover(self, owned: Owned) -> None:
        """A task's own thread, from its name on until it can run."""
        if owned.phase is Phase.FENCING:
            await takeover.fence(self.log, [owned])
            try:
                with self.reading(owned):
                    await takeover.recover(self.log, self.disk, self.replayer(), self.clock, owned)
            except DiskError:
                if not owned.revoked:  # else its next owner finds the problem itself
                    raise
            except SourceError:
                while not owned.revoked:
                    await reach(Point("waits for the group to tell", waits=True))
        self.disk.discard(owned.task.id)

    def replayer(self) -> Replayer:
        """Runs recorded steps again."""
        return ToyReplayer(self.toy, self.broker, self.corrects)

    def start(self, owned: Owned) -> None:
        """Step the task from now on."""
        self._running[owned.task.id.partition] = owned

    def rewind(self, owned: Owned) -> None:
        """Its last step was aborted. Each step reads from where the one before it ended."""

    async def stop(self, owned: Owned) -> None:
        """Step the task no more, and wait for its upkeep."""
        t = owned.task.id.partition
        if self._running.get(t) is owned:
            del self._running[t]
            self._floors.pop(t, None)
            if (upkeep := self._upkeep.pop(t, None)) is not None:
                while not upkeep.done:
                    await reach(Point("waits for the upkeep", waits=True))

    async def leave(self, owned: Owned) -> None:
        """Make the task's last version. Nobody waits for its copy: a process that ends abandons it."""
        floors = self._floors_of(owned)
        await self.stop(owned)
        version = await self.made(owned)
        work = self.tidied(owned.task, version, floors, self.floor(owned))
        self.spawn(f"last copy of {owned.task.id.partition}", work)

    # steps

    def staged(self) -> bool:
        """Run a step of a task that has input, if the pipeline has room. Returns whether it did."""
        for t, owned in self._running.items():
            if owned.task.id not in self.core.pipeline.staged and self.step(t, owned):
                return True
        return False

    def step(self, t: int, owned: Owned) -> bool:
        """Run one step of a task, if there is something to do."""
        last = self.core.pipeline.last(owned)
        if owned.correction is not None and self.core.pipeline.newest(owned) is None:
            self.core.pipeline.stage(close_correction(owned, self.log.owner, self.clock.now()))
            return True
        try:
            with self.reading(owned):
                at = self.division_end(t, {} if last is None else ends(last))
                if last is None:
                    at |= {r.partition: r.end for r in owned.backfilled if r.partition in at}
                elif at == ends(last):
                    return False
                clock = next_clock(last, self.clock.now())
                overlay = Overlay(self.core.pipeline.top(owned))
                ranges = [] if last is None else [Range(p, o, at[p]) for p, o in sorted(ends(last).items())]
                outputs, rows = self.toy.run(self.broker, ranges, clock, overlay)
        except SourceError:
            return False  # the group will tell
        closed = close_step(owned, self.log.owner, last, at, Millis(clock), outputs, overlay, rows=rows)
        closed.rows = rows
        self.core.pipeline.stage(closed)
        return True

    @contextmanager
    def reading(self, owned: Owned) -> Iterator[None]:
        """What is trimmed stops a worker, as in production: raises OutOfRange. Only one that does not know its successor yet
        may come to that, and then waits for the group: raises SourceError."""
        try:
            yield
        except OutOfRange as error:
            records = [decode(e.value) for e in self.broker.decided(owned.task.steps) if e.value is not None]
            if last_named([(Offset(0), record) for record in records]) == owned.nonce:
                raise
            raise SourceError(f"task {owned.task.id} was taken over, and its successor has trimmed {error}") from error

    def division_end(self, t: int, at: dict[InputPartition, Offset]) -> dict[InputPartition, Offset]:
        """Where the next step stops: some records later in each partition, chosen again at each attempt. They are fewer if
        writing is slow; the worker's other tasks are taken to have as many pending."""
        if not at:
            return dict.fromkeys(self.toy.reads(t), Offset(0))
        read = {p: self.toy.ahead(self.broker, p, o, self.toy.at_once + self.choose(3)) for p, o in at.items()}
        rows = sum(read[p] - o for p, o in at.items())
        if rows <= (most := self.pacer.part(rows, rows * len(self._running))):
            return read
        each = each_of(most, sum(read[p] > o for p, o in at.items()))
        return {p: min(read[p], self.toy.ahead(self.broker, p, o, each)) for p, o in at.items()}

    def maintain(self) -> None:
        """Sometimes make the stores durable, and less often a version."""
        self._applied += 1
        for t, owned in self._running.items():
            if not owned.lost and owned.correction is None and (t not in self._upkeep or self._upkeep[t].done):
                if self._applied % self.toy.version_every == 0:
                    self._upkeep[t] = self.spawn(f"upkeep of {t}", self.version(owned))
                elif self._applied % FLUSH_EVERY == 0:
                    owned.opened().flush()

    def check_upkeep(self) -> None:
        """Raises DiskError if one has failed. Nobody asks about a task that has left since."""
        for upkeep in self._upkeep.values():
            if upkeep.done and upkeep.result is not None:
                raise upkeep.result

    async def version(self, owned: Owned) -> DiskError | None:
        """Make a version, copy it, and trim what nobody needs any more. Returns why there is none."""
        floors, floor = self._floors_of(owned), self.floor(owned)
        try:
            version = await self.made(owned)
        except DiskError as error:
            return error
        await self.tidied(owned.task, version, floors, floor)
        return None

    def floor(self, owned: Owned) -> Floor:
        """Where the task's edges are, as of its last committed step."""
        return owned.task.recovery.floor(owned.last, self.toy.edges(owned.task.id.partition))

    async def tidied(self, task: Task, version: Snapshot, floors: TaskFloors, floor: Floor) -> None:
        """Copy a version. Then delete what the older of the last two copies does not need: none while the copies are away.
        Step records first: edges go only behind step records that have gone."""
        older = await self.copy(task.id, version)
        if older is None:
            return
        floors.steps.note(self.broker.now, {task.steps: kept_from(older)})
        floors.edges.note(self.broker.now, floor, version[1].step)
        for below in self.below(floors):
            if not await self.trimmed(below, older):
                return

    def below(self, floors: TaskFloors) -> list[Floor]:
        """What may go, in this order."""
        return [floors.steps.passed(self.broker.now), floors.edges.passed(self.broker.now)]

    async def trimmed(self, below: Floor, older: Progress) -> bool:
        """Delete records below the offsets. False: perhaps not all are, yet."""
        done = True
        for place, offset in below.items():
            delete = partial(self.broker[place].delete, offset)
            order = await reach(Point(f"trims {place.topic}-{place.partition} behind step {older.step}", delete))
            if order in (Order.GO, Order.TWICE):
                delete()
            else:
                done = False
        return done

    def _floors_of(self, owned: Owned) -> TaskFloors:
        return self._floors.setdefault(owned.task.id.partition, TaskFloors())

    async def made(self, owned: Owned) -> Snapshot:
        """A version on this host's disk."""
        store = owned.opened()
        assert isinstance(store, SimStore)
        await reach(Point("makes a version"))
        return store.snapshot(store.commit())

    async def copy(self, task: TaskId, version: Snapshot) -> Progress | None:
        """Copy a version, if the copies can be reached. Returns the progress of the older of the last two."""
        await reach(Point(f"copies the version of step {version[1].step}"))
        return None if self.disk.copies.away else self.disk.copies.upload(task, version)
