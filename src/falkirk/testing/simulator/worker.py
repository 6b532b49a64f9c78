"""What one worker process does: poll the group, take tasks over, run steps, commit them, let tasks go.

Three threads, as in a real worker: `main` polls and computes, `committer` runs transactions, `recovery` takes tasks
over while the others' steps go on. Transactions, naming included, are the committer's or happen while it rests.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from falkirk.checkpoint import takeover, transaction
from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.ports import Aborted, Clock, Stores, Unknown
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase, Revoked, ends, next_clock
from falkirk.testing.simulator.broker import SimBroker
from falkirk.testing.simulator.group import Event, Member
from falkirk.testing.simulator.log import SimLog
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy, ToyReplayer

IDLE = "has nothing to do"
FLUSH_EVERY = 3


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
    stores: Stores
    clock: Clock
    fresh: Callable[[], Nonce]
    choose: Callable[[int], int]
    spawn: Callable[[str, Coroutine[Any, Any, Any]], Thread]
    owned: dict[int, Owned] = field(default_factory=dict)
    leaving: bool = False
    _pipeline: Pipeline = field(default_factory=Pipeline)
    _commit: tuple[list[ClosedStep], Thread] | None = None
    _recovery: Thread | None = None
    _applied: int = 0

    async def main(self) -> None:
        """The whole life."""
        await self.log.renew()
        while not self.leaving:
            if event := self.member.poll():
                await self.answer(event)
            elif not (self.settled() | self.staged() | self.begun() | await self.took_over()):
                await reach(Point(IDLE, waits=True))
        await self.let_go(list(self.owned), clean=True)
        self.broker.group.expire(self.member.instance)

    # what the group says

    async def answer(self, event: Event) -> None:
        """Deal with an event of the group."""
        await reach(Point(f"is told: {event.kind} {list(event.partitions)}"))
        if event.kind == "assigned":
            for t in event.partitions:
                self.owned[t] = Owned(self.toy.task(t))
        else:
            await self.let_go(event.partitions, clean=event.kind == "revoked")
        self.member.answered(event)

    async def let_go(self, tasks: Iterable[int], *, clean: bool) -> None:
        """Give tasks up. Clean: commit what is staged and say `released`, but only of tasks that ran."""
        gone = [t for t in tasks if t in self.owned]
        for t in gone:
            if self.owned[t].phase is not Phase.RUNNING:
                self.owned[t].revoked = True
        while self._recovery is not None and any(self.owned[t].revoked for t in gone):
            await self.waits(self._recovery)
        await self.committed()
        if clean and self.begun():
            await self.committed()
        ran = [self.owned[t] for t in gone if self.owned[t].phase is Phase.RUNNING and not self.owned[t].revoked]
        for owned in ran:
            self._pipeline.forget(owned.task.id)
        if clean and ran:
            await self.release(ran)
        for t in gone:
            if (owned := self.owned.pop(t)).phase is not Phase.IDLE:
                takeover.abandon(owned)

    async def release(self, tasks: list[Owned]) -> None:
        """Say `released`; where that fails the successor fences this worker."""
        try:
            await transaction.release(self.log, tasks)
        except Aborted:
            pass
        except Unknown:
            await self.log.renew()

    async def committed(self) -> None:
        """Until no transaction is under way."""
        if self._commit is not None:
            await self.waits(self._commit[1])

    async def waits(self, thread: Thread) -> None:
        """Until a thread has finished, and what follows from that is done."""
        while not thread.done:
            await reach(Point("waits for its committer or recovery", waits=True))
        self.settled()

    # taking over

    async def took_over(self) -> bool:
        """Begin to take over what is assigned and idle, once the committer rests. Says whether it did."""
        todo = [o for o in self.owned.values() if o.phase is Phase.IDLE]
        if not todo or self._commit is not None or self._recovery is not None:
            return False
        if await takeover.name(self.log, todo, self.fresh):
            self._recovery = self.spawn("recovery", self.recover(todo))
        return True

    async def recover(self, tasks: list[Owned]) -> None:
        """Clauses 5b to 5d. If one of the tasks is revoked meanwhile, all begin again."""
        try:
            await takeover.recover(self.log, self.stores, ToyReplayer(self.toy, self.broker), self.clock, tasks)
        except Revoked:
            for owned in tasks:
                if owned.phase is not Phase.IDLE:
                    takeover.abandon(owned)

    # steps

    def staged(self) -> bool:
        """Run a step of a task that has input, if the pipeline has room. Says whether it did."""
        for t, owned in self.owned.items():
            if owned.phase is Phase.RUNNING and owned.task.id not in self._pipeline.staged and self.step(t, owned):
                return True
        return False

    def step(self, t: int, owned: Owned) -> bool:
        """Run one step of a task, if there is something to do."""
        last = self._pipeline.last(owned)
        at = self.division_end(t, {} if last is None else ends(last))
        if last is not None and at == ends(last):
            return False
        clock = next_clock(last, self.clock.now())
        overlay = Overlay(self._pipeline.top(owned))
        ranges = [] if last is None else [(p.partition, int(o), int(at[p])) for p, o in sorted(ends(last).items())]
        outputs, rows = self.toy.run(self.broker, ranges, clock, overlay)
        self._pipeline.stage(close_step(owned, self.log.owner, last, at, Millis(clock), outputs, overlay, rows=rows))
        return True

    def division_end(self, t: int, at: dict[InputPartition, Offset]) -> dict[InputPartition, Offset]:
        """Where the next step stops: one or more records further on in each partition, chosen afresh at each try."""
        limits = self.toy.ends(self.broker, t)
        if not at:
            return dict.fromkeys(limits, Offset(0))
        return {p: Offset(min(limits[p], o + 1 + self.choose(3))) for p, o in at.items()}

    def begun(self) -> bool:
        """Begin to commit what is staged, if the committer rests. Says whether it did."""
        if self._commit is not None or not self._pipeline.staged:
            return False
        steps = self._pipeline.begin()
        self._commit = steps, self.spawn("committer", transaction.commit_steps(self.log, steps))
        return True

    def settled(self) -> bool:
        """Take note of what the committer or the recovery have finished. Says whether there was anything."""
        if self._recovery is not None and self._recovery.done:
            self._recovery = None
            return True
        if self._commit is None or not self._commit[1].done:
            return False
        (steps, thread), self._commit = self._commit, None
        self._pipeline.settle(steps, thread.result)
        for step, fate in zip(steps, thread.result, strict=True):
            if fate is transaction.Fate.LOST:
                takeover.abandon(step.owned)
        self.maintain()
        return True

    def maintain(self) -> None:
        """Now and then make the stores durable, and less often a version."""
        self._applied += 1
        for owned in self.owned.values():
            if owned.phase is Phase.RUNNING and owned.store is not None:
                if self._applied % (2 * FLUSH_EVERY) == 0:
                    owned.store.commit()
                elif self._applied % FLUSH_EVERY == 0:
                    owned.store.flush()
