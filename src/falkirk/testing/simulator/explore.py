"""Which runs to try: a fault at every point, several at random points, and the smallest plan that still fails.

every_point    each possible fault of a worker, at each of its points: exhaustive
sample         several faults and departures from the usual order, drawn from a seed
shrink         the part of a failing plan that still fails, while no smaller part of it does
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from falkirk.errors import FalkirkError
from falkirk.testing.simulator import check
from falkirk.testing.simulator.cluster.log import Misuse
from falkirk.testing.simulator.cluster.partition import OutOfRange
from falkirk.testing.simulator.plan import (
    FOREVER,
    Age,
    Change,
    Chooser,
    Crash,
    Damage,
    Doubt,
    Expel,
    Failover,
    Fault,
    Full,
    Item,
    Jump,
    LateJoin,
    Leave,
    Move,
    Outage,
    Pause,
    Plan,
    Refuse,
    Slow,
    Takes,
    TimeOut,
    Turn,
)
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

BREAKS = (check.Broken, FalkirkError, Misuse, OutOfRange)
"""The errors of a broken run; any other error is a bug of the simulation."""
MakeToy = Callable[[], Toy]
Kinds = Callable[[int, int], Iterator[Fault]]
"""The possible faults of one sort at one of a worker's points."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan that breaks something, what it breaks, and the trace."""

    plan: Plan
    what: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([self.what, str(self.plan), *self.trace])


def attempt(make: MakeToy, plan: Plan, workers: int = 2, seed: int | None = None, rate: float = 0.0) -> Failure | None:
    """Run a plan; None if all holds. A seed draws further turns, which become part of the failure's plan."""
    toy = make()
    rng = None if seed is None else random.Random(seed)
    world = World(toy, plan, Chooser(rng=rng, rate=rate), workers)
    try:
        check.run(toy, plan, world)
    except BREAKS as error:
        drawn = [Turn(at=at, choice=choice) for at, choice in sorted(world.chooser.turns.items())]
        full = plan.only([*plan.faults, *drawn])
        return Failure(full, f"{type(error).__name__}: {error}", tuple(world.trace))
    return None


def crashes(worker: int, at: int) -> Iterator[Fault]:
    """Ways to crash there: what survives on disk, what stays in transit, and whether the session outlives the process."""
    for keep in (0, 1, FOREVER):
        for travels in (False, True):
            for back_after in (12, 100):
                yield Crash(worker=worker, at=at, keep=keep, travels=travels, back_after=back_after)


def lost_disks(worker: int, at: int) -> Iterator[Fault]:
    """Ways to crash there with the host's disk: another worker goes on, or the same one from an empty disk."""
    yield from (Crash(worker=worker, at=at, lost=True, back_after=back_after) for back_after in (12, 100))


def pauses(worker: int, at: int) -> Iterator[Fault]:
    """Ways to pause there: shorter than the session, longer, and until the others have finished."""
    for turns in (20, 60, FOREVER):
        for travels in (False, True):
            yield Pause(worker=worker, at=at, turns=turns, travels=travels)


def others(worker: int, at: int) -> Iterator[Fault]:
    """All other faults there, in an application of two tasks."""
    yield from doubts(worker, at)
    yield from moves(worker, at)
    yield Leave(worker=worker, at=at)
    yield TimeOut(worker=worker, at=at, owner=worker)
    yield Jump(worker=worker, at=at, millis=-1_000)
    yield Age(worker=worker, at=at)


def moves(worker: int, at: int) -> Iterator[Fault]:
    """The group takes tasks from a worker there: it asks for them, the session expires, or a late join fences it."""
    yield from (Move(worker=worker, at=at, task=t, to=to) for t in (0, 1) for to in {0, 1, 2} - {worker})
    yield Expel(worker=worker, at=at)
    yield LateJoin(worker=worker, at=at)


def doubts(worker: int, at: int) -> Iterator[Fault]:
    """A request there does not go as usual."""
    yield from (Doubt(worker=worker, at=at, order=order) for order in (Order.LOSE, Order.REFUSE))
    for order in (Order.DELAY, Order.TWICE):
        yield from (Doubt(worker=worker, at=at, order=order, late=late) for late in (0, 12, 40))


def naps(worker: int, at: int) -> Iterator[Fault]:
    """The worker wakes while its successor takes over."""
    yield from (Pause(worker=worker, at=at, turns=turns) for turns in range(41, 90, 4))


def outages(worker: int, at: int) -> Iterator[Fault]:
    """The checkpoint store is away from there on: shorter than a session, longer than one and a take-over, or very long. Or
    the last copy is damaged."""
    yield from (Outage(worker=worker, at=at, turns=turns) for turns in (20, 150, 600))
    yield Damage(worker=worker, at=at)


