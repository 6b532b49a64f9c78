"""Copies of a result partition make progress, however slow they are and whenever they begin."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from falkirk.checkpoint import publishing
from falkirk.checkpoint.ids import Epoch, Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, Unknown, Writes
from falkirk.checkpoint.publishing import FAILURES, Outcome, Part
from falkirk.errors import ClusterError, UserCodeError
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.epochs.copies import PLACE, CopiesWorld, Pace, lacking, sampled
from falkirk.testing.simulator.points import drive

SLICES, VISIBLE = 60, 50


def pair(skip: float, write: float, stagger: float) -> CopiesWorld:
    """Two copies that begin when 50 of 60 slices are visible, which they compute in `skip` seconds."""
    pace = Pace(0, skip / VISIBLE, write)
    return CopiesWorld([pace, pace._replace(start=stagger)], SLICES, VISIBLE)


def alone(pace: Pace, world: CopiesWorld) -> float:
    """How long one of them takes without the others, from its start."""
    return CopiesWorld([pace._replace(start=0, dies=float("inf"))], world.slices, world.visible).run(float("inf")).now


@pytest.mark.parametrize(("skip", "write"), [(1, 8), (1, 30), (6, 0.4), (20, 0.4), (20, 8), (40, 0.4)])
def test_two_copies_take_little_longer_than_one(skip: float, write: float) -> None:
    for stagger in (0, 4.9, 5.1, 10, 15, 19, 30):
        world = pair(skip, write, stagger)
        world.run(limit=stagger + 2 * alone(world.paces[0], world))


def test_copies_of_different_pace_some_of_which_die() -> None:
    for seed in range(40):
        world = sampled(seed)
        slowest = max(alone(pace, world) for pace in world.paces)
        world.run(limit=max(pace.start for pace in world.paces) + 2 * slowest + 30)


@pytest.mark.parametrize(
    ("rule", "skip", "write", "stagger"),
    [
        ("fence-first", 20, 0.4, 10),
        ("fence-first", 20, 0.4, 19),
        ("never-longer", 1, 8, 0),
        ("never-longer", 1, 30, 10),
    ],
)
def test_without_its_rule_two_copies_end_each_other_for_ever(
    rule: str, skip: float, write: float, stagger: float
) -> None:
    with lacking(rule), pytest.raises(Broken, match=r"progress: 5. of 60 slices after 2000 s"):
        pair(skip, write, stagger).run(limit=2000)


def test_a_copy_that_begins_later_fences_once() -> None:
    assert pair(skip=20, write=0.4, stagger=10).run(limit=60).inits <= 2


class Refusing(SimLog):
    """The cluster does not take the second slice."""

    error: Exception

    async def send(self, writes: Writes) -> None:
        if writes.values[0] == b"1":
            await self.abort()
            raise self.error
        await super().send(writes)


class Rows:
    slices = 3

    async def slice(self, number: int) -> list[Writes]:
        return [Writes("results", [0], [None], [str(number).encode()])]


def refused(error: Exception) -> tuple[SimBroker, list[str], publishing.Outcome]:
    broker, paused = SimBroker(), list[str]()
    broker.create("epochs", 2)
    broker.create("results", 1)
    log = Refusing(broker, OwnerId("p0"))
    log.error = error

    async def pause(words: str) -> None:
        paused.append(words)

    work = publishing.publish(log, Part(PLACE, Epoch(3), Offset(0)), Rows(), pause)
    try:
        return broker, paused, drive(work, lambda _: broker.settle())
    except Exception as raised:
        raised.add_note(f"{len(paused)} pauses")
        raise


@pytest.mark.parametrize("kind", [Aborted, Unknown])
def test_a_slice_whose_transaction_fails_again_and_again_ends_the_task_after_longer_and_longer_pauses(
    kind: type[Exception],
) -> None:
    with pytest.raises(ClusterError, match=f"failed {FAILURES + 1} times in a row: not enough replicas") as caught:
        refused(kind("not enough replicas"))
    assert caught.value.where == "epoch 3, result partition 0 of epochs, slice 1"
    assert caught.value.__notes__ == [f"{2**FAILURES - 1} pauses"]


def test_rows_that_the_cluster_refuses_end_the_task_at_once_and_say_where_they_are() -> None:
    with pytest.raises(UserCodeError) as caught:
        refused(UserCodeError("a record without a key", where="topic results"))
    assert caught.value.where == "epoch 3, result partition 0 of epochs, slice 1, topic results"
    assert caught.value.__notes__ == ["0 pauses"]


def test_a_doubtful_outcome_without_a_copy_is_not_waited_for() -> None:
    broker = SimBroker()
    broker.create("epochs", 2)
    broker.create("results", 1)
    paused: list[str] = []

    class Doubtful(SimLog):
        doubts = 1

        async def commit(self) -> Mapping[TopicPartition, Offset]:
            done = await super().commit()
            if self.doubts:
                self.doubts -= 1
                self._forget()
                raise Unknown("a connection was reset")
            return done

    async def pause(words: str) -> None:
        paused.append(words)

    work = publishing.publish(Doubtful(broker, OwnerId("p0")), Part(PLACE, Epoch(0), Offset(0)), Rows(), pause)
    assert drive(work, lambda _: broker.settle()) is Outcome.PUBLISHED
    assert len(paused) == 1
