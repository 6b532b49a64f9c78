"""A read to a mark that gets no further: told of after a while, and given up at the bound that it says."""

from __future__ import annotations

import logging

import pytest

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.transactions import standstills
from falkirk.connectors.kafka.transactions.standstills import GAP, LIMIT, SAY_AFTER, SAY_EVERY, Standstills
from falkirk.errors import ClusterError

PLACE = TopicPartition("steps", 3)


class Clock:
    """Stands for `time`: it moves when it is told to."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def __getattr__(self, name: str) -> object:
        return getattr(standstills_time, name)


standstills_time = standstills.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(standstills, "time", one)
    return one


def note(waits: Standstills, clock: Clock, seconds: float, at: int = 7) -> None:
    """Try for so many seconds, once a second."""
    for _ in range(int(seconds)):
        waits.note(PLACE, Offset(at), Offset(9), "a producer")
        clock.now += 1


@pytest.mark.parametrize(("asked", "bound"), [(20.0, LIMIT), (2 * LIMIT, 2 * LIMIT)])
def test_a_read_is_given_up_after_the_longer_of_two_bounds_and_says_how_long_it_stood(
    clock: Clock, asked: float, bound: float
) -> None:
    waits = Standstills(asked)
    note(waits, clock, bound + 1)
    with pytest.raises(ClusterError) as raised:
        waits.note(PLACE, Offset(7), Offset(9), "a producer")
    assert f"for {bound + 1:.0f} s there has been no way past offset 7, and the partition goes on to 9" in str(
        raised.value
    )
    assert "In the way: a producer" in str(raised.value)
    assert "steps[3]" in str(raised.value)
    waits.note(PLACE, Offset(7), Offset(9), "a producer")  # whoever tries again has all of the time again


def test_a_read_that_gets_on_or_was_not_tried_for_a_while_has_all_of_the_time_again(clock: Clock) -> None:
    waits = Standstills(LIMIT)
    note(waits, clock, LIMIT)
    note(waits, clock, LIMIT, at=8)
    clock.now += GAP + 1
    note(waits, clock, LIMIT, at=8)


def test_a_standstill_is_told_of_after_some_seconds_and_then_now_and_again(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Standstills(LIMIT)
    with caplog.at_level(logging.WARNING, "falkirk"):
        note(waits, clock, SAY_AFTER)
        assert not caplog.records
        note(waits, clock, 1 + SAY_EVERY + 1)
    assert [r.getMessage().partition("(")[2].partition(" s)")[0] for r in caplog.records] == ["5", "35"]
    assert "steps[3]" in caplog.text
    assert "at offset 7 of 9. In the way: a producer" in caplog.text
