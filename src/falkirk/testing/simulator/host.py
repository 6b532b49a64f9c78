"""A host, the life of a process on it, and that process's faults at a point."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from falkirk.checkpoint.ids import Millis
from falkirk.checkpoint.regimes.eager import TOMBSTONE_RETENTION
from falkirk.testing.simulator.cluster.broker import Pending, SimBroker
from falkirk.testing.simulator.cluster.coordinator import Concurrent, Fenced, InvalidState, Phase
from falkirk.testing.simulator.cluster.group import (
    NOBODY,
    Group,
    IllegalGeneration,
    InstanceFenced,
    Member,
    Membership,
    UnknownMember,
)
from falkirk.testing.simulator.cluster.line import Line
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.disk import Disk
from falkirk.testing.simulator.plan import (
    Age,
    Crash,
    Doubt,
    Expel,
    Failover,
    Fault,
    Full,
    Jump,
    LateJoin,
    Leave,
    Move,
    Pause,
    Refuse,
    Slow,
    TimeOut,
)
from falkirk.testing.simulator.points import Order, Point
from falkirk.testing.simulator.worker import Worker

BEGINNING = Point("starts")


class Action(NamedTuple):
    """Something that may happen next."""

    what: str
    do: Callable[[], object]
    background: bool


@dataclass(slots=True, eq=False)
class Thread:
    """A coroutine of a process, and the point where it stands."""

    name: str
    work: Coroutine[Any, Any, Any]
    order: Order | None = None
    at: Point = BEGINNING
    done: bool = False
    result: Any = None
    turn: Action | None = None
    """Its next turn."""
    until: int = 0
    """The turn before which it does not move: what it does takes time."""

    def advance(self) -> bool:
        """Run to the next point. False if it already waits at that point, or has ended."""
        order, self.order = self.order, Order.GO
        before = self.at
        try:
            self.at = self.work.send(order)
        except StopIteration as end:
            self.done, self.result = True, end.value
            return False
        return not (self.at.what == before.what and self.at.waits)


@dataclass(slots=True)
class SimClock:
    """The wall clock of one host."""

    broker: SimBroker
    skew: int = 0

    def now(self) -> Millis:
        """Milliseconds."""
        return Millis(self.broker.now + self.skew)


@dataclass(slots=True, eq=False)
class Process:
    """One life of a worker."""

    worker: Worker
    logs: Sequence[SimLog]
    """Of its commit domains."""
    member: Member
    threads: list[Thread]


@dataclass(slots=True, eq=False)
class Host:
    """What outlives a worker's process: its disk, its clock, its identity."""

    number: int
    disk: Disk
    clock: SimClock
    twins: int = 0
    """How many other hosts have had its identity before it."""
    places: list[str] = field(default_factory=list)
    """The points that its processes came to."""
    process: Process | None = None
    joined: Membership = NOBODY
    """The membership of its last process in the group."""
    late: Membership = NOBODY
    """That of a join which came late."""
    """The membership of its last process in the group."""
    silent_since: int = 0
    paused_until: int = 0
    back_at: int = 0
    """The turn at which a process is started, if none runs."""

    @property
    def name(self) -> str:
        """Instance id, and the transactional id of its first commit domain."""
        return f"w{self.number}"

    @property
    def label(self) -> str:
        """Its name here: that of one which shares another's identity has a prime."""
        return self.name + "'" * self.twins

    def is_in(self, group: Group) -> bool:
        """Whether the group still counts its process in, or a late join of it."""
        joined = self.joined if self.process is None else self.process.member.joined
        return group.has(joined) or group.has(self.late)

    def end(self, turn: int, keep: int, back_after: int, *, lost: bool = False) -> None:
        """The process is gone, with the unflushed writes after the first `keep`, or with all of its disk."""
        assert self.process is not None
        for thread in self.process.threads:
            thread.work.close()
        self.joined = self.process.member.joined
        self.process, self.paused_until = None, 0
        self.silent_since, self.back_at = turn, turn + back_after
        self.disk.crash(keep)
        if lost:
            self.disk.lose()


def apply_fault(host: Host, thread: Thread, fault: Fault, broker: SimBroker, turn: int) -> None:
    """A fault of the process at the point where one of its threads stands."""
    assert host.process is not None
    match fault:
        case Crash():
            if fault.travels:
                _let_travel(host, thread, broker, fault.late)
            host.end(turn, fault.keep, fault.back_after, lost=fault.lost)
        case Pause():
            if fault.travels:
                _let_travel(host, thread, broker, fault.late)
            host.silent_since, host.paused_until = turn, turn + fault.turns
        case Doubt() if thread.at.request is not None:
            if fault.order in (Order.DELAY, Order.TWICE):
                _let_travel(host, thread, broker, fault.late)
            thread.order = fault.order
        case Full():
            host.disk.full_until = max(host.disk.full_until, turn + fault.turns)
        case Failover():
            if fault.decided and thread.at.request is not None:
                with suppress(Concurrent, Fenced, InvalidState, UnknownMember, IllegalGeneration, InstanceFenced):
                    thread.at.request()
            broker.coordinator_back = max(broker.coordinator_back, broker.now + fault.turns)
        case Leave():
            host.process.worker.leaving = True
        case Jump():
            host.clock.skew += fault.millis
        case _:
            apply_cluster_fault(host, fault, broker)


def _let_travel(host: Host, thread: Thread, broker: SimBroker, late: int) -> None:
    """The thread's request is in transit; its sender will not see the answer."""
    if thread.at.request is not None:
        request = Pending(f"late: {host.name} {thread.at.what}", thread.at.request, broker.now + late)
        broker.under_way.append(request)
        thread.order = Order.LOSE


def apply_cluster_fault(host: Host, fault: Fault, broker: SimBroker) -> None:
    """What happens in the cluster instead of the process."""
    match fault:
        case Expel():
            broker.group.expire(host.name)
        case LateJoin():
            host.late = broker.group.join(host.name)
        case Move():
            broker.group.move(fault.task, f"w{fault.to}")
        case Refuse():
            broker.refuse(fault.topic, host.name if fault.only else "", fault.turns)
        case Slow():
            broker.lines[host.name] = Line(fault.every, broker.now + fault.turns, fault.quota)
        case TimeOut() if broker.coordinator.phase(f"w{fault.owner}") is Phase.OPEN:
            broker.coordinator.time_out(f"w{fault.owner}")
        case Age():
            changelogs = [p for topic in sorted(broker.compacted) for p in broker.partitions(topic)]
            for p in changelogs:
                p.compact(broker.now, TOMBSTONE_RETENTION)
            broker.now += TOMBSTONE_RETENTION * 8 // 7
            for p in changelogs:
                p.compact(broker.now, TOMBSTONE_RETENTION)
