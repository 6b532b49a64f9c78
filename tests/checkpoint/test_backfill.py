"""What a base asks of those who roll it forward."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.backfill import backfilled
from falkirk.checkpoint.epochs import Abandoned, Completed, Epochs, Opened
from falkirk.checkpoint.ids import Epoch, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.invariants import chain
from falkirk.checkpoint.records import StepRecord, decode, encode
from falkirk.checkpoint.regimes import Eager
from falkirk.checkpoint.regimes.eager import TOMBSTONE_RETENTION
from falkirk.checkpoint.tasks import InvariantError, Owned, Task
from falkirk.errors import StateError
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.meta import decode_progress, encode_progress
from falkirk.state.store import Identity, Progress

DAY = 24 * 3600 * 1000
BASE = 5


class Clock:
    def now(self) -> Millis:
        return Millis(100 * DAY)


def step(number: int, days_ago: int, base: int = BASE) -> tuple[Offset, StepRecord]:
    clock = Millis(Clock().now() - days_ago * DAY)
    record = StepRecord("s/0", Step(number), Nonce("n"), OwnerId("w"), clock, (), (), "", base=Offset(base))
    return Offset(number), record


def owned(progress: Progress) -> Owned:
    task = Task(TaskId("s", 0), TopicPartition("steps", 0), Eager((TopicPartition("changelog", 0),)))
    store = MemoryStore(Identity("app", "s/0", ""), MemoryDisk())
    store.write({}, progress)
    return Owned(task, store=store)


def check_age(owned: Owned, steps: list[tuple[Offset, StepRecord]]) -> None:
    Eager(owned.task.recovery.log_partitions).check_age(Clock(), owned, steps)


def test_a_base_of_long_ago_is_good_as_long_as_nothing_old_is_missed() -> None:
    old = Progress(-1, 0, 0, 0, BASE)
    check_age(owned(old), [])
    check_age(owned(old), [step(0, 3), step(1, 2)])
    with pytest.raises(StateError, match="too old"):
        check_age(owned(old), [step(0, 4), step(1, 0)])
    idle = Progress(7, 8, 9, Clock().now() - 50 * DAY, BASE)
    check_age(owned(idle), [step(7, 50)])
    check_age(owned(idle), [step(7, 50), step(8, 1)])
    with pytest.raises(
        StateError, match="too old"
    ):  # the first that it has missed is deleted: who knows how old that was
        check_age(owned(idle), [step(9, 1)])
    check_age(owned(Progress(7, 8, 9, 0)), [step(9, 1, base=-1)])  # without a base it is rebuilt, not refused
    assert TOMBSTONE_RETENTION == 7 * DAY


def test_every_step_says_what_the_task_began_with() -> None:
    _, record = step(3, 0)
    assert decode(encode(record)) == record
    assert b"base" not in encode(step(3, 0, base=-1)[1])
    with pytest.raises(InvariantError, match="its base"):
        chain([record, step(4, 0, base=-1)[1]])


def test_a_store_keeps_its_base() -> None:
    progress = Progress(1, 2, 3, 4, BASE)
    assert decode_progress(encode_progress(progress), where="") == progress
    assert progress.at(2, 3, 4, 5).base == BASE
    store = owned(progress).opened()
    with pytest.raises(StateError, match="take the state back"):
        store.write({}, Progress(2, 3, 4, 5))


def test_what_the_log_of_a_backfill_says() -> None:
    epochs = Epochs()
    assert backfilled(epochs, "t") is None
    opened = Opened(Epoch(0), Millis(1), (), (), "f", "here 7")
    epochs.admit(Offset(0), opened)
    with pytest.raises(StateError, match="under way"):
        backfilled(epochs, "t")
    epochs.admit(Offset(1), Abandoned(Epoch(0), Millis(2), "asked for"))
    assert backfilled(epochs, "t") is None, "one that was given up is none"
    epochs.admit(Offset(2), Opened(Epoch(1), Millis(3), (), (), "f", stages=("s",)))
    epochs.admit(Offset(3), Completed(Epoch(1), Millis(4), (), 0))
    found = backfilled(epochs, "t")
    assert found is not None
    assert found.base == 2, "bases are named by the opening that counts"
    assert found.made(TaskId("s", 0))
    assert not found.made(TaskId("added-later", 0))
