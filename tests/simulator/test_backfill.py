"""Whatever befalls a backfill and the workers beside it: either it is complete and all begin with it, or nobody does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from falkirk.checkpoint import backfill
from falkirk.checkpoint.reading import decoded, fence_rivals
from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.testing.simulator import check
from falkirk.testing.simulator.epochs.backfill import BackfillWorld, DriverFault
from falkirk.testing.simulator.explore import BREAKS
from falkirk.testing.simulator.plan import FOREVER, Chooser, Crash, Pause, Plan
from falkirk.testing.simulator.toy import Toy

regimes = pytest.mark.parametrize("recovery", [Eager, Lazy])

ASLEEP = Plan((Pause(worker=0, on="committer: has queued records for steps", turns=38),), lazy_broker=True)
"""A worker sleeps, shorter than its session, when it has looked and has its first step ready to be sent."""

STARTS = range(0, 100, 7)
"""Of a driver: before the workers have joined, while they are named, recover, make their first steps, and later."""


def run(
    starts: Sequence[int],
    troubles: Sequence[DriverFault] = (),
    plan: Plan | None = None,
    *,
    recovery: type[Recovery] = Eager,
    seed: int = -1,
    workers: int = 2,
) -> BackfillWorld:
    toy = Toy(recovery=recovery, inputs=3)
    plan = plan or Plan()
    chooser = Chooser() if seed < 0 else Chooser(rng=Random(seed), rate=0.3)
    world = BackfillWorld(toy, plan, chooser, workers, starts=starts, troubles=troubles)
    try:
        check.run(toy, plan, world)
    except BREAKS as error:
        raise AssertionError("\n".join([f"{starts} {troubles} {plan} {seed}: {error}", *world.trace])) from error
    return world


@regimes
def test_a_backfill_that_comes_first_counts_and_one_that_comes_late_is_given_up(recovery: type[Recovery]) -> None:
    found = {check.backfilled(run([at], recovery=recovery).broker) is not None for at in STARTS}
    assert found == {True, False}
    assert check.backfilled(run([0], recovery=recovery).broker) is not None


@pytest.mark.slow
@regimes
def test_a_driver_that_dies_or_sleeps_at_any_point(recovery: type[Recovery]) -> None:
    for start in (0, 14, 28, 42):
        for at in range(0, 40, 3):
            for fault in (
                DriverFault(0, at),
                DriverFault(0, at, travels=True),
                DriverFault(0, at, 60),
                DriverFault(0, at, 300),
            ):
                run([start], [fault], recovery=recovery)


@regimes
def test_two_drivers(recovery: type[Recovery]) -> None:
    for first in (0, 10, 25):
        for second in range(0, 60, 6):
            run([first, second], recovery=recovery)
            run([first, second], [DriverFault(0, second)], recovery=recovery)
            run([first, second], [DriverFault(0, second, 300)], recovery=recovery)


@pytest.mark.slow
@regimes
def test_a_worker_that_dies_or_sleeps_at_any_point(recovery: type[Recovery]) -> None:
    for start in (0, 20, 40):
        for at in range(0, 60, 4):
            run([start], plan=Plan((Crash(worker=0, at=at),)), recovery=recovery)
            run([start], plan=Plan((Pause(worker=0, at=at, turns=60),)), recovery=recovery)
            run([start], plan=Plan((Pause(worker=0, at=at),), lazy_broker=True), recovery=recovery)


@regimes
def test_a_worker_that_has_looked_and_sleeps_while_the_backfill_is_made(recovery: type[Recovery]) -> None:
    for start in range(40, 80, 2):
        run([start], plan=ASLEEP, recovery=recovery, workers=1)


@regimes
def test_any_order_of_turns(recovery: type[Recovery]) -> None:
    for seed in range(60):
        fault = [DriverFault(0, seed % 35, None if seed % 2 else 80)] if seed % 3 else []
        run([seed % 50, 60 + seed % 40], fault, Plan(lazy_broker=seed % 4 == 0), recovery=recovery, seed=seed)


async def unnamed(log: Any, tasks: Any, fresh: Any, host: str = "") -> Any:
    """Read, and fence nobody."""
    await log.renew()
    places = [task.steps for task in tasks]
    starts, marks = await log.start(places), await log.end(places)
    seen = await log.read_uncommitted({p: (starts[p], marks[p]) for p in places})
    return next((r for read in seen.values() for _, r in decoded(read) if isinstance(r, backfill.StepRecord)), None)


async def nameless(log: Any, tasks: Any, fresh: Any, host: str = "") -> Any:
    """Fence and read, without a name that tells who was fenced."""
    places = [task.steps for task in tasks]
    await log.renew()
    await fence_rivals(log, places)
    reads = await backfill.read_to_marks(log, await log.start(places), lambda *_: False)
    steps = (r for read in reads.values() for _, r in read.records if isinstance(r, backfill.StepRecord))
    return next(steps, None)


class Deaf:
    """A log whose fences do nothing."""

    def __init__(self, log: Any) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def fence(self, owner: str) -> None:
        pass


_claim, _begin = backfill.claim, backfill.begin


async def unfenced(log: Any, *more: Any) -> Any:
    """Claim, and fence nobody."""
    return await _claim(Deaf(log), *more)


async def empty_handed(stores: Any, owned: Any) -> None:
    """Begin at the division, with the state that is there."""
    await _begin(stores, owned)
    if owned.opened().progress.base >= 0:
        owned.store = await stores.fresh(owned.task.id)


async def from_the_start(stores: Any, owned: Any) -> None:
    """Begin with the base, where the inputs begin."""
    await _begin(stores, owned)
    owned.backfilled = ()


async def unasked(stores: Any, owned: Any) -> None:
    """Look for no backfill."""


@pytest.mark.parametrize(
    ("name", "weak"),
    [
        ("claim", unnamed),
        ("claim", nameless),
        ("claim", unfenced),
        ("begin", empty_handed),
        ("begin", from_the_start),
        ("begin", unasked),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_clause_is_needed(monkeypatch: pytest.MonkeyPatch, name: str, weak: Any) -> None:
    monkeypatch.setattr(backfill, name, weak)
    with pytest.raises(AssertionError):  # noqa: PT012
        for start in (0, *range(50, 70, 4)):
            run([start])
            run([start], plan=ASLEEP, workers=1)


def test_a_store_that_is_lost_with_its_host_is_made_again_from_the_base() -> None:
    """The host dies for good after some steps and before its first copied version: another has the base, and the log."""
    for at in range(50, 90, 4):
        world = run([0], plan=Plan((Crash(worker=0, at=at, keep=0, back_after=FOREVER),)))
        assert check.backfilled(world.broker) is not None
