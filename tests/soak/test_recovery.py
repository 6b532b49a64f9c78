"""What counts as recovered: every task has put out a step that closed after the harm."""

from __future__ import annotations

from tests.soak.check.task import Settled
from tests.soak.recovery import Recoveries
from tests.soak.schedule import MIX, SEVERAL, Harm, schedule


def step(task: str, clock: float, arrival: float, nonce: str = "a", records: int = 1) -> Settled:
    return Settled(task, 0, int(clock * 1000), nonce, 1, records, arrival)


def test_a_harm_is_healed_when_every_task_has_put_out_a_later_step() -> None:
    seen = Recoveries()
    seen.see([step("t/0", 1.0, 1.1), step("t/1", 1.0, 1.1)])
    seen.hurt("worker", 2.0)
    seen.see([step("t/0", 1.9, 2.2), step("t/1", 2.1, 2.3)])  # t/0's step closed before the harm
    assert [w.missing for w in seen.open] == [["t/0"]]
    seen.see([step("t/0", 2.4, 2.5, "b")])
    assert not seen.open
    assert seen.summary() == {"worker": {"count": 1, "median": 0.5, "p90": 0.5, "max": 0.5}}


def test_a_step_without_output_heals_nothing() -> None:
    seen = Recoveries()
    seen.see([step("t/0", 1.0, 1.1)])
    seen.hurt("broker", 2.0)
    seen.see([step("t/0", 2.1, 2.2, records=0)])
    assert seen.open


def test_a_killed_child_that_owned_nothing_is_a_spare() -> None:
    seen = Recoveries()
    seen.see([step("t/0", 1.0, 1.1)])
    seen.hurt("worker", 2.0)
    seen.see([step("t/0", 2.1, 2.2)])
    assert list(seen.summary()) == ["spare"]


def test_harms_that_overlap_are_counted_apart() -> None:
    seen = Recoveries()
    seen.see([step("t/0", 1.0, 1.1)])
    seen.hurt("worker", 2.0)
    seen.hurt("broker", 2.5)
    seen.see([step("t/0", 3.1, 3.5, "b")])
    assert seen.summary() == {"several at once": {"count": 2, "median": 1.25, "p90": 1.5, "max": 1.5}}


def test_the_schedule_is_the_seed_s() -> None:
    assert schedule(100, 1) == schedule(100, 1) != schedule(100, 2)
    for mix in (MIX, SEVERAL):
        for kills in (16, 100, 1000):
            faults = schedule(kills, 3, mix)
            assert sum(f.kills for f in faults) == kills
            assert {f.harm for f in faults} == set(mix)
    assert set(SEVERAL) == set(Harm)
