"""Workers die, sleep and doubt while their tasks rebuild an operator from its inputs, step by step. In the end it is as if
the new flow had always run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, failures, mixed_run

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.checkpoint.regimes.recovery import Recovery
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.checkpoint.transaction import Fate
from falkirk.runtime.worker.pacing import Pacer
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
from falkirk.testing.simulator.flows.rebuilds import Rebuilds
from falkirk.testing.simulator.plan import Crash, Plan
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

regimes = pytest.mark.parametrize("recovery", [Eager, Lazy])
each_kind = pytest.mark.parametrize("kinds", [crashes, pauses, moves, doubts, slow_lines])
COMMITTED = "committer: sends EndTxn(commit): done"


@regimes
@pytest.mark.parametrize("tasks", [1, 2])
def test_it_takes_several_steps_and_then_new_input_is_read(recovery: type[Recovery], tasks: int) -> None:
    toy = Rebuilds(recovery=recovery, inputs=5, tasks=tasks)
    world = check.run(toy, Plan(), World(toy, Plan()))
    for t in range(tasks):
        steps = check.steps(world.broker, toy, t)
        rebuilding = [s for s in steps if s.move is not None]
        read = [sum(r.end - r.start for r in s.move.again) for s in rebuilding if s.move is not None]
        assert [n for n in read if n] == [2, 2, 1]
        assert steps.index(rebuilding[-1]) - steps.index(rebuilding[0]) == len(rebuilding) - 1
        assert steps[-1].move is None


def test_how_much_is_read_again_at_once_is_learnt_from_what_was_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If such a step counted as one without rows, one that is too large would be tried again as large."""
    noted: list[int] = []
    decided = Pacer.decided

    def seen(self: Pacer, steps: Sequence[ClosedStep], fates: Sequence[Fate], seconds: float) -> None:
        noted.extend(step.rows for step in steps if step.record.move is not None)
        decided(self, steps, fates, seconds)

    monkeypatch.setattr(Pacer, "decided", seen)
    check.run(toy := Rebuilds(inputs=5), Plan(), World(toy, Plan()))
    assert noted == [2, 2, 1, 0, 0]


@regimes
def test_a_worker_that_dies_is_followed_by_one_that_goes_on_where_it_was(recovery: type[Recovery]) -> None:
    toy = Rebuilds(recovery=recovery, inputs=6)
    world = check.run(toy, Plan((Crash(worker=0, on=COMMITTED, at=1, back_after=300),)))
    moved = [s for s in check.steps(world.broker, world.toy, 0) if s.move is not None]
    assert len({s.owner for s in moved}) == 2
    assert sum(r.end - r.start for s in moved if s.move is not None for r in s.move.again) == 6


def test_what_a_shadow_has_made_is_taken_and_only_the_rest_is_read_again() -> None:
    """A worker dies after each of the steps that take it."""
    make = partial(Rebuilds, inputs=5, beside=3)
    for at in range(5):
        plan = Plan((Crash(worker=0, on=COMMITTED, at=at, back_after=300),))
        world = check.run(toy := make(), plan, World(toy, plan))
        moved = [s.move for s in check.steps(world.broker, toy, 0) if s.move is not None]
        assert [sum(r.end - r.start for r in move.again) for move in moved] == [0, 0, 0, 0, 2, 0, 0]


@regimes
@each_kind
def test_a_fault_while_it_rebuilds(recovery: type[Recovery], kinds: Kinds) -> None:
    """At some points; the long test has them all."""
    make = partial(Rebuilds, recovery=recovery, inputs=4)
    plans = list(islice(every_point(make, kinds, Plan(), each=1), 0, None, 9))
    assert len(plans) > 6
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@regimes
@each_kind
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
def test_a_fault_at_every_point_of_a_rebuild(recovery: type[Recovery], kinds: Kinds, late: bool, some: Some) -> None:
    make = partial(Rebuilds, recovery=recovery, inputs=4)
    plans = some(every_point(make, kinds, Plan(lazy_broker=late), each=2))
    assert len(plans) > 25
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    recovery = (Lazy, Eager)[seed // 2 % 2]
    beside = seed % 3 if recovery is Eager else 0  # a shadow's changelog is taken over, which lazy tasks do not have
    make = partial(Rebuilds, tasks=1 + seed % 2, recovery=recovery, inputs=3 + seed % 3, beside=beside)
    return mixed_run(make, seed, points=100, kinds=(crashes, crashes, pauses, naps, moves, outages, others))


def test_several_faults_while_it_rebuilds() -> None:
    assert failures(mixed, range(10)) == []


@pytest.mark.slow
def test_several_faults_while_it_rebuilds_at_length(some: Some) -> None:
    assert failures(mixed, some(range(10, 250))) == []
