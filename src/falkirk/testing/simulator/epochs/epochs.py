"""Epochs under faults: drivers and the copies of their publishing tasks, over the simulated cluster.

    driver d0 ──spawns──▶ d0/p0#0, d0/p1#0 ──crash──▶ d0/p1#1 …      each under the transactional id of its partition
    driver d1 ──spawns──▶ d1/p0#0 …                                  a second driver, started by mistake

A driver that dies leaves its tasks behind: they continue, as executors may. The next driver spawns others. Every proposal of
an epoch would give other rows, so rows of one that does not count are detected.

    rows(n, p) = the rows of opening(n) in result partition p
    visible(p) = rows(0, p) ++ rows(1, p) ++ …            of an abandoned epoch: some of its first slices
    at the moment when end(n) is appended, no more of n becomes visible
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from falkirk.checkpoint import epochs as protocol
from falkirk.checkpoint import publishing
from falkirk.checkpoint.epochs import Abandoned, Completed, EpochRecord, EpochRequest, Epochs, Opened
from falkirk.checkpoint.ids import Epoch, Millis, Offset, OwnerId, TopicPartition
from falkirk.checkpoint.publishing import Outcome, Part
from falkirk.errors import DivergenceError
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.broker import Pending, SimBroker
from falkirk.testing.simulator.cluster.coordinator import Phase
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.epochs.epoch_actors import (
    AWAY,
    BUDGET,
    EPOCHS,
    KINDS,
    OPENINGS,
    PARTS,
    SLICES,
    SPECULATES,
    Actor,
    Fault,
    Kind,
    Rows,
    Scenario,
    SimEpochLog,
    row,
)
from falkirk.testing.simulator.host import Thread
from falkirk.testing.simulator.points import Order, Point, reach


@dataclass(slots=True)
class EpochWorld:
    """A run: `EpochWorld(faults).run()`."""

    faults: Sequence[Fault] = ()
    scenario: Scenario = field(default_factory=Scenario)
    rng: random.Random | None = None
    """Sometimes draws another turn than the usual."""
    broker: SimBroker = field(default_factory=SimBroker)
    actors: list[Actor] = field(default_factory=list)
    turn: int = 0
    trace: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)
    """The number of points each actor came to."""
    visible_at_end: dict[int, list[bytes]] = field(default_factory=dict)
    _proposals: int = 0
    _spawned: Counter[str] = field(default_factory=Counter)
    _back: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _crashed: set[str] = field(default_factory=set)
    _abandoned: bool = False
    _diverged: bool = False
    """A task has found that its rows differ from the published ones. The run ends there: a person has to act."""

    def __post_init__(self) -> None:
        self.broker.create("epochs", 1 + PARTS)
        self.broker.create("results", PARTS)
        self._back = {f"d{n}": 30 * n for n in range(self.scenario.drivers)}

    # what the actors do

    async def drive(self, name: str, log: SimEpochLog) -> None:
        """A driver: open, run, complete, and again. The same calls in the same order as the real one's."""
        epochs = Epochs()
        while True:
            await protocol.catch_up(log, OPENINGS, epochs)
            if epochs.abandon:
                await self._abandon(log, epochs)
            elif epochs.open:
                await self._run(name, log, epochs)
            elif epochs.next == EPOCHS:
                return
            else:
                self._proposals += 1
                opened = Opened(epochs.next, Millis(self._proposals), (), (), "f", name)
                await protocol.propose(log, OPENINGS, epochs, opened)

    async def _run(self, name: str, log: SimEpochLog, epochs: Epochs) -> None:
        assert epochs.opened is not None
        opened, opening = epochs.opened, epochs.opening
        tasks: dict[int, Actor] = {}
        waited = 0
        while True:
            waited += 1
            for p in range(PARTS):
                late = waited % SPECULATES == 0 and p in tasks and not tasks[p].thread.done
                if p not in tasks or tasks[p].name in self._crashed or late:
                    tasks[p] = self._spawn(name, p, opened, opening)
            if all(t.thread.done for t in tasks.values()):
                break
            await reach(Point("waits for its tasks", waits=True))
            await protocol.catch_up(log, OPENINGS, epochs)
            if epochs.abandon or epochs.opening != opening or not epochs.open:
                return
        if all(t.thread.result is Outcome.PUBLISHED for t in tasks.values()):
            done = Completed(opened.epoch, Millis(0), (), 0)
            await protocol.propose(log, OPENINGS, epochs, done)

    async def _abandon(self, log: SimEpochLog, epochs: Epochs) -> None:
        assert epochs.opened is not None
        for p in range(PARTS):
            part = Part(publishing.progress_place("epochs", p), epochs.opened.epoch, epochs.opening)
            await publishing.close(SimLog(self.broker, OwnerId(f"p{p}")), part, pause)
        await protocol.propose(log, OPENINGS, epochs, Abandoned(epochs.opened.epoch, Millis(0), "asked"))

    def _spawn(self, driver: str, p: int, opened: Opened, opening: Offset) -> Actor:
        number = self._spawned[f"{driver}/p{p}"]
        self._spawned[f"{driver}/p{p}"] += 1
        log = SimLog(self.broker, OwnerId(f"p{p}"))
        salt = f" {number}" if self.scenario.differ else ""
        part = Part(publishing.progress_place("epochs", p), opened.epoch, opening)
        work = publishing.publish(log, part, Rows(opened, p, salt), pause)
        return self._add(f"{driver}/p{p}#{number}", work, log)

    def _add(self, name: str, work: Coroutine[Any, Any, Any], log: SimLog) -> Actor:
        self.actors.append(Actor(name, Thread(name, work), log))
        return self.actors[-1]

    def _start(self, name: str) -> None:
        log = SimEpochLog(self.broker, OwnerId(name))
        log.ended = self._ended
        log._epoch = 0  # it has no transactions, so it has no producer epoch of a coordinator either
        self._add(name, self.drive(name, log), log)
        del self._back[name]

    def _ended(self, record: EpochRecord) -> None:
        """Keep the visible rows of an epoch at the moment when it ends."""
        if isinstance(record, Completed | Abandoned):
            self.visible_at_end.setdefault(record.epoch, self.visible(record.epoch))

    # turns

    def run(self) -> EpochWorld:
        """To the end, with the sleepers awake, and check. Raises Broken, and what the protocol raises."""
        try:
            while not self._diverged:
                while not self._finished():
                    if self.turn >= BUDGET:
                        raise Broken(f"finish: the run has not ended after {BUDGET} turns")
                    self._take_turn()
                sleepers = [a for a in self.actors if a.paused_until > self.turn]
                self.check(finished=not sleepers and not self._diverged)
                if not sleepers:
                    return self
                for actor in sleepers:
                    actor.paused_until = 0
            self.check(finished=False)
            return self
        finally:
            for actor in self.actors:
                actor.thread.work.close()

    def _finished(self) -> bool:
        awake = [a for a in self.actors if not a.thread.done and a.paused_until <= self.turn]
        return self._diverged or (not awake and not self._back and not self.broker.under_way + self.broker.pending())

    def _take_turn(self) -> None:
        self.turn += 1
        self.broker.now += 1
        self._ask_to_abandon()
        actions: list[tuple[str, Callable[[], object]]] = []
        for name, at in list(self._back.items()):
            if self.turn >= at:
                actions.append((f"{name} starts", partial(self._start, name)))
        for actor in self.actors:
            if actor.paused_until <= self.turn:
                if not actor.thread.done:
                    actions.append((actor.name, partial(self._step, actor)))
                if actor.log.queued():
                    actions.append((f"{actor.name} sends", actor.log.deliver))
        actions += [(p.what, partial(self.broker.do, p)) for p in self.broker.pending()]
        if not actions:
            return
        actions.sort(key=lambda a: self._last.get(a[0], -1))
        which = self.rng.randrange(len(actions)) if self.rng is not None and self.rng.random() < 0.2 else 0
        what, do = actions[which]
        self._last[what] = self.turn
        do()

    def _ask_to_abandon(self) -> None:
        """As soon as the first rows of that epoch are visible."""
        epoch = self.scenario.abandon
        if epoch is not None and not self._abandoned and self.visible(epoch):
            self._abandoned = True
            self.broker[OPENINGS].append(
                None, protocol.encode(EpochRequest("abandon", Millis(0))), self.broker.now, None
            )

    def _step(self, actor: Actor) -> None:
        thread = actor.thread
        try:
            moved = thread.advance()
        except DivergenceError:
            if not self.scenario.differ:
                raise
            thread.done = self._diverged = True
            return
        if thread.done:
            self.trace.append(f"{self.turn:5} {actor.name}: ends, {thread.result}")
        if not moved:
            return
        number = self.places[actor.name]
        self.places[actor.name] += 1
        self.trace.append(f"{self.turn:5} {actor.name}.{number} {thread.at.what}")
        for fault in self.faults:
            if (fault.actor, fault.at) == (actor.name, number):
                self.trace.append(f"      {fault.kind}")
                self._apply_fault(actor, fault.kind)

    def _apply_fault(self, actor: Actor, kind: Kind) -> None:
        request = actor.thread.at.request
        match kind:
            case "crash":
                actor.thread.work.close()
                actor.thread.done = True
                actor.log._forget()
                self._crashed.add(actor.name)
                if "/" not in actor.name:
                    self._back[actor.name] = self.turn + AWAY
            case "nap" | "sleep":
                actor.paused_until = self.turn + (60 if kind == "nap" else BUDGET)
            case "lose" | "refuse" | "delay" if request is not None:
                if kind == "delay":
                    self.broker.under_way.append(Pending(f"late: {actor.name}", request, self.broker.now + 12))
                actor.thread.order = {"lose": Order.LOSE, "delay": Order.LOSE, "refuse": Order.REFUSE}[kind]
                if kind == "refuse" and not actor.log._open:
                    actor.thread.order = Order.LOSE
            case "time-out" if self.broker.coordinator.phase(actor.log.owner) is Phase.OPEN:
                self.broker.coordinator.time_out(actor.log.owner)
            case _:
                pass

    # what must hold

    def visible(self, epoch: int) -> list[bytes]:
        """The committed rows of an epoch, partition by partition."""
        rows = [e.value for p in self.broker.partitions("results") for e in self.broker.decided(p.name)]
        return [r for r in rows if r is not None and int(r.split()[0]) == epoch]

    def check(self, *, finished: bool) -> None:
        """Raises Broken."""
        epochs, counted = Epochs(), []
        for e in self.broker[OPENINGS].entries:
            assert e.value is not None
            record = protocol.decoded(e.value, Offset(e.offset))
            if epochs.admit(Offset(e.offset), record) and isinstance(record, Opened | Completed | Abandoned):
                counted.append(record)
        openings = [r for r in counted if isinstance(r, Opened)]
        ends = {r.epoch: r for r in counted if isinstance(r, Completed | Abandoned)}
        if finished and not [o.epoch for o in openings] == sorted(ends) == list(range(EPOCHS)):
            raise Broken(f"finish: opened {[o.epoch for o in openings]}, ended {sorted(ends)}")
        for p in range(PARTS):
            found = [e.value or b"" for e in self.broker.decided(TopicPartition("results", p))]
            if self.scenario.differ:
                found = self._same(found)
            due: list[bytes] = []
            for opened in openings:
                rows = [row(opened, p, i) for i in range(2 * SLICES)]
                if not isinstance(ends.get(opened.epoch), Completed):
                    there = sum(int(r.split()[0]) == opened.epoch for r in found)
                    if there % 2:
                        raise Broken(f"once: {there} rows of epoch {opened.epoch} are visible, and a slice has 2")
                    rows = rows[:there]
                due += rows
            if found != due:
                raise Broken(f"once: partition {p} shows {found}, and {due} is due")
        for epoch, then in self.visible_at_end.items():
            if then != self.visible(Epoch(epoch)):
                raise Broken(f"ended: epoch {epoch} had {then}, and has {self.visible(epoch)}")

    @staticmethod
    def _same(rows: Sequence[bytes]) -> list[bytes]:
        """The rows without what distinguishes attempts. Raises Broken if those of one epoch are of two attempts."""
        attempts = {tuple(row.split()[i] for i in (0, 4)) for row in rows}
        if len({epoch for epoch, _ in attempts}) < len(attempts):
            raise Broken(f"same: an epoch shows rows of two attempts: {rows}")
        return [row.rpartition(b" ")[0] for row in rows]


async def pause(_: str) -> None:
    """Let others go first."""
    await reach(Point("waits for a copy", waits=True))


def every_fault(scenario: Scenario, each: int = len(KINDS)) -> Iterator[Fault]:
    """Each kind at each point that each actor comes to in an undisturbed run. `each`: only this many kinds at one point, the
    following ones at the next, and so on in turn."""
    usual = EpochWorld(scenario=scenario).run()
    points = [(actor, at) for actor, number in sorted(usual.places.items()) for at in range(number)]
    for i, (actor, at) in enumerate(points):
        yield from (Fault(actor, at, KINDS[(i * each + k) % len(KINDS)]) for k in range(each))


def sampled(seed: int, scenario: Scenario) -> EpochWorld:
    """A run with two to five faults, and turns out of order."""
    rng = random.Random(seed)
    tasks = [f"d{d}/p{p}#{n}" for d in range(scenario.drivers) for p in range(PARTS) for n in range(4)]
    actors = [f"d{d}" for d in range(scenario.drivers)] + tasks
    faults = [Fault(rng.choice(actors), rng.randrange(40), rng.choice(KINDS)) for _ in range(rng.randint(2, 5))]
    return EpochWorld(faults, scenario, rng)
