"""A backfill beside workers that were started too early: its drivers, over the simulated cluster.

w0, w1   normal workers: while a backfill is open they end, and are started again
b0, b1   lives of drivers: open · claim · a base of each task · complete; started at any turn, killed or asleep at any point

the backfill is complete   ⇔  every task's first step follows on its base, at the end of its division
state                      =  fold of the circuit over the division, then over the steps
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from falkirk.checkpoint import backfill as protocol
from falkirk.checkpoint.epochs import Abandoned, Completed, Epochs, Opened, catch_up, propose
from falkirk.checkpoint.ids import Millis, Offset, OwnerId
from falkirk.checkpoint.ports import Backfilled
from falkirk.checkpoint.records import Range
from falkirk.errors import StateError
from falkirk.state.store import Progress
from falkirk.testing.simulator.check import based
from falkirk.testing.simulator.cluster.broker import Pending
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.epochs.epoch_actors import OPENINGS, SimEpochLog
from falkirk.testing.simulator.host import Action, Host, Process, Thread
from falkirk.testing.simulator.plan import FOREVER
from falkirk.testing.simulator.points import Point, reach
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

AGAIN = 25
"""Turns until a refused worker, or a killed driver, is started again."""
READ = 1
"""Records of each input partition that a backfill finds; later ones have come since."""


class DriverFault(NamedTuple):
    """A fault of a driver at its point of this number, counted over all its lives."""

    driver: int
    at: int
    turns: int | None = None
    """None: it is killed and started again; else it sleeps this long, FOREVER: until the others have finished."""
    travels: bool = False
    """The request that it was about to send still arrives."""


@dataclass(slots=True)
class _Driver:
    number: int
    log: SimLog
    thread: Thread | None = None
    starts: int = 0
    paused_until: int = 0
    points: int = 0


@dataclass(slots=True)
class BackfillWorld(World):
    """A run with drivers that start at the given turns."""

    starts: Sequence[int] = ()
    troubles: Sequence[DriverFault] = ()
    drivers: list[_Driver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.create("epochs", 1)
        self.drivers = [_Driver(n, self._log(n), starts=at) for n, at in enumerate(self.starts)]
        World.__post_init__(self)

    def _log(self, number: int) -> SimEpochLog:
        # Each life has its own transactional id: drivers that fenced each other could do so forever.
        log = SimEpochLog(self.broker, OwnerId(f"b{number} {self.nonce()}"))
        log.ended = lambda record: None
        return log

    def add(self, number: int) -> Host:
        """A host whose workers look for the backfill."""
        host = World.add(self, number)
        host.disk.look = self._look
        return host

    async def _look(self) -> Backfilled | None:
        epochs, log = Epochs(), self._log(-1)
        await catch_up(log, OPENINGS, epochs)
        return protocol.backfilled(epochs, "epochs")

    async def drive(self, driver: _Driver) -> None:
        """One life: the same calls in the same order as the real one's."""
        log, epochs, claimed = self._log(driver.number), Epochs(), False
        driver.log = log
        tasks = [self.toy.task(t) for t in range(self.toy.tasks)]
        log._epoch = 0  # so that it may append before it has a producer
        while True:
            await catch_up(log, OPENINGS, epochs)
            if epochs.complete is not None or (epochs.ended is not None and not epochs.open):
                return
            if not epochs.open:
                opened = Opened(epochs.next, Millis(self.turn), division(self.toy), (), "f")
                await propose(log, OPENINGS, epochs, opened)
            elif not claimed:
                step = await protocol.claim(log, tasks, self.nonce)
                claimed = True
                if step is not None:
                    assert epochs.opened is not None
                    await propose(log, OPENINGS, epochs, Abandoned(epochs.opened.epoch, Millis(0), "it has run"))
            else:
                assert epochs.opened is not None
                for t in range(self.toy.tasks):
                    await reach(Point(f"makes the base of {t}"))
                    base = Progress(-1, 0, 0, epochs.opened.clock, epochs.opening)
                    self.copies.bases[tasks[t].id, epochs.opening] = (
                        based(self.broker, self.toy, t, epochs.opened),
                        base,
                    )
                await propose(log, OPENINGS, epochs, Completed(epochs.opened.epoch, Millis(0), (), 0))

    # turns

    def actions(self) -> list[Action]:
        """The actions of the workers and of the drivers."""
        found = World.actions(self)
        for d in self.drivers:
            if d.thread is None and self.turn >= d.starts:
                found.append(Action(f"b{d.number} starts", partial(self._begin, d), background=False))
            elif d.thread is not None and not d.thread.done and self.turn >= d.paused_until:
                found.append(Action(f"b{d.number}", partial(self._drive, d), background=False))
                if d.log.queued():
                    found.append(Action(f"b{d.number} sends", d.log.deliver, background=True))
        late = self.plan.lazy_broker and self.turn % 9 != 0
        return sorted(found, key=lambda a: (late and a.background, self._last.get(a.what, -1), a.what))

    def _begin(self, driver: _Driver) -> None:
        driver.thread = Thread(f"b{driver.number}", self.drive(driver))

    def _drive(self, driver: _Driver) -> None:
        assert driver.thread is not None
        if driver.thread.advance():
            self._note(f"b{driver.number}.{driver.points} {driver.thread.at.what}")
            for trouble in self.troubles:
                if (trouble.driver, trouble.at) == (driver.number, driver.points):
                    self._apply_fault(driver, trouble)
            driver.points += 1

    def _apply_fault(self, driver: _Driver, trouble: DriverFault) -> None:
        self._note(f"      {trouble}")
        if trouble.turns is not None:
            driver.paused_until = self.turn + trouble.turns
            return
        assert driver.thread is not None
        if trouble.travels and driver.thread.at.request is not None:
            late = Pending(f"late: b{driver.number}", driver.thread.at.request, self.broker.now + AGAIN)
            self.broker.under_way.append(late)
        driver.thread.work.close()
        driver.thread, driver.starts = None, self.turn + AGAIN

    def _step(self, host: Host, process: Process, thread: Thread) -> None:
        try:
            World._step(self, host, process, thread)
        except StateError as error:
            if "under way" not in error.what:
                raise
            self._note(f"{host.name}: is refused")
            host.end(self.turn, keep=FOREVER, back_after=AGAIN)

    def wake(self) -> bool:
        """Wake all that sleep; returns whether there were any."""
        sleepers = [d for d in self.drivers if d.paused_until > self.turn]
        for driver in sleepers:
            driver.paused_until = 0
        return World.wake(self) or bool(sleepers)

    def deserted(self) -> bool:
        """The drivers have also ended or sleep."""
        return World.deserted(self) and all(
            d.paused_until > self.turn or (d.thread is not None and d.thread.done) for d in self.drivers
        )

    def quiet(self) -> bool:
        """No driver has anything to do either."""
        awake = [d for d in self.drivers if d.paused_until <= self.turn]
        return World.quiet(self) and all(d.thread is not None and d.thread.done for d in awake)

    def close(self) -> None:
        """End what still runs."""
        World.close(self)
        for driver in self.drivers:
            if driver.thread is not None:
                driver.thread.work.close()


def division(toy: Toy) -> tuple[Range, ...]:
    """What a backfill reads."""
    places = sorted(i for t in range(toy.tasks) for i in toy.reads(t))
    return tuple(Range(i, Offset(0), Offset(READ)) for i in places)
