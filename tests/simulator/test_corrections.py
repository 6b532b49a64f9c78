"""A crash between two versions of the code under the lazy regime, and another one at every point of what follows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.simulator.conftest import Some

from falkirk.checkpoint.regimes import Lazy
from falkirk.errors import DivergenceError
from falkirk.testing.simulator import check
from falkirk.testing.simulator.explore import Kinds, attempt, crashes, every_point, moves, others, pauses, sample
from falkirk.testing.simulator.plan import FOREVER, Change, Fault, Plan
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

COMMITTED = "committer: sends EndTxn(commit): done"
lazy = partial(Toy, tasks=1, recovery=Lazy, inputs=9)
CHANGED = Change(worker=0, on=COMMITTED, at=5)


def changes(worker: int, at: int) -> Iterator[Fault]:
    """Other code once more."""
    for keep in (0, 1, FOREVER):
        for back_after in (12, 100):
            yield Change(worker=worker, at=at, keep=keep, back_after=back_after)


def afterwards(kinds: Kinds, base: Plan, commits: int, worker: int = 0) -> list[Plan]:
    """A fault at every point that the worker comes to after so many commits."""
    world = check.run(lazy(), base, World(lazy(), base))
    places = world.hosts[worker].places
    begins = [i for i, place in enumerate(places) if COMMITTED in place][commits - 1] if commits else -1
    plans = list(every_point(lazy, kinds, base, worker=worker, each=1))
    return [plan for plan in plans if plan.faults[-1].at > begins]


def test_without_the_option_the_task_is_stopped_and_its_owner_is_told_of_it() -> None:
    with pytest.raises(DivergenceError, match="--on-divergence correct"):
        check.run(lazy(), Plan((Change(worker=0, on=COMMITTED, at=5, corrects=False),)))


def test_what_the_new_code_runs_otherwise_is_corrected_before_any_new_step() -> None:
    world = check.run(lazy(), Plan((CHANGED,)))
    found = check.steps(world.broker, world.toy, 0)
    assert [(r.step, r.corrects) for r in found if r.corrects >= 0] == [(6, 4)]
    assert [r.layout for r in found] == [0] * 6 + [1] * (len(found) - 6)


@pytest.mark.parametrize("kinds", [crashes, pauses, changes])
def test_a_fault_at_every_point_of_a_correction(kinds: Kinds) -> None:
    plans = afterwards(kinds, Plan((CHANGED,)), 6)
    assert len(plans) > 20
    assert [f for plan in plans if (f := attempt(lazy, plan))] == []


def test_a_replay_without_the_option_passes_once_the_correction_is_committed() -> None:
    def stops(worker: int, at: int) -> Iterator[Fault]:
        yield Change(worker=worker, at=at, new=False, corrects=False)

    plans = afterwards(stops, Plan((CHANGED,)), 7)
    assert len(plans) > 20
    assert [f for plan in plans if (f := attempt(lazy, plan))] == []


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("kinds", [crashes, pauses, others, moves, changes])
def test_a_fault_at_every_point_of_any_worker(kinds: Kinds, worker: int, late: bool, some: Some) -> None:
    base = Plan((Change(worker=0, on=COMMITTED, at=5, back_after=150),), lazy_broker=late)
    plans = some(every_point(lazy, kinds, base, worker))
    assert [f for plan in plans if (f := attempt(lazy, plan))] == []


def sampled(seed: int) -> object:
    """Several faults, changes of the code among them."""
    make = partial(Toy, tasks=1 + seed % 2, recovery=Lazy, inputs=6 + seed % 4)
    return attempt(
        make, sample(seed, kinds=(changes, changes, crashes, pauses, others)), seed=seed, rate=seed % 3 * 0.1
    )


def test_several_changes_among_several_faults() -> None:
    assert [broken for seed in range(60) if (broken := sampled(seed))] == []


@pytest.mark.slow
def test_several_changes_among_several_faults_at_length(some: Some) -> None:
    assert [broken for seed in some(range(60, 1_000)) if (broken := sampled(seed))] == []
