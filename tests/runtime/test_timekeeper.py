"""When a host's clock is believed, with clocks and a broker that the test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.app_topics.clocks import Reading
from falkirk.errors import ClockError, UnreachableError
from falkirk.runtime.host import clock
from falkirk.runtime.host.clock import Timekeeper

BOUND = 60_000


class Setting:
    """This host's wall clock, which the test sets, and a broker that answers when it is told to."""

    def __init__(self) -> None:
        self.ahead = 0
        self.answers = threading.Semaphore(0)
        self.asked = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.ahead * 1_000_000

    def read(self) -> Reading | None:
        self.asked += 1
        self.answers.acquire()
        return Reading(self.ahead - 5, self.ahead + 5)


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    made = Setting()
    monkeypatch.setattr(clock, "time_ns", made.time_ns)
    return made


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_no_step_is_dated_before_the_clocks_were_compared(setting: Setting) -> None:
    keeper = Timekeeper(setting.read, BOUND)
    until(lambda: setting.asked == 1)
    assert keeper.now() is None
    assert keeper.ahead_ms() is None
    setting.answers.release()
    until(lambda: keeper.now() is not None)
    ahead = keeper.ahead_ms()
    assert ahead is not None
    assert abs(ahead) < BOUND
    keeper.close()


def test_after_a_jump_no_step_is_dated_until_the_clocks_were_compared_again(setting: Setting) -> None:
    keeper = Timekeeper(setting.read, BOUND)
    setting.answers.release()
    until(lambda: keeper.now() is not None)
    was = keeper.now()
    assert was is not None

    setting.ahead = 2 * BOUND
    assert keeper.now() is None
    assert keeper.latest() < was + BOUND  # a step that must not wait is dated by a time that was sound
    until(lambda: setting.asked == 2)
    setting.ahead = 0  # somebody has set it right
    setting.answers.release()
    until(lambda: keeper.now() is not None)

    setting.ahead = -2 * BOUND
    assert keeper.now() is None
    setting.answers.release()
    with pytest.raises(ClockError, match="behind the broker's"):
        until(lambda: keeper.now() is not None)
    assert abs(keeper.latest() - was) < BOUND  # tasks are handed over all the same


def test_a_host_that_has_slept_goes_on_if_its_clock_is_the_brokers(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Timekeeper(setting.read, BOUND)
    setting.answers.release()
    until(lambda: keeper.now() is not None)
    slept = time.monotonic_ns() - 10 * BOUND * 1_000_000
    monkeypatch.setattr(clock.time, "monotonic_ns", lambda: slept)  # it stands still while a host sleeps
    assert keeper.now() is None
    setting.answers.release()
    until(lambda: keeper.now() is not None)
    keeper.close()


def test_a_broker_that_does_not_answer_is_asked_again_and_any_other_error_is_raised() -> None:
    answers = [UnreachableError("no broker answers"), None, ZeroDivisionError("a bug")]
    asked = []

    def read() -> None:
        asked.append(1)
        if (answer := answers[len(asked) - 1]) is not None:
            raise answer

    keeper = Timekeeper(read, BOUND)
    until(
        lambda: keeper.now() is not None
    )  # a topic that takes its writers' dates tells nothing: the clock is believed
    assert keeper.ahead_ms() is None
    keeper._wake.set()
    with pytest.raises(ZeroDivisionError):
        until(lambda: keeper.now() is None)
