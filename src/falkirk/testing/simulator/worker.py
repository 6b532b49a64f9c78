"""What one worker process does: poll the group, take tasks over, run steps, commit them, let tasks go.

Threads as in a real worker: `main` polls and computes, `committer` runs transactions, and each task that is taken over has a
`recovery`, in parallel with the others' and with steps of other tasks. The committer runs all transactions, including naming,
or they happen while it rests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from falkirk.checkpoint import takeover, transaction
from falkirk.checkpoint.correction import close_correction
from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, TaskId
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.ports import Clock
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase, ends, next_clock
from falkirk.errors import IdentityError
from falkirk.state.store import Progress
from falkirk.testing.simulator.broker import SimBroker
from falkirk.testing.simulator.disk import Disk, SimStore, Snapshot
from falkirk.testing.simulator.group import Event, Member
from falkirk.testing.simulator.log import SimLog
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy, ToyReplayer

IDLE = "has nothing to do"
FLUSH_EVERY, VERSION_EVERY = 2, 3
"""Commits between two flushes, and between two versions."""


class Thread(Protocol):
    """A coroutine that another part of the process has started."""

    @property
    def done(self) -> bool: ...
    @property
    def result(self) -> Any: ...


@dataclass(slots=True)
class Worker:
    """One life of one worker."""

    toy: Toy
    broker: SimBroker
    log: SimLog
    member: Member
    disk: Disk
    clock: Clock
    fresh: Callable[[], Nonce]
    choose: Callable[[int], int]
    spawn: Callable[[str, Coroutine[Any, Any, Any]], Thread]
    owned: dict[int, Owned] = field(default_factory=dict)
    corrects: bool = False
    """Whether it was started with `--on-divergence correct`."""
    leaving: bool = False
    _pipeline: Pipeline = field(default_factory=Pipeline)
    _commit: tuple[list[ClosedStep], Thread] | None = None
    _recoveries: list[tuple[Owned, Thread]] = field(default_factory=list)
    """Those of tasks that are given up also end, by themselves."""
    _upkeep: dict[int, Thread] = field(default_factory=dict)
    _applied: int = 0

    async def main(self) -> None:
        """The whole life."""
        await self.log.renew()
        while not self.leaving:
            if event := self.member.poll():
                await self.answer(event)
            elif not (self.settled() | await self.admitted() | self.staged() | self.begun() | await self.took_over()):
                await reach(Point(IDLE, waits=True))
        await self.let_go(list(self.owned), clean=True)
        self.broker.group.expire(self.member.instance)

    @property
    def busy(self) -> bool:
        """A transaction or a recovery is in progress, or is due."""
        return self._commit is not None or bool(self._recoveries) or len(self.mine()) < len(self.owned)

    # what the group says

    async def answer(self, event: Event) -> None:
        """Handle an event of the group."""
        await reach(Point(f"is told: {event.kind} {list(event.partitions)}"))
        if event.kind == "fenced":
            raise IdentityError(f"another process runs as {self.log.owner}")
        if event.kind == "assigned":
            for t in event.partitions:
                self.owned[t] = Owned(self.toy.task(t))
        else:
            await self.let_go(event.partitions, clean=event.kind == "revoked")
        self.member.answered(event)

    async def let_go(self, tasks: Iterable[int], *, clean: bool) -> None:
        """Give tasks up. Clean: commit what is staged and write `released`, but only for tasks that ran."""
        gone = [t for t in tasks if t in self.owned]
        for t in gone:
            if self.owned[t].phase is not Phase.RUNNING:
                self.owned[t].revoked = True
        await self.committed()
        if clean and self.begun():
            await self.committed()
        for t in gone:
            if t in self._upkeep:
                await self.waits(self._upkeep.pop(t))
        ran = [self.owned[t] for t in gone if self.owned[t].phase is Phase.RUNNING and not self.owned[t].revoked]
        for owned in ran:
            self._pipeline.forget(owned.task.id)
        made = [(owned.task.id, await self.made(owned)) for owned in ran if clean]
        if clean and ran:
            await transaction.release(self.log, ran, self.mine())
        for t in gone:
            if (owned := self.owned.pop(t)).phase in (Phase.RUNNING, Phase.RELEASING):
                takeover.abandon(owned)
        self.drop_lost()
        for task, version in made:  # nobody waits for it: a process that ends abandons it
            self.spawn(f"last copy of {task.partition}", self.copy(task, version))

    async def committed(self) -> None:
        """Wait until no transaction is in progress."""
        if self._commit is not None:
            await self.waits(self._commit[1])

    async def waits(self, thread: Thread) -> None:
        """Wait until a thread has finished, and what follows from that is done."""
        while not thread.done:
            await reach(Point("waits for its committer", waits=True))
        self.settled()

    def drop_lost(self) -> None:
        """Forget what others own, once no transaction is in progress. If the group still assigns it, it is taken over."""
        for owned in self.mine():
            if owned.lost:
                self._pipeline.forget(owned.task.id)
                takeover.abandon(owned)

    def mine(self) -> list[Owned]:
        """Every ownership that this worker has, is about to have, or had when it was taken away."""
        ending = [owned for owned, _ in self._recoveries if owned is not self.owned.get(owned.task.id.partition)]
        return [owned for owned in [*self.owned.values(), *ending] if owned.phase is not Phase.IDLE]

    # taking over

    async def took_over(self) -> bool:
        """Begin to take over what is assigned and idle, once the committer rests; but no task whose last, abandoned take-over
        has not ended. Returns whether it did."""
        idle = [t for t, o in self.owned.items() if o.phase is Phase.IDLE and t not in self.ending()]
        if not idle or self._commit is not None:
            return False
        todo, mine = [Owned(self.toy.task(t)) for t in idle], self.mine()
        self.owned |= dict(zip(idle, todo, strict=True))
        for owned in todo:
            self.disk.prefetch(owned.task.id)
        named = await takeover.name(self.log, todo, mine, self.fresh)
        for owned in todo:
            if named:
                work = self.recover(owned)
                self._recoveries.append((owned, self.spawn(f"recovery of {owned.task.id.partition}", work)))
            else:
                self.disk.discard(owned.task.id)
        self.drop_lost()
        return True

    def ending(self) -> set[int]:
        """The tasks that are being recovered."""
        return {owned.task.id.partition for owned, _ in self._recoveries}

    async def recover(self, owned: Owned) -> None:
        """A task's own thread, from its name on until it can run."""
        await takeover.fence(self.log, [owned])
        replayer = ToyReplayer(self.toy, self.broker, self.corrects)
        await takeover.recover(self.log, self.disk, replayer, self.clock, owned)
        self.disk.discard(owned.task.id)

    async def admitted(self) -> bool:
        """Let rolled-forward tasks run, while the committer rests. Returns whether there were any."""
        rolled = [r for r in self._recoveries if r[1].done]
        if self._commit is not None or not rolled:
            return False
        for recovery in rolled:
            owned = recovery[0]
            if not await takeover.admit(self.log, owned) and owned.phase is not Phase.IDLE:
                takeover.abandon(owned)
            self._recoveries.remove(recovery)
        return True

    # steps

    def staged(self) -> bool:
        """Run a step of a task that has input, if the pipeline has room. Returns whether it did."""
        for t, owned in self.owned.items():
            if owned.phase is Phase.RUNNING and owned.task.id not in self._pipeline.staged and self.step(t, owned):
                return True
        return False

    def step(self, t: int, owned: Owned) -> bool:
        """Run one step of a task, if there is something to do."""
        last = self._pipeline.last(owned)
        if owned.correction is not None and self._pipeline.newest(owned) is None:
            self._pipeline.stage(close_correction(owned, self.log.owner, self.clock.now()))
            return True
        at = self.division_end(t, {} if last is None else ends(last))
        if last is None:
            at |= {r.partition: r.end for r in owned.begins if r.partition in at}
        if last is not None and at == ends(last):
            return False
        clock = next_clock(last, self.clock.now())
        overlay = Overlay(self._pipeline.top(owned))
        ranges = [] if last is None else [(p.partition, int(o), int(at[p])) for p, o in sorted(ends(last).items())]
        outputs, rows = self.toy.run(self.broker, ranges, clock, overlay)
        self._pipeline.stage(close_step(owned, self.log.owner, last, at, Millis(clock), outputs, overlay, rows=rows))
        return True

    def division_end(self, t: int, at: dict[InputPartition, Offset]) -> dict[InputPartition, Offset]:
        """Where the next step stops: one or more records later in each partition, chosen again at each attempt."""
        limits = self.toy.ends(self.broker, t)
        if not at:
            return dict.fromkeys(limits, Offset(0))
        return {p: Offset(min(limits[p], o + 1 + self.choose(3))) for p, o in at.items()}

    def begun(self) -> bool:
        """Begin to commit what is staged, if the committer rests. Returns whether it did."""
        if self._commit is not None or not self._pipeline.staged:
            return False
        steps = self._pipeline.begin()
        self._commit = steps, self.spawn("committer", transaction.commit_steps(self.log, steps, self.mine()))
        return True

    def settled(self) -> bool:
        """Process what the committer has finished. Returns whether there was anything."""
        if self._commit is not None and self._commit[1].done:
            (steps, thread), self._commit = self._commit, None
            self._pipeline.settle(steps, thread.result)
            self.drop_lost()
            self.maintain()
            return True
        return False

    def maintain(self) -> None:
        """Sometimes make the stores durable, and less often a version."""
        self._applied += 1
        for t, owned in self.owned.items():
            if (
                owned.phase is Phase.RUNNING
                and owned.correction is None
                and (t not in self._upkeep or self._upkeep[t].done)
            ):
                if self._applied % VERSION_EVERY == 0:
                    self._upkeep[t] = self.spawn(f"upkeep of {t}", self.version(owned))
                elif self._applied % FLUSH_EVERY == 0:
                    owned.opened().flush()

    async def version(self, owned: Owned) -> None:
        """Make a version, copy it, and delete step records that nobody needs any more: those below the older of the last two
        copies, so none while the copies are away."""
        version = await self.made(owned)
        floor = await self.copy(owned.task.id, version)
        if floor is not None:
            await reach(Point(f"trims its step records below that of step {floor.step}"))
            self.broker[owned.task.steps].delete(floor.step_offset - 1)

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
