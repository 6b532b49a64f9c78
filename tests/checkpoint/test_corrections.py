"""Which steps a correction stands for, and which store is of use beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from falkirk.checkpoint import driver
from falkirk.checkpoint.correction import covered, units
from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.invariants import chain
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.regimes import Lazy, LogBounds, Means
from falkirk.checkpoint.regimes.lazy import reopen
from falkirk.checkpoint.tasks import InvariantError, Owned, Task
from falkirk.errors import StateError
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity, Progress

BIDS = InputPartition("", "bids", "id", 0)
TASK = Task(TaskId("s", 0), TopicPartition("steps", 0), Lazy())


def step(number: int, corrects: int = -1, reads: int = 0) -> StepRecord:
    division = (Range(BIDS, Offset(0), Offset(reads)),)
    return StepRecord(
        "s/0", Step(number), Nonce("n"), OwnerId("w"), Millis(0), division, (), "", corrects=Step(corrects)
    )


def recorded(*corrections: tuple[int, int]) -> list[tuple[Offset, StepRecord]]:
    """Steps 0 to 9, some of which correct from another step on."""
    first = dict(corrections)
    return [(Offset(2 * n), step(n, first.get(n, -1))) for n in range(10)]


def store(at: int) -> MemoryStore:
    made = MemoryStore(Identity("app", "s/0", "f"))
    if at >= 0:
        made.write({}, Progress(at, 2 * at + 1, 0))
    return made


@pytest.mark.parametrize(
    ("corrections", "found"),
    [
        ([], [[n] for n in range(10)]),
        ([(6, 3)], [[0], [1], [2], [3, 4, 5, 6], [7], [8], [9]]),
        ([(3, 2), (6, 5)], [[0], [1], [2, 3], [4], [5, 6], [7], [8], [9]]),
        ([(3, 2), (6, 2), (9, 8)], [[0], [1], [2, 3, 4, 5, 6], [7], [8, 9]]),
        ([(3, 2), (6, 5), (9, 1)], [[0], [*range(1, 10)]]),
    ],
)
def test_a_correction_is_compared_with_all_that_it_corrects(
    corrections: list[tuple[int, int]], found: list[list[int]]
) -> None:
    assert [[record.step for _, record in unit] for unit in units(recorded(*corrections))] == found


@pytest.mark.parametrize(("at", "below"), [(2, None), (3, 3), (5, 3), (6, None), (7, 7), (8, 7), (9, None)])
def test_a_store_among_corrected_steps_is_of_no_use(at: int, below: int | None) -> None:
    assert covered(Owned(TASK, store=store(at)), recorded((6, 3), (9, 7))) == below


def test_a_correction_reads_nothing_and_corrects_steps_before_it() -> None:
    chain([step(0), step(1), step(2, corrects=1)])
    with pytest.raises(InvariantError, match="corrects nothing, or reads"):
        chain([step(0), step(1), step(2, corrects=2)])
    with pytest.raises(InvariantError, match="corrects nothing, or reads"):
        chain([step(0), step(1, corrects=0, reads=1)])


@dataclass
class Versions:
    """The port `Stores`, of a few versions."""

    steps: list[int]
    asked: list[int] = field(default_factory=list)

    async def before(self, task: TaskId, at: Step, go_on: object) -> MemoryStore:
        self.asked.append(at)
        return store(max((n for n in self.steps if n < at), default=-1))

    async def newer(self, task: TaskId, than: Step, go_on: object) -> MemoryStore:
        return store(max(n for n in [than, *self.steps] if n >= than))


def test_a_store_gives_way_to_an_older_one_each_time_or_to_none() -> None:
    stores: Any = Versions([1, 4, 8])
    owned = Owned(TASK, store=store(8))
    driver.run(reopen(stores, owned, Step(7)))
    driver.run(reopen(stores, owned, Step(3)))
    assert (stores.asked, owned.opened().progress.step) == ([7, 3], 1)
    for below in (Step(3), None):
        with pytest.raises(StateError, match="the steps after it are deleted already"):
            driver.run(reopen(stores, owned, below))


def test_a_store_among_corrected_steps_that_are_deleted_gives_way_to_a_newer_one() -> None:
    """A host that was away comes back, and the checkpoint store did not answer at first. No older version leads on."""
    owned = Owned(TASK, store=store(4))
    means = Means(None, Versions([6, 9]), Replayer(), None)  # type: ignore[arg-type]
    steps = recorded((6, 3))[6:]
    while not driver.run(TASK.recovery.recover(means, owned, steps, LogBounds({}, {}))):
        pass
    assert owned.opened().progress.step == 9


class Replayer:
    corrects = False