def full_disks(worker: int, at: int) -> Iterator[Fault]:
    """The disk is full from there on: for less than a session, or for longer than a take-over."""
    yield from (Full(worker=worker, at=at, turns=turns) for turns in (15, 150))


def filled_disks(worker: int, at: int) -> Iterator[Fault]:
    """The disk is full from there on, for good. Another worker must have room."""
    yield Full(worker=worker, at=at, turns=FOREVER)


def failovers(worker: int, at: int) -> Iterator[Fault]:
    """The transaction coordinator moves: for less than a session, or for longer; or a topic refuses records for a while."""
    for turns in (15, 120):
        yield from (Failover(worker=worker, at=at, turns=turns, decided=decided) for decided in (False, True))
    yield Refuse(worker=worker, at=at, topic="steps", turns=60)


def slow_lines(worker: int, at: int) -> Iterator[Fault]:
    """What the worker writes takes long from there on: for a few transactions, or for good; and a broker says so, or not. A
    step of two records of input is written in time."""
    for turns in (300, FOREVER):
        yield from (Slow(worker=worker, at=at, every=20, turns=turns, quota=quota) for quota in (False, True))


def changes(worker: int, at: int) -> Iterator[Fault]:
    """What the application changes comes there: another flow, or more to read. The worker's last steps may not be on its
    disk, and it may be another that goes on."""
    for keep in (0, FOREVER):
        for back_after in (12, 150):
            yield Change(worker=worker, at=at, new=False, corrects=False, keep=keep, back_after=back_after)


def ages(worker: int, at: int) -> Iterator[Fault]:
    """Tombstones grow old and are removed."""
    yield Age(worker=worker, at=at)


def every_point(make: MakeToy, kinds: Kinds, base: Plan, worker: int = 0, each: int = FOREVER) -> Iterator[Plan]:
    """Every fault of these kinds at every point that the worker comes to when only `base` happens.

    `each`: only this many of them at one point, the following ones at the next, and so on in turn.
    """
    toy = make()
    points = check.run(toy, base, World(toy, base)).hosts[worker].places
    for at in range(len(points)):
        faults = list(kinds(worker, at))
        for i in range(min(each, len(faults))):
            yield base.only([*base.items, faults[(at * each + i) % len(faults)]])


def sample(
    seed: int, points: int = 150, workers: int = 2, kinds: Sequence[Kinds] = (crashes, pauses, others, others)
) -> Plan:
    """A plan with one to five faults at random points of random workers, often shortly one after another."""
    rng = random.Random(seed)
    items: list[Item] = []
    worker = at = 0
    for _ in range(rng.randint(1, 5)):
        if items and rng.random() < 0.5:
            at += rng.randint(1, 30)
        else:
            worker, at = (0 if rng.random() < 0.6 else rng.randrange(workers)), rng.randrange(points)
        items.append(rng.choice(list(rng.choice(kinds)(worker, at))))
    return Plan(tuple(items), lazy_broker=rng.random() < 0.5)


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A failing plan: without any one of its items, or a chunk of them, it does not fail.

    >>> faults = [Expel(worker=0, at=i) for i in range(9)]
    >>> [f.at for f in shrink(Plan(tuple(faults)), lambda p: {faults[3], faults[7]} <= set(p.items)).faults]
    [3, 7]
    """
    items: Sequence[Item] = plan.items
    size = max(1, len(items) // 2)
    while True:
        for start in range(0, len(items), size):
            fewer = [*items[:start], *items[start + size :]]
            if fails(plan.only(fewer)):
                items = fewer
                break
        else:
            if size == 1:
                return plan.only(items)
            size = max(1, size // 2)


def smallest(make: MakeToy, failure: Failure, workers: int = 2) -> Failure:
    """The failure's plan, shrunk. The smaller plan may break another invariant than the larger: that is accepted."""
    plan = shrink(failure.plan, lambda p: attempt(make, p, workers) is not None)
    found = attempt(make, named(make, plan, workers), workers) or attempt(make, plan, workers)
    assert found is not None
    return found


def named(make: MakeToy, plan: Plan, workers: int = 2) -> Plan:
    """The plan with its points named, so that it stays valid when changes add other points before them."""
    world = World(make(), plan, workers=workers)
    with suppress(*BREAKS):
        check.run(world.toy, plan, world)
    items: list[Item] = []
    for item in plan.items:
        if (
            not isinstance(item, Turn | Takes)
            and not item.on
            and item.at < len(places := world.hosts[item.worker].places)
        ):
            on = places[item.at]
            items.append(replace(item, on=on, at=sum(on in p for p in places[: item.at])))
        else:
            items.append(item)
    return plan.only(items)
