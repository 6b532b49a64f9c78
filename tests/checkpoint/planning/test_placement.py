"""Versions placed for an objective: whenever the host dies, the recovery keeps to it, if any placement can."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from falkirk.checkpoint.planning import Cost, Objective, Pace, Rates, Replay, Seconds
from falkirk.checkpoint.planning.placement import LONGEST, PAUSE

A_STEP = Cost(0.02, 1e-6)
TICK = 0.05
RATES = Rates().saw(Seconds(0.2, 0.1, 1.0, 4.0), 50_000_000, Replay(200, 0), A_STEP)


def versions(objective: Objective, pace: Pace, lead: float, size: int, seconds: float) -> list[float]:
    """When versions are begun, as maintenance does: a look at a time, the next one only when the last one is copied."""
    begun = [0.0]
    for tick in range(int(seconds / TICK)):
        now = tick * TICK
        since = now - begun[-1]
        behind = pace.after(Replay(), since)
        if since >= lead and objective.due(RATES, behind, pace, lead, size, since):
            begun.append(now)
    return begun


def worst(begun: list[float], pace: Pace, lead: float, size: int) -> float:
    """The longest recovery, whenever the host dies: from the newest version that is copied by then."""
    longest = max(after + lead - before for before, after in pairwise(begun))
    return RATES.expect(size, pace.after(Replay(), longest), A_STEP).total


@pytest.mark.parametrize("seed", range(30))
def test_an_objective_that_can_be_met_is_met_whenever_the_host_dies(seed: int) -> None:
    by = random.Random(seed)
    pace = Pace(by.uniform(1, 40), by.uniform(0, 100_000))
    lead, size = by.uniform(0.05, 3.0), by.randint(0, 100_000_000)
    least = Objective(1.0, A_STEP).least(RATES, pace, lead, size)
    objective = Objective(least * by.uniform(1.2, 4.0), A_STEP)
    begun = versions(objective, pace, lead, size, 90.0)
    a_tick = RATES.expect(0, pace.after(Replay(1, 1), 2 * TICK), A_STEP).replay
    assert worst(begun, pace, lead, size) <= objective.seconds + a_tick


def test_versions_are_no_more_frequent_than_the_objective_needs() -> None:
    pace = Pace(10.0)
    tight, loose = (versions(Objective(s, A_STEP), pace, 0.2, 1_000, 60.0) for s in (1.5, 4.0))
    assert 3 < len(loose) < len(tight) / 2
    idle = versions(Objective(4.0, A_STEP), Pace(), 0.2, 1_000, 3 * LONGEST + 1)
    assert [after - before for before, after in pairwise(idle)] == pytest.approx([LONGEST] * 3, abs=2 * TICK)


def test_an_objective_that_none_can_meet_costs_no_version_more_than_its_replay_needs() -> None:
    """Fetching the state takes longer than the objective: more versions would not help."""
    pace, size = Pace(10.0), 1_000_000_000
    objective = Objective(2.0, A_STEP)
    assert objective.least(RATES, pace, 0.2, size) > 5 * objective.seconds
    begun = versions(objective, pace, 0.2, size, 60.0)
    assert 5.0 < 60.0 / len(begun) < 12.0


def test_versions_keep_a_pause() -> None:
    begun = versions(Objective(0.1, A_STEP), Pace(1_000.0), 0.0, 0, 20.0)
    assert min(after - before for before, after in pairwise(begun)) >= PAUSE - TICK
