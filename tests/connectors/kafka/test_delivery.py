"""How long a transaction is waited for."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ports import Unknown, Why
from falkirk.connectors.kafka.transactions.delivery import EVERY, LONGEST, PATIENCE, SMALLER, STUCK, Delivery

TIMEOUT = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def delivery(clock: Clock) -> Delivery:
    return Delivery(TIMEOUT, clock)


def delay(seconds: float) -> Any:
    """A broker says for how long it reads nothing more."""
    return SimpleNamespace(throttle_time=seconds, broker_id=1, broker_name="b:9092")


def write(delivery: Delivery, clock: Clock, left: list[int], every: float) -> Unknown | None:
    """A transaction of as many records as are left at first; looked at now and then, until it is given up."""
    delivery.begin()
    delivery.sent(left[0])
    for n in left:
        if given_up := delivery.given_up(n):
            return given_up
        clock.now += every
    return None


def test_as_long_as_records_are_acknowledged_it_is_waited_for(delivery: Delivery, clock: Clock) -> None:
    assert write(delivery, clock, [4, 3, 2, 1, 0], every=PATIENCE * 0.7) is None
    assert clock.now - 1000 > 3 * PATIENCE


def test_where_nothing_is_it_is_not(delivery: Delivery, clock: Clock) -> None:
    given_up = write(delivery, clock, [4] * 100, every=1)
    assert given_up is not None
    assert given_up.cause.why is Why.SLOW
    assert PATIENCE < clock.now - 1000 < PATIENCE + 3


def test_a_call_that_hangs_though_all_is_acknowledged_is_not_the_fault_of_how_much_is_written(
    delivery: Delivery, clock: Clock
) -> None:
    delivery.begin()
    delivery.sent(3)
    assert delivery.given_up(0, STUCK) is None
    clock.now += STUCK + 0.1
    given_up = delivery.given_up(0, STUCK)
    assert given_up is not None
    assert given_up.cause.why is Why.TRANSIENT


def test_a_delay_that_the_broker_announced_is_waited_for_and_said(
    delivery: Delivery, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "falkirk"):
        delivery.begin()
        delivery.sent(2)
        delivery.throttled(delay(25.0))
        clock.now += 24
        assert "broker 1 (b:9092) delays writes" in delivery.waits()
        assert delivery.given_up(1) is None
        clock.now += PATIENCE + 2
        assert delivery.given_up(0) is None
    assert "over its quota: by 25.0 s" in caplog.text
    assert "the end of a transaction of 2 records to be acknowledged, for 41 s" in delivery.waits()
    delivery.committed()
    assert not delivery.waits()


def test_one_that_lasts_longer_than_the_transaction_may_is_not(delivery: Delivery, clock: Clock) -> None:
    delivery.begin()
    delivery.sent(2)
    delivery.throttled(delay(70.0))
    clock.now += 0.25
    given_up = delivery.given_up(1)
    assert given_up is not None
    assert given_up.cause.why is Why.SLOW
    assert "delays writes" in given_up.cause.what


def test_what_cannot_be_done_in_time_at_its_pace_is_given_up_early(delivery: Delivery, clock: Clock) -> None:
    given_up = write(delivery, clock, list(range(1000, 0, -1)), every=1)
    assert given_up is not None
    assert given_up.cause.why is Why.SLOW
    assert clock.now - 1000 < 15


def test_when_fewer_records_do_not_help_there_is_more_time_up_to_what_brokers_allow(
    delivery: Delivery, clock: Clock
) -> None:
    lasted, timeouts = [], []
    for _ in range(12):
        began = clock.now
        assert write(delivery, clock, [1] * 10_000, every=0.5) is not None
        lasted.append(clock.now - began)
        timeouts.append(delivery.timeout)
    assert timeouts[: SMALLER + 1] == [TIMEOUT] * SMALLER + [2 * TIMEOUT]
    assert timeouts[-1] == LONGEST
    assert lasted == sorted(lasted)
    assert lasted[-1] > 10 * lasted[0]


def grown(delivery: Delivery, clock: Clock) -> None:
    """Transactions are given up until the next one has twice the time."""
    for _ in range(SMALLER + 1):
        assert write(delivery, clock, [1] * 10_000, every=0.5) is not None
    assert delivery.timeout == 2 * TIMEOUT


@pytest.mark.parametrize(
    ("left", "every"),
    [([3, 2, 1, 0], 1.5 * PATIENCE), (list(range(60, -1, -1)), 1.0)],
    ids=["long silences", "long in all"],
)
def test_as_long_as_transactions_need_more_time_they_have_it(
    delivery: Delivery, clock: Clock, left: list[int], every: float
) -> None:
    """Else each of them would be given up, and again, before it is written."""
    grown(delivery, clock)
    for _ in range(3):
        assert write(delivery, clock, left, every) is None
        delivery.committed()
        assert delivery.timeout == 2 * TIMEOUT
    assert write(delivery, clock, [3, 2, 1, 0], every=PATIENCE / 2) is None
    delivery.committed()
    assert delivery.timeout == TIMEOUT


def test_a_delay_that_was_announced_is_no_silence(delivery: Delivery, clock: Clock) -> None:
    grown(delivery, clock)
    delivery.begin()
    delivery.sent(2)
    assert delivery.given_up(1) is None
    delivery.throttled(delay(2 * PATIENCE))
    clock.now += 2.5 * PATIENCE
    assert delivery.given_up(0) is None
    delivery.committed()
    assert delivery.timeout == TIMEOUT


def test_what_arrives_at_one_blow_is_not_taken_for_slower_than_it_is(delivery: Delivery, clock: Clock) -> None:
    """Three requests of ten seconds each: the second is not late before it has arrived."""
    delivery.begin()
    delivery.sent(300)
    for left in (300, 200, 100, 0):
        for _ in range(40):
            assert delivery.given_up(left) is None
            clock.now += 0.25


def test_a_broker_that_does_not_allow_that_gets_the_first_again(delivery: Delivery, clock: Clock) -> None:
    for _ in range(SMALLER + 1):
        write(delivery, clock, [1] * 10_000, every=0.5)
    assert delivery.shorten()
    assert delivery.timeout == TIMEOUT
    assert not delivery.shorten()


def test_a_slow_transaction_is_spoken_of_and_not_all_the_time(
    delivery: Delivery, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "falkirk"):
        for _ in range(30):
            assert write(delivery, clock, list(range(40, -1, -1)), every=0.5) is None
    assert "of 40 records to be acknowledged, for" in caplog.text
    assert 0.8 * 30 * 20 / EVERY <= len(caplog.records) <= 30 * 21 / EVERY
