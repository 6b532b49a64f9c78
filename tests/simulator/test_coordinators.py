"""A transaction coordinator that moves loses nothing, and the worker learns the outcome from the log.

Records that are refused for a while are sent again. A worker that alone may not write leaves its tasks to others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.testing.simulator import check
from falkirk.testing.simulator.cluster.coordinator import Coordinator, InvalidState, Moving
from falkirk.testing.simulator.edges.stages import EDGE, TwoStages
from falkirk.testing.simulator.explore import attempt, crashes, every_point, failovers, moves, others, pauses, sample
from falkirk.testing.simulator.plan import Doubt, Failover, Plan, Refuse
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

COMMIT = "committer: sends EndTxn(commit)"
makes = pytest.mark.parametrize(
    "make",
    [partial(Toy, recovery=Eager), partial(Toy, recovery=Lazy), partial(TwoStages, second=Lazy)],
    ids=["eager", "lazy", "two stages"],
)


@pytest.mark.slow
@makes
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
def test_a_coordinator_that_moves_at_every_point(make: Callable[[], Toy], late: bool) -> None:
    plans = list(every_point(make, failovers, Plan(lazy_broker=late), each=1))
    assert len(plans) > 40
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@makes
def test_each_way_to_move_at_every_point(make: Callable[[], Toy]) -> None:
    assert [f for plan in every_point(make, failovers, Plan(lazy_broker=True)) if (f := attempt(make, plan))] == []


def test_among_other_faults() -> None:
    failures = []
    for seed in range(80):
        make = partial(Toy, tasks=1 + seed % 3, recovery=(Lazy, Eager)[seed % 2], inputs=3 + seed % 4)
        plan = sample(seed, kinds=(failovers, failovers, crashes, pauses, moves, others))
        failures += [f for f in [attempt(make, plan, seed=seed, rate=0.1)] if f]
    assert failures == []


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("order", [Order.GO, Order.LOSE, Order.DELAY])
def test_the_end_of_a_transaction_has_either_outcome(decided: bool, order: Order) -> None:
    """The client asks until it is answered, or it gives up: then the step is in doubt."""
    asked = Doubt(worker=0, on=COMMIT + ": the coordinator has moved", order=order, late=40)
    plan = Plan((Failover(worker=0, on=COMMIT, at=2, turns=25, decided=decided), asked))
    world = check.run(Toy(tasks=1, inputs=5), plan)
    waits, renewals = (
        [line for line in world.trace if words in line]
        for words in ("EndTxn(commit): the coordinator has moved", "makes a new producer: done")
    )
    assert waits
    assert len(renewals) == (2 if order is Order.GO else 3), "one at the start of each worker, and one after a doubt"
    assert world.fences == []


def test_a_coordinator_says_what_it_decided_before_it_moved() -> None:
    coordinator = Coordinator()
    epoch = coordinator.init("w")
    txn = coordinator.register("w", epoch, [Toy().task(0).steps])
    coordinator.end("w", epoch, commit=True)
    coordinator.away = True
    with pytest.raises(Moving):
        coordinator.end("w", epoch, commit=True)
    coordinator.away = False
    with pytest.raises(InvalidState):
        coordinator.end("w", epoch, commit=False)
    coordinator.marked("w", Toy().task(0).steps)
    coordinator.end("w", epoch, commit=True)
    assert coordinator.register("w", epoch, []) != txn


@pytest.mark.parametrize("topic", ["out", "steps", EDGE])
def test_what_is_refused_for_a_while_is_sent_again(topic: str) -> None:
    """Less than the minute after which a worker stops."""
    make = partial(TwoStages, inputs=5, second=Lazy)
    plan = Plan((Refuse(worker=0, on=COMMIT + ": done", at=2, topic=topic, turns=200),))
    world = check.run(make(), plan)
    assert world.stopped == []


@pytest.mark.parametrize("topic", ["out", EDGE])
def test_a_worker_that_alone_may_not_write_stops_and_another_goes_on(topic: str) -> None:
    toy = TwoStages(inputs=5, second=Lazy)
    plan = Plan((Refuse(worker=0, on=COMMIT + ": done", at=2, topic=topic, only=True),))
    world = check.run(toy, plan, World(toy, plan))
    assert world.stopped == ["w0"]
