"""Two stages and the edge between them: each record goes through both once, and no recovery misses what is trimmed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.testing.simulator import check
from falkirk.testing.simulator.cluster.partition import OutOfRange
from falkirk.testing.simulator.edges.stages import EDGE, TwoStages
from falkirk.testing.simulator.explore import (
    Kinds,
    attempt,
    crashes,
    every_point,
    moves,
    others,
    outages,
    pauses,
    sample,
)
from falkirk.testing.simulator.plan import FOREVER, Plan
from falkirk.testing.simulator.weakened.weaken import WEAKENINGS, lacking
from falkirk.testing.simulator.world import World

regimes = pytest.mark.parametrize(
    "make",
    [
        partial(TwoStages, recovery=first, second=second, inputs=4)
        for first in (Eager, Lazy)
        for second in (Eager, Lazy)
    ],
    ids=["eager, eager", "eager, lazy", "lazy, eager", "lazy, lazy"],
)


def drawn(seed: int) -> str:
    """A sampled run: what broke; empty if nothing did."""
    tasks, readers = ((2, 1), (3, 1), (3, 2))[seed % 3]
    first, second = (Eager, Lazy)[seed % 2], (Eager, Lazy)[seed // 2 % 2]
    make = partial(TwoStages, tasks=tasks, readers=readers, recovery=first, second=second, inputs=4 + seed % 5)
    workers = 2 + seed % 5 // 3
    plan = sample(seed, points=250, workers=workers, kinds=(crashes, pauses, outages, moves, others))
    failure = attempt(make, plan, workers, seed, rate=(0.0, 0.1, 0.4)[seed % 3])
    return "" if failure is None else f"seed {seed}: {failure}"


@pytest.mark.parametrize("second", [Eager, Lazy])
@pytest.mark.parametrize(("tasks", "readers"), [(2, 1), (3, 1), (3, 2)])
def test_without_faults_the_edge_is_trimmed_behind_its_readers(
    second: type[Recovery], tasks: int, readers: int
) -> None:
    toy = TwoStages(tasks=tasks, readers=readers, second=second, inputs=9)
    world = check.run(toy, Plan())
    edge = world.broker.partitions(EDGE)
    assert any(p.start > 0 for p in edge)
    assert all(p.start < p.end for p in edge)


def test_two_tasks_that_commit_together_send_one_record() -> None:
    world = check.run(TwoStages(tasks=3, inputs=6), Plan())
    assert any(len(check.parts(e)) == 2 for p in world.broker.partitions(EDGE) for e in world.broker.decided(p.name))


@pytest.mark.slow
@regimes
@pytest.mark.parametrize("kinds", [crashes, pauses, outages, others])
def test_one_fault_at_every_third_point(make: Callable[[], TwoStages], kinds: Kinds) -> None:
    plans = list(every_point(make, kinds, Plan(), each=1))[::3]
    assert len(plans) > 20
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.parametrize(
    ("name", "host"), [("trim-edge-to-end", "w1"), ("trim-edge-first", "w0"), ("trim-edge-twice", "w2")]
)
def test_what_is_trimmed_too_early_stops_a_recovery(name: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task goes to the host whose store is old, while the copies are away; or to a new one, when the newest copy is
    damaged."""
    monkeypatch.setattr(World, "close", lambda _: None)
    breaks = WEAKENINGS[name].breaks
    world = World(breaks.toy, breaks.plan)
    with lacking(name), pytest.raises(check.Broken, match="kept: edge-0 begins at"):
        check.run(breaks.toy, breaks.plan, world)
    for each in world.hosts:
        if each.process is not None:
            each.end(world.turn, keep=FOREVER, back_after=FOREVER)
        world.broker.group.expire(each.name)
    if host == "w2":
        world.copies.damage()
        world.add(2)
    else:
        world.copies.back_at = FOREVER
        world.hosts[int(host[1:])].back_at = 0
    with pytest.raises(OutOfRange, match="edge"):
        world.run_until(world.quiet, check.BUDGET)


def test_several_faults_at_random_points() -> None:
    assert [broken for seed in range(50) if (broken := drawn(seed))] == []


@pytest.mark.slow
def test_several_faults_at_random_points_at_length() -> None:
    assert [broken for seed in range(50, 350) if (broken := drawn(seed))] == []
