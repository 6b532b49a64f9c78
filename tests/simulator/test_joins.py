"""A topic that a pattern matches is created while the app runs, or a topic gets more partitions: whatever happens to the
workers, each of their records is read once."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, failures, mixed_run

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.checkpoint.regimes.recovery import Recovery
from falkirk.testing.simulator import check
from falkirk.testing.simulator.explore import (
    Failure,
    Kinds,
    attempt,
    changes,
    crashes,
    doubts,
    every_point,
    moves,
    others,
    pauses,
    slow_lines,
)
from falkirk.testing.simulator.flows.joins import HERE, JOINED, JOINS, Joins
from falkirk.testing.simulator.plan import Plan
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

regimes = pytest.mark.parametrize("recovery", [Eager, Lazy])
each_kind = pytest.mark.parametrize("kinds", [crashes, pauses, moves, doubts])


@regimes
def test_a_step_records_where_the_topic_begins_and_those_after_it_read_it(recovery: type[Recovery]) -> None:
    toy = Joins(recovery=recovery, inputs=5)
    world = check.run(toy, Plan((JOINED,)), World(toy, Plan((JOINED,))))
    steps = check.steps(world.broker, toy, 0)
    alone = [s for s in steps if {r.partition.topic for r in s.division} == {HERE}]
    both = steps[len(alone) :]
    [begins] = [r for r in both[0].division if r.partition.topic == JOINS]
    assert len(alone) > 2
    assert (begins.start, begins.end) == (0, 0)
    # The step right behind it may read only the other topic: its records were there before.
    read = [r.end for s in both for r in s.division if r.partition.topic == JOINS]
    assert list(dict.fromkeys(read)) == [0, 1, 2, 3, 4, 5]
    assert read.count(0) <= 2


@regimes
@pytest.mark.parametrize(("tasks", "grows"), [(1, False), (2, False), (1, True), (2, True)])
def test_it_joins_at_any_point(recovery: type[Recovery], tasks: int, grows: bool) -> None:
    make = partial(Joins, recovery=recovery, inputs=3, tasks=tasks, grows=grows)
    plans = list(islice(every_point(make, changes, Plan(), each=1), 0, None, tasks * 2))
    assert len(plans) > 10
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@regimes
@each_kind
def test_a_fault_when_it_has_joined(recovery: type[Recovery], kinds: Kinds) -> None:
    """At some points; the long test has them all."""
    make = partial(Joins, recovery=recovery, inputs=4)
    plans = list(islice(every_point(make, kinds, Plan((JOINED,)), each=1), 0, None, 8))
    assert len(plans) > 6
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@regimes
@each_kind
@pytest.mark.parametrize("grows", [False, True])
def test_a_fault_at_every_point_when_it_has_joined(
    recovery: type[Recovery], kinds: Kinds, grows: bool, some: Some
) -> None:
    make = partial(Joins, recovery=recovery, inputs=4, grows=grows)
    plans = some(every_point(make, kinds, Plan((JOINED,), lazy_broker=True), each=1))
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    recovery, grows = (Lazy, Eager)[seed // 2 % 2], bool(seed // 4 % 2)
    make = partial(Joins, tasks=1 + seed % 2, recovery=recovery, inputs=3 + seed % 3, grows=grows)
    return mixed_run(make, seed, points=80, kinds=(changes, changes, crashes, pauses, moves, slow_lines, others))


def test_it_joins_among_other_faults() -> None:
    assert failures(mixed, range(10)) == []


@pytest.mark.slow
def test_it_joins_among_other_faults_at_length(some: Some) -> None:
    assert failures(mixed, some(range(10, 600))) == []
