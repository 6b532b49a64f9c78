"""Workers die, sleep and doubt, and those that take their tasks over roll back selectively. In the end it is as if nothing
had failed."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice

import pytest
from tests.simulator.conftest import Some, any_of, failures, mixed_run

from falkirk.checkpoint.regimes import lazy
from falkirk.testing.simulator import check
from falkirk.testing.simulator.explore import (
    Failure,
    attempt,
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
from falkirk.testing.simulator.flows.windows import Windowed
from falkirk.testing.simulator.plan import FOREVER, Crash, Plan
from falkirk.testing.simulator.world import World

pytestmark = pytest.mark.usefixtures("silent")

COMMITTED = "committer: sends EndTxn(commit): done"
KINDS = (crashes, pauses, moves, doubts, outages, lost_disks)
make = partial(Windowed, inputs=24)


@pytest.fixture
def rolled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each recovery, how many steps need not run again."""
    found: list[int] = []
    roll_back = lazy.roll_back

    async def noted(*given) -> bool:  # type: ignore[no-untyped-def]
        done = await roll_back(*given)
        found.append(given[1].steps_saved if done else -1)
        return done

    monkeypatch.setattr(lazy, "roll_back", noted)
    return found


def test_a_disk_is_lost_and_what_was_complete_is_not_run_again(rolled: list[int]) -> None:
    toy, plan = make(), Plan((Crash(worker=0, on=COMMITTED, at=9, lost=True, back_after=300),))
    check.run(toy, plan, World(toy, plan))
    assert max(rolled) > 1
    assert min(rolled) == 0


def test_a_worker_dies_on_the_way_and_the_next_one_goes_on_there(rolled: list[int]) -> None:
    plan = Plan(
        (
            Crash(worker=0, on=COMMITTED, at=9, lost=True, back_after=300),
            Crash(worker=1, on="recovery of 0: runs step 8 again", keep=FOREVER, back_after=12),
        )
    )
    toy = make()
    world = check.run(toy, plan, World(toy, plan))
    found = [re.search(r"recovery of 0: runs step (\d+) again$", line) for line in map(str, world.trace)]
    assert [int(match[1]) for match in found if match] == [5, 6, 7, 8, 8, 9], "it died before the first 8"
    assert len([n for n in rolled if n > 0]) == 1


def test_a_fault_while_windows_are_counted() -> None:
    """At some points; the long test has them all."""
    plans = list(islice(every_point(make, any_of(KINDS), Plan(), each=1), 2, None, 12))
    assert len(plans) > 7
    assert [f for plan in plans if (f := attempt(make, plan))] == []


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["prompt broker", "late broker"])
def test_a_fault_at_every_point(late: bool, some: Some) -> None:
    plans = some(every_point(make, any_of(KINDS), Plan(lazy_broker=late), each=1))
    assert len(plans) > 20
    assert [f for plan in plans if (f := attempt(make, plan))] == []


def mixed(seed: int) -> Failure | None:
    """A sampled run."""
    sampled = partial(Windowed, tasks=1 + seed % 2, inputs=16 + seed % 9)
    return mixed_run(sampled, seed, points=200, kinds=(*KINDS, naps, others))


def test_several_faults_while_windows_are_counted() -> None:
    assert failures(mixed, range(6)) == []


@pytest.mark.slow
def test_several_faults_at_length(some: Some) -> None:
    assert failures(mixed, some(range(6, 130))) == []
