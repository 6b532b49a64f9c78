"""Workers die, sleep and doubt while their tasks move state to another schema, step by step, and some lose their disks. In
the end it is as if nothing had failed."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, any_of, failures, mixed_run

from falkirk.checkpoint.ids import TopicPartition
from falkirk.testing.simulator import check
from falkirk.testing.simulator.explore import (
    Failure,
    attempt,
    changes,
    crashes,
    doubts,
    every_point,
    lost_disks,
    moves,
    naps,
    others,
    outages,
    pauses,
)
from falkirk.testing.simulator.flows.moves import ROWS_MOVED, SPENT, Moves
from falkirk.testing.simulator.plan import Age, Change, Crash, Move, Plan
from falkirk.testing.simulator.weakened.weaken import lacking
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

COMMITTED = "committer: sends EndTxn(commit): done"
KINDS = (crashes, pauses, moves, doubts, outages, lost_disks, changes)
make = partial(Moves, inputs=4)


def ran(plan: Plan) -> World:
    """A run of one task."""
    toy = make()
    return check.run(toy, plan, World(toy, plan))


def layouts(world: World) -> list[int]:
    """Of each step that moves rows."""
    return [s.layout for s in check.steps(world.broker, world.toy, 0) if s.move is not None]


def test_input_goes_on_while_it_moves_and_is_read_after_that() -> None:
    toy = make(tasks=2)
    world = check.run(toy, Plan(), World(toy, Plan()))
    for t in range(2):
        steps = check.steps(world.broker, toy, t)
        moving = [s for s in steps if s.move is not None]
        assert len(moving) == 4 * 3 / ROWS_MOVED
        assert all(r.start == r.end == toy.inputs for s in moving for r in s.division)
        assert steps.index(moving[-1]) - steps.index(moving[0]) == len(moving) - 1
        came = [e.timestamp for e in world.broker[TopicPartition(SPENT, t)].entries]
        assert any(moving[0].clock < at < moving[-1].clock for at in came)


def test_a_worker_that_dies_with_its_disk_is_followed_by_one_that_goes_on_where_it_was() -> None:
    world = ran(Plan((Crash(worker=0, on=COMMITTED, at=2, lost=True, back_after=300),)))
    moving = [s for s in check.steps(world.broker, world.toy, 0) if s.move is not None]
    assert len({s.owner for s in moving}) == 2
    assert not world.hosts[0].disk.stores
    assert len(moving) == 4 * 3 / ROWS_MOVED


def test_a_third_flow_finds_rows_of_both_earlier_ones() -> None:
    world = ran(Plan((Change(worker=0, on=COMMITTED, at=2, new=False, corrects=False),)))
    assert set(layouts(world)) == {2, 3}


def test_deletions_of_moved_rows_that_are_compacted_away_do_not_bring_the_rows_back() -> None:
    plan = Plan(
        (
            Move(worker=0, on=COMMITTED, at=2, task=0, to=1),
            Move(worker=1, on=COMMITTED, at=2, task=0, to=0),
            Age(worker=1, on="main: is told: revoked"),
        )
    )
    ran(plan)
    with lacking("old-tombstones"):
        assert attempt(make, plan)


def test_a_fault_while_it_moves() -> None:
    """At some points; the long test has them all."""
    plans = list(islice(every_point(make, any_of(KINDS), Plan(), each=1), 2, None, 5))
    assert len(plans) > 15
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
def test_a_fault_at_every_point_of_a_move(late: bool, some: Some) -> None:
    plans = some(every_point(make, any_of(KINDS), Plan(lazy_broker=late), each=1))
    assert len(plans) > 20
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    sampled = partial(Moves, tasks=1 + seed % 2, inputs=4 + seed % 3)
    return mixed_run(sampled, seed, points=120, kinds=(*KINDS, naps, others))


def test_several_faults_while_it_moves() -> None:
    assert failures(mixed, range(6)) == []


@pytest.mark.slow
def test_several_faults_while_it_moves_at_length(some: Some) -> None:
    assert failures(mixed, some(range(6, 130))) == []
