"""Recorded steps that are run again, by workers that die while they do it."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.checkpoint import driver, rollforward
from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.rollforward import roll_divisions
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.store import Identity

TASK = Task(TaskId("lazy", 0), TopicPartition("steps", 0))
STEPS = [
    (Offset(n), StepRecord("lazy/0", Step(n), Nonce("n"), OwnerId("o"), Millis(n), (), (), digest([])))
    for n in range(25)
]


class Died(Exception):
    pass


class Dying:
    """Runs so many steps again, and dies."""

    corrects = False

    def __init__(self, steps: int) -> None:
        self.left, self.ran = steps, list[int]()

    async def replay(self, _: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        if not self.left:
            raise Died
        self.left -= 1
        self.ran.append(record.step)
        state.put([b"n"], [str(record.step).encode()])
        return []

    async def difference(self, *_: Any) -> list[Output]:
        raise NotImplementedError


def test_a_worker_that_dies_while_it_runs_steps_again_has_spared_the_next_one_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or else, killed more often than that takes, none would ever come to an end of them."""
    monkeypatch.setattr(rollforward, "FLUSH_STEPS", 4)
    disk, identity = MemoryDisk(), Identity("app", "lazy/0", "")
    began = []
    while True:
        replayer, store = Dying(steps=9), MemoryStore(identity, disk)
        began.append(store.progress.step + 1)
        try:
            driver.run(roll_divisions(replayer, Owned(TASK, Phase.FENCING, Nonce("n"), store), STEPS))
            break
        except Died:
            assert replayer.ran == list(range(began[-1], began[-1] + 9)), "none is left out"
            disk.crash()
    assert began == [0, 8, 16]
    assert store.progress.step == 24
    assert store.get([b"n"]) == [b"24"]
