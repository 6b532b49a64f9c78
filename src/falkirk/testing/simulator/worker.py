"""What one worker process does: poll the group, and let its commit domains work (`falkirk.testing.simulator.domain`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from falkirk.checkpoint.tasks import Owned
from falkirk.connectors.kafka.group.group import FENCES
from falkirk.errors import IdentityError
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.group import Event, Member
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy

IDLE = "has nothing to do"


@dataclass(slots=True)
class Worker:
    """One life of one worker."""

    toy: Toy
    broker: SimBroker
    member: Member
    domains: Sequence[Domain]
    """By their numbers: `Toy.domain_of`."""
    leaving: bool = False
    kept_waiting: int = 0
    """The most turns that the group has waited for tasks to leave."""
    _fences: int = 0

    async def main(self) -> None:
        """The whole life."""
        for domain in self.domains:
            await domain.log.renew()
        while not self.leaving:
            if event := self.member.poll():
                await self.answer(event)
            elif not any([await domain.turn() for domain in self.domains]):
                await reach(Point(IDLE, waits=True))
        await self.let_go([t for domain in self.domains for t in domain.core.assigned], clean=True)
        self.broker.group.expire(self.member.instance)

    @property
    def busy(self) -> bool:
        """Something is under way, or is due."""
        return not all(domain.core.quiet for domain in self.domains)

    def owned(self, task: int) -> Owned | None:
        """This worker's ownership of a task."""
        return self._domain(task).core.owned.get(task)

    async def answer(self, event: Event) -> None:
        """Handle an event of the group."""
        await reach(Point(f"is told: {event.kind} {list(event.partitions)}"))
        if event.kind == "fenced":
            self._fences += 1
            if self._fences == FENCES:
                raise IdentityError(f"another process runs as {self.member.instance}")
        if event.kind == "assigned":
            for t in event.partitions:
                self._domain(t).core.assign([self.toy.task(t)])
        else:
            await self.let_go(event.partitions, clean=event.kind == "revoked")
        self.member.answered(event)

    async def let_go(self, tasks: Iterable[int], *, clean: bool) -> None:
        """Give tasks up, and keep the group waiting until they have left."""
        since, tasks = self.broker.now, list(tasks)
        for domain in self.domains:
            domain.core.revoke([t for t in tasks if self._domain(t) is domain], clean=clean)
        while departing := [domain for domain in self.domains if domain.core.departing]:
            if not any([await domain.depart() for domain in departing]):
                await reach(Point("waits for its committer", waits=True))
        self.kept_waiting = max(self.kept_waiting, self.broker.now - since)

    def _domain(self, task: int) -> Domain:
        return self.domains[self.toy.domain_of(task)]
