"""Whatever happens to the workers, the visible output is that of an undisturbed run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from tests.simulator.conftest import Some

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.testing.simulator import check
from falkirk.testing.simulator.__main__ import explore
from falkirk.testing.simulator.explore import (
    BREAKS,
    Failure,
    Kinds,
    ages,
    attempt,
    crashes,
    every_point,
    lost_disks,
    moves,
    named,
    others,
    outages,
    pauses,
    sample,
    shrink,
)
from falkirk.testing.simulator.plan import Chooser, Crash, Expel, Fault, Leave, Move, Pause, Plan
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

eager = partial(Toy, recovery=Eager)
lazy = partial(Toy, recovery=Lazy)
regimes = pytest.mark.parametrize("make", [eager, lazy], ids=["eager", "lazy"])
brokers = pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])


@regimes
@brokers
def test_a_run_without_faults_counts_every_record_once(make: Callable[[], Toy], late: bool) -> None:
    toy = make()
    world = check.run(toy, Plan(lazy_broker=late))
    for t in range(toy.tasks):
        counts = {k: int(v) for k, v in check.fold(world.broker, toy, t).state.items() if k[:2] in (b"nx", b"ny")}
        assert counts == {b"nx%d" % t: 2, b"ny%d" % t: 2}


@regimes
@brokers
@pytest.mark.parametrize("kinds", [crashes, pauses, others])
def test_one_fault_at_every_point(make: Callable[[], Toy], late: bool, kinds: Kinds) -> None:
    plans = list(every_point(make, kinds, Plan(lazy_broker=late), each=1))
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@regimes
@pytest.mark.parametrize("kinds", [crashes, pauses, moves, others])
def test_one_fault_at_every_point_of_workers_with_two_commit_domains(make: Callable[..., Toy], kinds: Kinds) -> None:
    """Each has a producer of its own, and they share the place in the group."""
    two = partial(make, domains=2)
    plans = list(every_point(two, kinds, Plan(), each=1))
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(two, plan))] == []


@pytest.mark.slow
@regimes
@brokers
@pytest.mark.parametrize("kinds", [crashes, pauses, others])
def test_every_fault_at_every_point(make: Callable[[], Toy], late: bool, kinds: Kinds, some: Some) -> None:
    plans = some(every_point(make, kinds, Plan(lazy_broker=late)))
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@regimes
@pytest.mark.parametrize(
    "base",
    [
        Crash(worker=0, at=60, back_after=100),
        Crash(worker=0, at=60, keep=0),
        Pause(worker=0, at=60),
        Move(worker=0, at=60, task=0, to=1),
        Leave(worker=0, at=60),
    ],
    ids=["host away", "process killed", "asleep", "moved", "left"],
)
def test_a_checkpoint_store_that_is_away_or_has_damage_at_every_point(make: Callable[[], Toy], base: Fault) -> None:
    """Tasks are taken over by hosts with a store and without one meanwhile."""
    plans = list(every_point(make, outages, Plan((base,)), each=1))
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
def test_take_overs_while_the_checkpoint_store_is_away() -> None:
    """Several of them, and faults of other kinds, in both regimes."""
    failures, waited = list[Failure](), 0
    for seed in range(250):
        make = partial(Toy, tasks=1 + seed % 3, recovery=Eager if seed % 4 == 0 else Lazy, inputs=3 + seed % 4)
        plan = sample(seed, workers=2, kinds=(outages, outages, crashes, lost_disks, moves, others))
        world = World(make(), plan, Chooser(rng=Random(seed), rate=0.1))
        try:
            check.run(world.toy, plan, world)
        except BREAKS as error:
            failures.append(Failure(plan, f"{seed}: {error}", tuple(world.trace)))
        waited += any("waits for the checkpoint store" in line for line in world.trace)
    assert failures == []
    assert waited > 5


@pytest.mark.slow
@regimes
@pytest.mark.parametrize(
    "first", [Crash(worker=0, at=40, back_after=100), Pause(worker=0, at=40), Expel(worker=0, at=40)]
)
def test_a_successor_that_fails_in_turn_at_every_point(make: Callable[[], Toy], first: Fault) -> None:
    for kinds in (crashes, pauses):
        plans = list(every_point(make, kinds, Plan((first,)), worker=1, each=1))
        assert len(plans) > 25
        assert [f for plan in plans if (f := attempt(make, plan))] == []


@brokers
def test_tombstones_that_go_while_a_task_is_recovered(late: bool) -> None:
    """A worker that is suspended for days between two reads of a changelog takes what it has for outdated."""
    base = Plan((Crash(worker=0, at=80 if late else 60, keep=0),), lazy_broker=late)
    plans = list(every_point(partial(Toy, tasks=1, inputs=5), ages, base))
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(partial(Toy, tasks=1, inputs=5), plan))] == []


def test_several_faults_at_random_points() -> None:
    assert [broken for seed in range(200) if (broken := explore(seed))] == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_several_faults_at_random_points_at_length(block: int, some: Some) -> None:
    seeds = some(range(2_000 * block, 2_000 * block + 2_000))
    assert [broken for seed in seeds if (broken := explore(seed))] == []


def test_a_run_is_replayed_from_its_plan_alone() -> None:
    plan = sample(7)
    drawn = World(eager(), plan)
    drawn.chooser.rng, drawn.chooser.rate = Random(7), 0.4
    check.run(drawn.toy, plan, drawn)
    assert drawn.chooser.turns
    again = World(eager(), plan)
    again.chooser.turns = dict(drawn.chooser.turns)
    check.run(again.toy, plan, again)
    assert again.trace == drawn.trace


def test_shrinking_leaves_nothing_that_is_not_needed() -> None:
    faults = tuple(Expel(worker=0, at=i) for i in range(20))
    needed = {faults[2], faults[3], faults[17]}
    assert set(shrink(Plan(faults), lambda p: needed <= set(p.items)).items) == needed


def test_faults_are_found_again_by_the_names_of_their_points() -> None:
    plan = Plan((Expel(worker=0, at=30), Crash(worker=0, at=44)), lazy_broker=True)
    world = check.run(eager(), plan, World(eager(), plan))
    same = named(eager, plan)
    assert all(fault.on for fault in same.faults)
    again = check.run(eager(), same, World(eager(), same))
    assert [h.places for h in again.hosts] == [h.places for h in world.hosts]


def test_a_task_whose_companion_is_revoked_runs_only_when_it_has_been_rolled() -> None:
    """Two tasks are recovered together; one is asked for while they are."""
    make = partial(Toy, inputs=4)
    base = Plan((Crash(worker=0, at=70),))
    assert [f for plan in every_point(make, moves, base, each=1) if (f := attempt(make, plan))] == []


COMMITTED = "committer: sends EndTxn(commit): done"


@pytest.mark.parametrize(
    "plan",
    [
        Plan((Pause(worker=0, on="naming: sends offsets: done"),), lazy_broker=True),
        Plan((Move(worker=0, on=COMMITTED, at=4, task=0, to=1), Pause(worker=0, on="copies the version", turns=60))),
    ],
    ids=["opened ahead by a sleeper", "trimmed by a sleeper's last versions"],
)
def test_a_store_that_trimming_overtakes_while_its_task_is_taken_over_is_opened_anew(plan: Plan) -> None:
    assert attempt(partial(Toy, tasks=1, recovery=Lazy, inputs=6), plan, workers=3) is None
