"""What take-overs have taken says what the next one takes."""

from __future__ import annotations

import random

import msgspec
import pytest

from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TopicPartition
from falkirk.checkpoint.planning import Cost, Line, Rates, Replay, Seconds
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import Eager, Lazy, LogBounds, Stateless
from falkirk.state.store import EMPTY, Progress

PRESUMED = Cost(0.005, 4e-6)


@pytest.mark.parametrize("seed", range(20))
def test_two_terms_are_told_apart_by_replays_of_different_shape(seed: int) -> None:
    by = random.Random(seed)
    true = Cost(by.uniform(0.001, 0.05), by.uniform(1e-7, 1e-4))
    line = Line()
    for _ in range(12):
        parts, records = by.randint(1, 400), by.randint(1, 300_000)
        line = line.saw(parts, records, true(parts, records) * by.uniform(0.95, 1.05), PRESUMED)
    for _ in range(20):
        parts, records = by.randint(10, 400), by.randint(1, 300_000)
        assert line.seconds(parts, records, PRESUMED) == pytest.approx(true(parts, records), rel=0.25)


@pytest.mark.parametrize("factor", [0.02, 0.5, 3.0, 40.0])
def test_one_replay_predicts_others_of_its_shape_however_wrong_the_presumption_was(factor: float) -> None:
    for parts, records in ((1, 1_000_000), (200, 0), (200, 20_000), (10, 2_000_000)):
        took = factor * PRESUMED(parts, records)
        if took < 0.1:
            continue
        line = Line().saw(parts, records, took, PRESUMED)
        assert line.seconds(parts, records, PRESUMED) == pytest.approx(took, rel=0.05)
        assert line.seconds(2 * parts, 2 * records, PRESUMED) == pytest.approx(2 * took, rel=0.05)


def test_no_term_is_negative() -> None:
    """More records took less time: the steps alone are what counts then."""
    line = Line().saw(100, 1_000, 2.0, PRESUMED).saw(100, 100_000, 1.0, PRESUMED)
    assert min(line.cost(PRESUMED)) >= 0.0
    assert line.seconds(200, 0, PRESUMED) == pytest.approx(2 * line.seconds(100, 0, PRESUMED))


def test_neither_the_quickest_nor_one_that_hung_decides() -> None:
    line = Line()
    for seconds in [0.6, 1.4] * 6:
        line = line.saw(100, 0, seconds, PRESUMED)
    assert line.seconds(100, 0, PRESUMED) == pytest.approx(1.0, rel=0.2)
    assert line.saw(100, 0, 60.0, PRESUMED).seconds(100, 0, PRESUMED) < 2.0


def test_what_is_long_ago_counts_less() -> None:
    line = Line()
    for seconds in [8.0] * 10 + [1.0] * 10:
        line = line.saw(100, 0, seconds, PRESUMED)
    assert line.seconds(100, 0, PRESUMED) == pytest.approx(1.0, rel=0.1)


def test_rates_survive_as_json_and_those_of_workers_add_up() -> None:
    one = Rates().saw(Seconds(0.2, 0.1, 2.0, 3.0), 1_000_000, Replay(30, 600), PRESUMED)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Rates) == one
    both = Rates.together([one, Rates(), Rates().saw(Seconds(0.2, 0.1, 0.0, 9.0), 0, Replay(30, 600), PRESUMED)])
    assert (both.replay.count, both.fetch.count) == (2, 1)
    assert 3.0 < both.expect(0, Replay(30, 600), PRESUMED).replay < 9.0


LOG = TopicPartition("changelog", 0)
STEPS = [
    (Offset(n), StepRecord("s/0", Step(n), Nonce("n"), OwnerId("o"), Millis(0), (), (), "", rows=10 * n))
    for n in range(5)
]
BOUNDS = LogBounds({LOG: Offset(100)}, {LOG: Offset(400)})


def test_each_regime_says_what_it_replays() -> None:
    eager, behind = Eager((LOG,)), Progress(2, 3, 250)
    assert eager.replay(behind, STEPS, BOUNDS) == (1, 150)
    assert eager.replay(EMPTY, STEPS, BOUNDS) == (1, 300)  # from what is left of the log
    assert eager.replay(behind.partly(390, 0), STEPS, BOUNDS) == (1, 10)
    assert eager.replay(Progress(4, 5, 400), STEPS, BOUNDS) == eager.replay(EMPTY, [], BOUNDS) == (0, 0)
    assert Lazy().replay(behind, STEPS, BOUNDS) == (2, 70)
    assert Lazy().replay(Progress(4, 5, 0), STEPS, BOUNDS) == (0, 0)
    assert Stateless().replay(EMPTY, STEPS, BOUNDS) == (0, 0)
