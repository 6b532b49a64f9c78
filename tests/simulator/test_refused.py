"""Records that the brokers refuse forever end the workers; they are not sent again and again."""

from __future__ import annotations

import itertools

import pytest

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.checkpoint.regimes.recovery import Recovery
from falkirk.checkpoint.worker.aborts import Aborts
from falkirk.testing.simulator import check
from falkirk.testing.simulator.plan import Plan, Refuse
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.world import World

TURNS = 6_000
"""Each worker tries six times, the last time half a minute after the one before; then its task's next owner does."""


def refused(recovery: type[Recovery]) -> tuple[World, bool]:
    """Two workers, and a topic that is closed to them from the third step on. Returns whether both have stopped."""
    toy = Toy(tasks=1, recovery=recovery, inputs=6)
    world = World(toy, Plan((Refuse(worker=0, on="committer: sends EndTxn(commit): done", at=2, topic="out"),)))
    try:
        return world, world.run_until(world.deserted, TURNS)
    finally:
        world.close()


@pytest.mark.parametrize("recovery", [Lazy, Eager])
def test_each_worker_that_takes_the_task_over_stops(recovery: type[Recovery]) -> None:
    world, over = refused(recovery)
    assert over
    assert world.stopped == ["w0", "w1"]
    check.chain(world.broker, world.toy, 0)
    check.atomic(world.broker, world.toy)


def test_without_a_bound_they_never_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.checkpoint.worker.aborts.REFUSALS", 10**9)
    world, over = refused(Lazy)
    assert not over
    assert not world.stopped


def test_the_wait_between_attempts_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a broker in trouble would get as many requests as a worker can make."""
    attempts: list[int] = []
    aborted = Aborts.aborted

    def noted(self: Aborts, *steps: object) -> None:
        attempts.append(round(self.clock()))
        aborted(self, *steps)  # type: ignore[arg-type]

    monkeypatch.setattr(Aborts, "aborted", noted)
    refused(Lazy)
    first = attempts[:6]
    waits = [b - a for a, b in itertools.pairwise(first)]
    assert waits == sorted(waits)
    assert waits[-1] >= 30
