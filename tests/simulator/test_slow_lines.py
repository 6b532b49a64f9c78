"""What takes longer to write than a worker waits for is given up and tried again smaller. Nothing is lost or doubled, and the
run ends: over a slow line, and with a broker that has a quota."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, failures

from falkirk.checkpoint.ids import OwnerId, TopicPartition
from falkirk.checkpoint.ports import Unknown, Why, Writes
from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.testing.simulator import check
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.coordinator import Phase
from falkirk.testing.simulator.cluster.line import Line
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.edges.stages import TwoStages
from falkirk.testing.simulator.explore import (
    Failure,
    Kinds,
    attempt,
    crashes,
    doubts,
    every_point,
    failovers,
    moves,
    others,
    pauses,
    sample,
    slow_lines,
)
from falkirk.testing.simulator.plan import Plan, Slow
from falkirk.testing.simulator.points import Point, drive
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

PLACE = TopicPartition("a", 0)
COMMITTED = "committer: sends EndTxn(commit): done"
lazy = partial(Toy, tasks=1, recovery=Lazy, inputs=3, at_once=3)
eager = partial(Toy, tasks=1, recovery=Eager, inputs=3, at_once=3)
kinds_of_faults = pytest.mark.parametrize("kinds", [crashes, pauses, moves, doubts, failovers])


def slow(every: int, *, quota: bool = False, on: str = COMMITTED) -> Plan:
    """Both workers' writes are slow from their first steps on."""
    return Plan(tuple(Slow(worker=w, on=on, every=every, quota=quota) for w in (0, 1)))


def ran(toy: Toy, plan: Plan) -> tuple[list[int], int]:
    """The sizes of the steps, and how often a worker made another producer."""
    world = check.run(toy, plan, World(toy, plan))
    sizes = [sum(r.end - r.start for r in step.division) for step in check.steps(world.broker, toy, 0)]
    renewals = sum("makes a new producer: done" in line for line in world.trace)
    return [size for size in sizes if size], renewals - len(world.hosts)


# what the workers do


@pytest.mark.parametrize("quota", [False, True], ids=["line", "quota"])
def test_a_step_that_is_not_written_in_time_is_tried_again_smaller(quota: bool) -> None:
    sizes, given_up = ran(Toy(tasks=1, recovery=Lazy, inputs=8, at_once=8), slow(30, quota=quota))
    assert given_up > 0
    assert max(sizes) <= 4
    assert sum(sizes) == 16


def test_a_quota_that_is_announced_is_waited_for() -> None:
    sizes, given_up = ran(Toy(tasks=1, recovery=Lazy, inputs=8, at_once=8), slow(20, quota=True))
    assert (sizes, given_up) == ([16], 0)


def test_steps_grow_again_when_the_line_is_quick_again() -> None:
    plan = Plan((Slow(worker=0, on=COMMITTED, every=60, turns=400),))
    sizes, given_up = ran(Toy(tasks=1, recovery=Lazy, inputs=16, at_once=8), plan)
    assert given_up > 0
    assert min(sizes[:2]) <= 2
    assert max(sizes) > 4


def test_a_transaction_whose_records_arrive_at_long_intervals_is_not_given_up_each_time() -> None:
    """Seven records, the four changes in one request: it arrives fourteen seconds after the transaction began."""
    sizes, given_up = ran(Toy(tasks=1, recovery=Eager, inputs=8, at_once=8), slow(20))
    assert sizes == [2] * 8
    assert given_up <= 2


def test_where_the_smallest_step_needs_more_time_it_is_not_given_up_again_each_time() -> None:
    sizes, given_up = ran(lazy(), slow(100))
    assert sizes == [2] * 3
    assert given_up <= 6


# among faults


@pytest.mark.parametrize(
    ("make", "nth"),
    [
        (lazy, 1),
        (eager, 1),
        (partial(Toy, recovery=Lazy, inputs=3, at_once=3), 2),
        (partial(TwoStages, second=Lazy, at_once=2), 3),
    ],
    ids=["lazy", "eager", "two tasks", "two stages"],
)
def test_from_any_point_on(make: Callable[[], Toy], nth: int) -> None:
    plans = list(islice(every_point(make, slow_lines, Plan(), each=1), 0, None, nth))
    assert len(plans) > 15
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@kinds_of_faults
def test_a_fault_while_it_is_slow(kinds: Kinds) -> None:
    """At some points; the long test has them all."""
    for make, base in ((lazy, slow(60)), (eager, slow(25, quota=True))):
        plans = list(islice(every_point(make, kinds, base, each=1), 0, None, 16))
        assert len(plans) > 3
        assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@kinds_of_faults
@pytest.mark.parametrize("quota", [False, True], ids=["line", "quota"])
@pytest.mark.parametrize(("make", "every"), [(lazy, 60), (eager, 25)], ids=["lazy", "eager"])
def test_a_fault_at_every_point_while_it_is_slow(
    make: Callable[[], Toy], every: int, quota: bool, kinds: Kinds, some: Some
) -> None:
    plans = some(every_point(make, kinds, slow(every, quota=quota), each=1))
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    make = partial(Toy, tasks=1 + seed % 2, recovery=(Lazy, Eager)[seed % 2], inputs=2 + seed % 3, at_once=1 + seed % 3)
    plan = sample(seed, points=60, kinds=(slow_lines, slow_lines, crashes, pauses, moves, others))
    return attempt(make, plan, seed=seed, rate=0.1)


def test_among_other_faults() -> None:
    assert failures(mixed, range(20)) == []


@pytest.mark.slow
def test_among_other_faults_at_length(some: Some) -> None:
    assert failures(mixed, some(range(20, 1_000))) == []


# the simulated line


def test_what_was_given_up_may_arrive_later_and_another_producer_ends_it() -> None:
    broker = SimBroker()
    broker.create("a", 1)
    log, seen = SimLog(broker, OwnerId("w")), list[str]()

    def at_point(point: Point) -> None:
        seen.append(point.what)
        broker.now += 1

    async def write() -> None:
        await log.renew()
        broker.lines["w"] = Line(every=100, until=100 * broker.now, quota=False)
        await log.begin()
        await log.send(Writes("a", [0] * 3, [b"k"] * 3, [b"v"] * 3))
        with pytest.raises(Unknown) as given_up:
            await log.commit()
        assert given_up.value.cause.why is Why.SLOW

    drive(write(), at_point)
    assert "sends records to a-0: the line is slow" in seen
    assert len(broker[PLACE].entries) == 0
    assert broker.pending() == []
    broker.now += 300
    [late] = broker.pending()
    broker.do(late)
    assert len(broker[PLACE].entries) == 3
    assert broker.coordinator.phase("w") is Phase.OPEN
    drive(log.renew(), lambda _: broker.settle())
    assert broker.coordinator.phase("w") is Phase.EMPTY
    assert broker.decided(PLACE) == []
