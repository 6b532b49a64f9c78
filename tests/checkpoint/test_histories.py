"""A store that does not belong to its steps topic is refused: the topic was truncated, or has other steps since."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.checkpoint import takeover
from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.checkpoint.transaction import record_of, transact
from falkirk.errors import StateError
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity, Progress
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.points import drive

TASK = Task(TaskId("s", 0), TopicPartition("steps", 0), Lazy())
LAST = 12


class Stores:
    """The one store there is."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def open(self, *_: object) -> MemoryStore:
        return self.store

    async def newer(self, *_: object) -> MemoryStore:
        return self.store

    async def backfilled(self) -> None:
        return None


class Replayer:
    """Runs steps that write nothing."""

    corrects = False

    async def replay(self, *_: object) -> list[Any]:
        return []


class Now:
    """It is always now."""

    def now(self) -> Millis:
        return Millis(LAST)


@pytest.fixture
def world() -> tuple[SimBroker, SimLog]:
    """Steps 0 to LAST, in a log."""
    broker = SimBroker()
    broker.create("steps", 1)
    log = SimLog(broker, OwnerId("w"))
    drive(log.renew())
    for n in range(LAST + 1):
        record = StepRecord("s/0", Step(n), Nonce("n"), OwnerId("v"), Millis(n), (), (), digest([]))
        writes = [record_of(Owned(TASK), record)]
        drive(transact(log, writes, {TASK.steps: Offset(0)}), lambda _: broker.settle())
    return broker, log


def take_over(world: tuple[SimBroker, SimLog], progress: Progress) -> Owned:
    """With a store that has come so far."""
    broker, log = world
    store = MemoryStore(Identity("a", "s/0", ""))
    store.write({b"k": b"v"}, progress)
    owned = Owned(TASK)

    async def work() -> None:
        await takeover.name(log, [owned], [], lambda: Nonce("m"))
        await takeover.fence(log, [owned])
        await takeover.recover(log, Stores(store), Replayer(), Now(), owned)  # type: ignore[arg-type]

    drive(work(), lambda _: broker.settle())
    return owned


def offset(world: tuple[SimBroker, SimLog], step: int) -> int:
    """Of a step's record."""
    return [e.offset for e in world[0].decided(TASK.steps)][step]


def test_a_store_goes_on_from_its_own_step(world: tuple[SimBroker, SimLog]) -> None:
    owned = take_over(world, Progress(4, offset(world, 4) + 1, 0, 4))
    assert (owned.phase, owned.opened().progress.step) == (Phase.ROLLED, LAST)


@pytest.mark.parametrize("beyond", [2, 200])
def test_a_store_that_was_further_than_its_topic_is_refused(world: tuple[SimBroker, SimLog], beyond: int) -> None:
    """Not taken over again and again, until the topic has grown as long."""
    with pytest.raises(StateError, match=r"known up to offset|is at step"):
        take_over(world, Progress(98, offset(world, LAST) + beyond, 0, 98))


@pytest.mark.parametrize("step", [4, 7])
def test_a_store_whose_step_is_elsewhere_now_is_refused(world: tuple[SimBroker, SimLog], step: int) -> None:
    """Steps were lost, and others were written in their place: it has state that they do not have."""
    with pytest.raises(StateError, match=f"is at step {step}, found at offset .* is now step 6"):
        take_over(world, Progress(step, offset(world, 6) + 1, 0, step))
