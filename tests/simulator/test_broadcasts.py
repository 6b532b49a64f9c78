"""Workers die, sleep and doubt while they take in a broadcast table. Each record is looked up once, in the table as it was at
the position that its step has recorded."""

from __future__ import annotations

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
    others,
    pauses,
)
from falkirk.testing.simulator.flows.broadcasts import SIZES, Broadcasts, seen_of
from falkirk.testing.simulator.plan import Crash, Plan
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

each_kind = pytest.mark.parametrize("kinds", [crashes, pauses, moves, doubts])
TAKES_IN = f"takes in {SIZES} from "


def ran(plan: Plan) -> World:
    """A run of one task that looks up six records."""
    toy = Broadcasts(inputs=6)
    return check.run(toy, plan, World(toy, plan))


def test_the_table_changes_between_the_steps() -> None:
    world = ran(Plan())
    seen = [seen_of(record) for record in check.steps(world.broker, world.toy, 0)]
    assert len(set(seen[1:])) > 2


@pytest.mark.parametrize("taken_in", range(6))
def test_a_crash_while_the_table_is_read(taken_in: int) -> None:
    """The copy is lost, up to what the crash leaves of its writes, and read again from there."""
    for keep in (0, 1, 3):
        world = ran(Plan((Crash(worker=0, on=TAKES_IN, at=taken_in, keep=keep),)))
        begun = [int(place.rpartition(" ")[2]) for place in world.hosts[0].places if TAKES_IN in place]
        assert begun[: taken_in + 2] == [*range(taken_in + 1), min(keep, taken_in)]


def test_who_takes_a_task_over_reads_the_table_as_far_as_it_was_seen_before_it_steps() -> None:
    world = ran(Plan((Crash(worker=0, on="committer: sends EndTxn(commit): done", at=2),)))
    chain = check.steps(world.broker, world.toy, 0)
    first = next(n for n, step in enumerate(chain) if step.owner != chain[0].owner or step.nonce != chain[0].nonce)
    assert seen_of(chain[first]) >= seen_of(chain[first - 1]) > 1
    places = world.hosts[0].places
    again = len(places) - 1 - places[::-1].index(f"main: {TAKES_IN}0")
    assert not any("committer" in place for place in places[again : places.index(f"main: {TAKES_IN}1", again)])


@each_kind
def test_a_fault_at_some_points(kinds: Kinds) -> None:
    """The long test has them all."""
    for tasks in (1, 2):
        make = partial(Broadcasts, inputs=3, tasks=tasks)
        plans = list(islice(every_point(make, kinds, Plan(), each=1), 3, None, 20))
        assert len(plans) > 2
        assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@each_kind
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
def test_a_fault_at_every_point(kinds: Kinds, late: bool, some: Some) -> None:
    make = partial(Broadcasts, inputs=4, tasks=2)
    plans = some(every_point(make, kinds, Plan(lazy_broker=late), each=1))
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    make = partial(Broadcasts, tasks=1 + seed % 2, inputs=3 + seed % 3)
    return mixed_run(make, seed, points=100, kinds=(crashes, crashes, pauses, moves, others))


def test_several_faults() -> None:
    assert failures(mixed, range(10)) == []


@pytest.mark.slow
def test_several_faults_at_length(some: Some) -> None:
    assert failures(mixed, some(range(10, 250))) == []
