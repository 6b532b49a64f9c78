"""Tasks that are taken over together, and a worker that renews its producer meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.ports import LogRecord, Ranges, Read
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord, encode
from falkirk.checkpoint.regimes import Eager
from falkirk.checkpoint.takeover import admit, fence, recover
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.checkpoint.transaction import renew
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Changes, GoOn, Identity, Store

ME, OTHER, DEAD = OwnerId("w0"), OwnerId("w1"), OwnerId("w2")


class History:
    """The log of tasks that have done one step, were named by a worker that died, and are named again. It can be added to."""

    owner = ME

    def __init__(self, tasks: Sequence[Owned]) -> None:
        self.tasks, self.fenced = tasks, list[OwnerId]()
        self.added: dict[int, list[TaskRecord]] = {}

    def records(self, p: TopicPartition) -> list[LogRecord]:
        owned = self.tasks[p.partition]
        name, before = str(owned.task.id), Nonce("before")
        history: list[TaskRecord] = [
            StepRecord(name, Step(0), before, ME, Millis(1), (), (), ""),
            Released(before),
            Named(Nonce("dead"), DEAD),
            Named(owned.nonce, ME),
            *self.added.get(p.partition, []),
        ]
        return [LogRecord(Offset(i), None, encode(r)) for i, r in enumerate(history)]

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return dict.fromkeys(partitions, Offset(0))

    async def mark(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {p: Offset(len(self.records(p)) if p.topic == "steps" else 1) for p in partitions}

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        return {p: Read(self.records(p)[start:end], end) for p, (start, end) in ranges.items()}

    read_uncommitted = read_committed

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        return {b"k": b"v"}, end

    async def fence(self, owner: OwnerId) -> None:
        self.fenced.append(owner)

    async def renew(self) -> None:
        pass


class Stores:
    async def open(self, task: TaskId, go_on: GoOn) -> Store:
        return MemoryStore(Identity("app", str(task), ""))

    async def backfilled(self) -> None:
        return None


class Clock:
    def now(self) -> Millis:
        return Millis(2)


def named(count: int) -> list[Owned]:
    """Tasks that have been named."""
    places = [
        (TaskId("s", i), TopicPartition("steps", i), Eager((TopicPartition("changelog", i),))) for i in range(count)
    ]
    return [Owned(Task(*place), Phase.FENCING, Nonce(f"n{i}")) for i, place in enumerate(places)]


def recovered(history: History, owned: Owned) -> Owned:
    driver.run(recover(history, Stores(), None, Clock(), owned))  # type: ignore[arg-type]
    return owned


def admitted(history: History, owned: Owned) -> bool:
    driver.run(admit(history, owned))  # type: ignore[arg-type]
    return owned.phase is Phase.RUNNING


def test_a_task_whose_companion_is_revoked_meanwhile_is_rolled_forward_all_the_same() -> None:
    tasks = named(3)
    history = History(tasks)
    tasks[1].revoked = True
    assert [admitted(history, recovered(history, owned)) for owned in tasks] == [True, False, True]
    for owned in (tasks[0], tasks[2]):
        assert owned.last is not None
        assert owned.last.step == owned.opened().progress.step == 0
    assert tasks[1].phase is Phase.IDLE
    assert tasks[1].store is None


def test_nobody_is_fenced_for_a_task_that_was_taken_away() -> None:
    """Its next owner may be the one whom it would fence."""
    tasks = named(2)
    history = History(tasks)
    tasks[0].revoked = True
    driver.run(fence(history, tasks))  # type: ignore[arg-type]
    assert history.fenced == [DEAD]  # for the other one
    tasks[1].revoked = True
    driver.run(fence(history, tasks))  # type: ignore[arg-type]
    assert history.fenced == [DEAD]


@pytest.mark.parametrize("another", [False, True], ids=["nobody else is named", "another is named"])
@pytest.mark.parametrize("when", ["before it is read", "when it is rolled"])
def test_a_take_over_goes_on_when_its_worker_renews_its_producer(when: str, another: bool) -> None:
    """Unless another was named: who fenced the producer before. The new one is not fenced."""
    [owned] = tasks = named(1)
    history = History(tasks)
    if when == "when it is rolled":
        recovered(history, owned)
    if another:
        history.added[0] = [Named(Nonce("later"), OTHER)]
    driver.run(renew(history, tasks))  # type: ignore[arg-type]
    if when == "before it is read":
        recovered(history, owned)
    assert admitted(history, owned) is not another
    assert owned.phase is not Phase.RUNNING or not another


def test_a_take_over_that_is_given_up_while_its_names_are_read_again_does_not_run() -> None:
    [owned] = tasks = named(1)
    history = History(tasks)
    recovered(history, owned)
    driver.run(renew(history, tasks))  # type: ignore[arg-type]
    owned.revoked = True
    assert not admitted(history, owned)
    assert owned.phase is Phase.ROLLED
