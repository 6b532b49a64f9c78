"""Workers of a shadow die, sleep and doubt while they rebuild an operator beside an app. What the app takes over is what a
shadow without failures makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, failures, mixed_run

from falkirk.testing.simulator import check
from falkirk.testing.simulator.explore import (
    Failure,
    Kinds,
    attempt,
    crashes,
    doubts,
    every_point,
    moves,
    naps,
    others,
    outages,
    pauses,
    slow_lines,
)
from falkirk.testing.simulator.flows.shadow_workers import ShadowWorkers
from falkirk.testing.simulator.flows.shadows import made_by
from falkirk.testing.simulator.plan import Plan
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

each_kind = pytest.mark.parametrize("kinds", [crashes, pauses, moves, doubts, slow_lines])


@pytest.mark.parametrize("tasks", [1, 2])
def test_its_tasks_read_what_the_app_has_read_and_no_more(tasks: int) -> None:
    toy = ShadowWorkers(inputs=7, upto=3, tasks=tasks)
    world = check.run(toy, Plan(), World(toy, Plan()))
    for t in range(tasks):
        steps = check.steps(world.broker, toy, t)
        assert [r.end for step in steps for r in step.division][-1] == 3
        assert len(steps) > 1


@pytest.mark.parametrize("tasks", [1, 2])
def test_it_may_be_ended_at_any_moment(tasks: int) -> None:
    """Its workers are shut out in the middle of whatever they do, and the app takes over what there is."""
    ends = set()
    for turns in range(3, 300, 13):
        with shadow_after(turns, tasks=tasks) as (toy, world):
            toy.shut_out(world)
            made = made_by(toy.cluster, world.broker)
            toy.take_over(world, made)
        ends.add(made["sums"].ends)
    assert len(ends) > 4


def test_where_its_changelog_ends_is_asked_only_once_it_is_shut_out() -> None:
    """Else what it writes later replaces rows below that end, when the log is compacted."""
    with shadow_after(140) as (toy, world):
        made = made_by(toy.cluster, world.broker)
        world.run_until(lambda: False, 200)
        toy.shut_out(world)
        with pytest.raises(check.Broken, match="the sink says"):
            toy.take_over(world, made)


@contextmanager
def shadow_after(turns: int, tasks: int = 1) -> Iterator[tuple[ShadowWorkers, World]]:
    """A shadow whose workers have run for so many turns."""
    toy = ShadowWorkers(inputs=7, upto=4, tasks=tasks)
    world = World(toy, Plan())
    try:
        world.run_until(lambda: False, turns)
        yield toy, world
    finally:
        world.close()


@each_kind
def test_a_fault_while_it_rebuilds(kinds: Kinds) -> None:
    """At some points."""
    make = partial(ShadowWorkers, inputs=6)
    plans = list(islice(every_point(make, kinds, Plan(), each=1), 0, None, 7))
    assert len(plans) > 6
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@each_kind
def test_a_fault_at_every_point_with_a_late_broker(kinds: Kinds, some: Some) -> None:
    make = partial(ShadowWorkers, inputs=8, upto=6)
    plans = some(every_point(make, kinds, Plan(lazy_broker=True), each=2))
    assert len(plans) > 15
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    make = partial(ShadowWorkers, tasks=1 + seed % 2, inputs=8, upto=3 + seed % 3, more=seed // 3 % 3)
    return mixed_run(make, seed, points=100, kinds=(crashes, crashes, pauses, naps, moves, outages, others))


def test_several_faults() -> None:
    assert failures(mixed, range(10)) == []


@pytest.mark.slow
def test_several_faults_at_length(some: Some) -> None:
    assert failures(mixed, some(range(10, 250))) == []
