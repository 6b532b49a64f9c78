"""Transactions that abort one after another: which of them count against a step, and what is said."""

from __future__ import annotations

import logging

import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.checkpoint.ports import Cause, Why, Writes
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.tasks import ClosedStep, Owned, Task
from falkirk.checkpoint.worker.aborts import EVERY, REFUSALS, Aborts
from falkirk.errors import ClusterError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def step(partition: int, why: Why, what: str = "no") -> ClosedStep:
    place = InputPartition("", "bids", "id", partition)
    owned = Owned(Task(TaskId("stats", partition), TopicPartition("steps", partition), Lazy()))
    division = (Range(place, Offset(3), Offset(9)),)
    record = StepRecord(
        str(owned.task.id), Step(7), Nonce("n"), OwnerId("w"), Millis(0), division, (), "", 6, 0, Offset(0), 0, 0
    )
    return ClosedStep(
        owned, record, [Writes("out", [0], [b"k"], [b"v"])], Overlay(EmptyReader()), failed=Cause(why, what)
    )


def attempt(aborts: Aborts, clock: Clock, *steps: ClosedStep) -> float:
    """An attempt fails; how long the next waits."""
    aborts.aborted(steps)
    began = clock.now
    while aborts.waiting():
        clock.now += 0.01
    return clock.now - began


def test_a_step_that_is_refused_again_and_again_stops_the_app_with_what_and_where() -> None:
    clock = Clock()
    aborts = Aborts(clock)
    waits = [attempt(aborts, clock, step(0, Why.REFUSED)) for _ in range(REFUSALS - 1)]
    assert waits == sorted(waits)
    assert sum(waits) > 55
    with pytest.raises(
        ClusterError, match=rf"rejected a transaction {REFUSALS} times in a row, .*: the broker's words"
    ) as e:
        aborts.aborted([step(0, Why.REFUSED, "the broker's words")])
    assert aborts.waits().startswith(f"transactions have failed {REFUSALS} times in a row, for ")
    for word in ("task stats/0, step 7", "bids[0]", "writes to out"):
        assert word in e.value.where


@pytest.mark.parametrize("why", [Why.TRANSIENT, Why.SLOW])
def test_what_is_not_said_against_the_records_never_stops_it_and_is_heard_of(
    why: Why, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    aborts = Aborts(clock)
    with caplog.at_level(logging.WARNING, "falkirk"):
        waits = [attempt(aborts, clock, step(0, why)) for _ in range(1000)]
    assert waits[0] == 0
    assert max(waits) <= 1.1
    assert len(caplog.records) >= 900 / EVERY
    assert "1000 times in a row" in caplog.text or "times in a row, for" in caplog.text


def test_a_rebalance_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    aborts = Aborts(clock)
    with caplog.at_level(logging.WARNING, "falkirk"):
        for _ in range(5):
            attempt(aborts, clock, step(0, Why.TRANSIENT))
            attempt(aborts, clock, step(0, Why.TRANSIENT))
            aborts.committed([step(0, Why.TRANSIENT)])
    assert not caplog.records


def test_a_refused_task_is_counted_though_others_commit_between() -> None:
    clock = Clock()
    aborts = Aborts(clock)
    bad, good = step(0, Why.REFUSED), step(1, Why.REFUSED)
    for _ in range(REFUSALS - 1):
        attempt(aborts, clock, bad, good)
        aborts.committed([good])
    with pytest.raises(ClusterError) as error:
        aborts.aborted([bad, good])
    assert "stats/0" in error.value.where
    assert "stats/1" not in error.value.where


def test_a_commit_begins_the_count_again() -> None:
    clock = Clock()
    aborts = Aborts(clock)
    for _ in range(3 * REFUSALS):
        attempt(aborts, clock, step(0, Why.REFUSED))
        aborts.committed([step(0, Why.REFUSED)])
        assert not aborts.waits()


def test_names_that_fail_wait_longer_each_time_and_stop_the_app_if_they_are_refused() -> None:
    clock = Clock()
    aborts = Aborts(clock)
    owned = step(0, Why.TRANSIENT).owned
    owned.failed = Cause(Why.TRANSIENT, "the group goes on")
    for wait in (False, True, True):
        aborts.named([owned])
        assert aborts.waiting() is wait
        clock.now += 2
    owned.failed = None
    aborts.named([owned])
    assert (aborts.waiting(), aborts.waits()) == (False, "")
    owned.failed = Cause(Why.REFUSED, "the broker's words")
    for _ in range(REFUSALS - 1):
        aborts.named([owned])
    with pytest.raises(ClusterError, match="the broker's words") as e:
        aborts.named([owned])
    assert "the owner of task stats/0" in e.value.where
