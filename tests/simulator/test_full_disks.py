"""A worker whose disk is full stops and says so. Nothing is lost: another takes over, or the same one when there is room."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.testing.simulator import check
from falkirk.testing.simulator.edges.stages import TwoStages
from falkirk.testing.simulator.explore import (
    attempt,
    crashes,
    every_point,
    filled_disks,
    full_disks,
    moves,
    others,
    sample,
)
from falkirk.testing.simulator.plan import FOREVER, Full, Plan
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

makes = pytest.mark.parametrize(
    "make",
    [partial(Toy, recovery=Eager, inputs=4), partial(Toy, recovery=Lazy, inputs=4), partial(TwoStages, second=Lazy)],
    ids=["eager", "lazy", "two stages"],
)
COMMITTED = "committer: sends EndTxn(commit): done"


@pytest.mark.slow
@makes
@pytest.mark.parametrize("kinds", [full_disks, filled_disks])
def test_at_every_point(make: Callable[[], Toy], kinds: Callable[..., object]) -> None:
    plans = list(every_point(make, kinds, Plan(), each=1))  # type: ignore[arg-type]
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def test_among_other_faults() -> None:
    failures = []
    for seed in range(80):
        make = partial(Toy, tasks=1 + seed % 3, recovery=(Lazy, Eager)[seed % 2], inputs=3 + seed % 4)
        plan = sample(seed, kinds=(full_disks, full_disks, crashes, moves, others))
        failures += [f for f in [attempt(make, plan, seed=seed, rate=0.1)] if f]
    assert failures == []


@pytest.mark.parametrize("recovery", [Lazy, Eager])
def test_the_worker_says_so_and_its_tasks_run_elsewhere(recovery: type[Recovery]) -> None:
    plan = Plan((Full(worker=0, on=COMMITTED, at=2, turns=FOREVER),))
    world = check.run(Toy(tasks=1, recovery=recovery, inputs=6), plan)
    assert world.stopped == ["w0"]
    assert any("w0: stops: state cannot be written: no space left" in line for line in world.trace)
    assert world.hosts[0].process is None


def test_the_worker_goes_on_when_there_is_room_and_it_is_started_again() -> None:
    toy, plan = Toy(tasks=1, inputs=6), Plan((Full(worker=0, on=COMMITTED, at=2, turns=100),))
    world = check.run(toy, plan, World(toy, plan, workers=1))
    assert world.stopped == ["w0"]


def test_without_room_anywhere_what_is_committed_stays_and_no_more_is() -> None:
    toy = Toy(tasks=1, recovery=Lazy, inputs=9)
    full = (Full(worker=w, on=COMMITTED, at=2, turns=FOREVER) for w in (0, 1))
    world = World(toy, Plan(tuple(full)))
    assert world.run_until(world.deserted, check.BUDGET)
    world.close()
    assert sorted(world.stopped) == ["w0", "w1"]
    assert not check.covered(world.broker, toy, 0)
    check.chain(world.broker, toy, 0)
    check.atomic(world.broker, toy)
    check.output(world.broker, toy)
    check.disks(world)
