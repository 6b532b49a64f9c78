"""Hosts with their processes, and the turns that they and the cluster take.

One turn is one action: a thread runs from one point to its next, the client's background thread sends a batch or a
heartbeat, the cluster does one pending thing, a session expires, a dead process is started again. The usual choice is
the action that has waited longest, which is fair; a plan departs from it here and there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from falkirk.checkpoint.ids import Nonce, OwnerId, TaskId, domain_owner
from falkirk.errors import ClusterError, DiskError, IdentityError
from falkirk.state.store import Progress
from falkirk.testing.simulator.cluster.broker import Pending, SimBroker
from falkirk.testing.simulator.cluster.group import Group, Member
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.disk import Copies, Disk
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.host import Action, Host, Process, SimClock, Thread, apply_fault
from falkirk.testing.simulator.plan import FOREVER, Change, Chooser, Damage, Fault, Outage, Plan, Takes, Turn
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.worker import IDLE, Worker

SESSION = 40
"""Turns that a session outlives its worker's silence."""
AWAY = 120
"""Turns until a worker that left is started again."""
BACKGROUND_EVERY = 9
"""With a lazy broker: how often background work goes first after all."""


@dataclass(slots=True)
class World:
    """A run: `World(toy, plan).run_until(lambda: …)`."""

    toy: Toy
    plan: Plan
    chooser: Chooser = field(default_factory=Chooser)
    workers: int = 2
    broker: SimBroker = field(default_factory=SimBroker)
    hosts: list[Host] = field(default_factory=list)
    copies: Copies = field(default_factory=Copies)
    turn: int = 0
    code: int = 0
    """The version of the code that is started now."""
    corrects: bool = False
    """Whether it is started with `--on-divergence correct`."""
    trace: list[str] = field(default_factory=list)
    on_write: Callable[[TaskId, Progress], None] = lambda _, __: None
    stopped: list[str] = field(default_factory=list)
    """The workers that stopped, because no retry would help."""
    fences: list[tuple[str, str]] = field(default_factory=list)
    """Which worker fenced which."""
    seen: dict[str, list[int]] = field(default_factory=dict)
    """What the checks of an application last looked at."""
    _last: dict[str, int] = field(default_factory=dict)
    _nonces: int = 0
    _faults: list[Fault] = field(default_factory=list)
    _durations: list[Takes] = field(default_factory=list)
    _reached: Counter[int] = field(default_factory=Counter)
    """How often a worker came to a point of the kind that the n-th fault is for."""

    def __post_init__(self) -> None:
        self.broker.group = Group(self.toy.tasks)
        self.toy.create(self.broker)
        self.toy.before(self)
        self._faults = self.plan.faults
        self._durations = [item for item in self.plan.items if isinstance(item, Takes)]
        self.chooser.turns |= {i.at: i.choice for i in self.plan.items if isinstance(i, Turn)}
        for n in range(self.workers):
            self.add(n)

    # processes

    def add(self, number: int) -> Host:
        """A host, with a process of this identity; another host may already have it."""
        disk = Disk(self.copies, lambda task: self.toy.task(task.partition).recovery.rebuilds, self.wrote)
        twins = sum(host.number == number for host in self.hosts)
        self.hosts.append(Host(number, disk, SimClock(self.broker, skew=-50 * number), twins))
        self.start(self.hosts[-1])
        return self.hosts[-1]

    def start(self, host: Host) -> None:
        """Begin a life."""
        member = Member(self.broker.group, host.name, self.broker.group.join(host.name))
        toy, threads = self.toy.running(self.code), list[Thread]()

        def spawn(name: str, work: Coroutine[Any, Any, Any]) -> Thread:
            threads.append(Thread(name, work))
            return threads[-1]

        def domain(n: int) -> Domain:
            owner = OwnerId(host.name) if n == 0 else domain_owner(host.name, str(n))
            log = SimLog(self.broker, owner, member, on_fence=lambda whom: self.fences.append((host.name, whom)))
            begin = spawn if n == 0 else lambda name, work: spawn(f"{name} of domain {n}", work)
            clock, choose = host.clock, self.chooser.choose
            return (toy.runs or Domain)(
                toy=toy,
                broker=self.broker,
                log=log,
                disk=host.disk,
                clock=clock,
                fresh=self.nonce,
                choose=choose,
                spawn=begin,
                corrects=self.corrects,
            )

        worker = Worker(toy, self.broker, member, [domain(n) for n in range(toy.domains)])
        spawn("main", worker.main())
        host.process = Process(worker, [domain.log for domain in worker.domains], member, threads)
        member.heartbeat()

    def wrote(self, task: TaskId, progress: Progress) -> None:
        """A store is about to be written."""
        self.on_write(task, progress)

    def nonce(self) -> Nonce:
        """A fresh one."""
        self._nonces += 1
        return Nonce(f"n{self._nonces}")

    # turns

    def run_until(self, finished: Callable[[], bool], turns: int) -> bool:
        """Take turns until `finished`, or until there were too many; returns which."""
        last = self.turn + turns
        while not finished():
            if self.turn >= last:
                return False
            self.take_turn()
        return True

    def take_turn(self) -> None:
        """One action."""
        self.turn += 1
        self.broker.now += 1
        self.copies.turn = self.turn
        self.broker.coordinator.now = self.broker.now
        self.toy.passes(self)
        self.broker.coordinator.away = self.broker.now < self.broker.coordinator_back
        if actions := self.actions():
            choice = self.chooser.choose(len(actions))
            late, last = self.plan.lazy_broker and self.turn % BACKGROUND_EVERY != 0, self._last.get

            def order(a: Action) -> tuple[bool, int, str]:
                return late and a.background, last(a.what, -1), a.what

            action = sorted(actions, key=order)[choice] if choice else min(actions, key=order)
            self._last[action.what] = self.turn
            action.do()

    def actions(self) -> list[Action]:
        """What may happen now."""
        found = [a for host in self.hosts for a in self._of(host)]
        found += [Action(p.what, partial(self._pending, p), background=True) for p in self.broker.pending()]
        return found

    def _of(self, host: Host) -> list[Action]:
        process = host.process
        if process is None or host.paused_until > self.turn:
            return self._without(host)
        found = [self._turn_of(host, process, t) for t in process.threads if not t.done and t.until <= self.turn]
        for log in process.logs:
            if queued := log.queued():
                sends = partial(self._deliver, host, log)
                found.append(Action(f"{host.label} sends to {queued}", sends, background=True))
        if process.member.stale():
            found.append(Action(f"{host.label} heartbeats", lambda: self._heartbeat(host), background=True))
        return found

    def _without(self, host: Host) -> list[Action]:
        """The actions of a host whose process has ended, or is paused."""
        found = []
        if host.is_in(self.broker.group) and self.turn - host.silent_since >= SESSION:
            found.append(Action(f"session of {host.label} expires", lambda: self._expire(host), background=False))
        if host.process is None and self.turn >= host.back_at:
            found.append(Action(f"{host.label} is started again", lambda: self._restart(host), background=False))
        return found

    def _turn_of(self, host: Host, process: Process, thread: Thread) -> Action:
        if thread.turn is None:
            step = partial(self._step, host, process, thread)
            thread.turn = Action(f"{host.label} {thread.name}", step, background=False)
        return thread.turn

    def _note(self, line: str) -> None:
        self.trace.append(f"{self.turn:5} {line}")

    def _pending(self, pending: Pending) -> None:
        self._note(f"broker: {pending.what}")
        self.broker.do(pending)

    def _expire(self, host: Host) -> None:
        self._note(f"group: session of {host.label} expires")
        self.broker.group.expire(host.name)

    def _restart(self, host: Host) -> None:
        self._note(f"{host.label}: is started again")
        self.start(host)

    def _deliver(self, host: Host, log: SimLog) -> None:
        self._note(f"{host.label}: its records for {log.queued()} reach the broker")
        log.deliver()

    def _heartbeat(self, host: Host) -> None:
        assert host.process is not None
        host.process.member.heartbeat()
        self._note(f"{host.label}: heartbeat, generation {host.process.member.joined.generation}")

    def _step(self, host: Host, process: Process, thread: Thread) -> None:
        """Run a thread to its next point, and let the plan's faults happen there."""
        try:
            moved = thread.advance()
        except IdentityError:
            self._note(f"{host.label}: another process has its identity")
            host.end(self.turn, keep=FOREVER, back_after=FOREVER)
            return
        except ClusterError as error:
            self._note(f"{host.label}: stops: {error}")
            self.stopped.append(host.name)
            host.end(self.turn, keep=FOREVER, back_after=FOREVER)
            return
        except DiskError as error:
            self._note(f"{host.label}: stops: {error}")
            self.stopped.append(host.name)
            host.end(self.turn, keep=FOREVER, back_after=max(host.disk.full_until - self.turn, 0) + AWAY)
            return
        if thread.done and thread.name == "main":
            self._note(f"{host.label}: has left")
            host.end(self.turn, keep=FOREVER, back_after=AWAY)
        if not moved:
            return
        place = f"{thread.name}: {thread.at.what}"
        self._note(f"{host.label}.{len(host.places)} {place}")
        host.places.append(place)
        thread.until = self.turn + self._duration(host, place)
        for fault in self._due(host, place):
            if host.process is process:
                self._note(f"      {fault}")
                match fault:
                    case Change():
                        self._change(host, fault)
                    case Outage():
                        self.copies.back_at = max(self.copies.back_at, self.turn + fault.turns)
                    case Damage():
                        self.copies.damage()
                    case _:
                        apply_fault(host, thread, fault, self.broker, self.turn)

    def _change(self, host: Host, change: Change) -> None:
        self.code, self.corrects = self.code + change.new, change.corrects
        for each in self.hosts:
            if each.process is not None:
                keep, back_after = (change.keep, change.back_after) if each is host else (FOREVER, 12)
                each.end(self.turn, keep, back_after)
        self.toy.changed(self)

    def _duration(self, host: Host, place: str) -> int:
        return max((t.turns for t in self._durations if t.worker == host.number and t.on in place), default=0)

    def _due(self, host: Host, place: str) -> list[Fault]:
        """The faults due for a worker at the point that it has just come to."""
        due = []
        for n, fault in enumerate(self._faults):
            if fault.worker == host.number and fault.on in place:
                if self._reached[n] == fault.at:
                    due.append(fault)
                self._reached[n] += 1
        return due

    # the end

    def close(self) -> None:
        """End what still runs."""
        for host in self.hosts:
            for thread in host.process.threads if host.process is not None else ():
                thread.work.close()

    def wake(self) -> bool:
        """Wake every paused process; returns whether there was one."""
        sleepers = [h for h in self.hosts if h.process is not None and h.paused_until > self.turn]
        for host in sleepers:
            self._note(f"{host.label}: wakes")
            host.paused_until = 0
        return bool(sleepers)

    def deserted(self) -> bool:
        """Every worker is paused or gone for good: nothing more will happen until one wakes."""
        for host in self.hosts:
            if host.paused_until <= self.turn if host.process is not None else host.back_at < FOREVER:
                return False
        return self.broker.settled

    def quiet(self) -> bool:
        """Nothing is pending, every process that is not paused has nothing to do, none is due to be started, and none that
        has gone for good is still a member of the group."""
        for host in self.hosts:
            if host.process is None:
                if host.back_at < FOREVER or host.is_in(self.broker.group):
                    return False
            elif host.paused_until <= self.turn:
                process = host.process
                # Asked before each turn: the first reason is enough.
                for thread in process.threads:
                    if not thread.done and thread.at.what != IDLE:
                        return False
                if process.worker.busy or process.member.stale() or process.member.events:
                    return False
                if any(log.queued() for log in process.logs):
                    return False
        return self.broker.settled
