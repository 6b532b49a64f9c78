"""Which of a worker's tasks can be read, and when not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.parts import running

from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.tasks import Correction, Phase
from falkirk.runtime.query.router import NotHere
from falkirk.runtime.worker.queried import RunningStates
from falkirk.runtime.worker.task import RunningTask
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress


@pytest.fixture
def task(tmp_path: Path) -> Iterator[RunningTask]:
    """A task that has committed step 3."""
    task = running(0)
    task.owned.store = store = RocksStore(tmp_path / "store", Identity("app", "stats/0", "f"))
    store.write({b"k": b"3"}, Progress(3, 4, 0, 1000))
    yield task
    store.close()


def test_what_is_committed_is_read_and_what_is_staged_over_it_is_not(task: RunningTask) -> None:
    store = task.owned.opened()
    staged = Overlay(store)
    staged.put([b"k"], [b"4"])
    states = RunningStates({0: task}, {})
    with states.open(0) as snapshot:
        assert (snapshot.progress.step, snapshot.pairs.get([b"k"])) == (3, [b"3"])
    store.write(staged.changes, Progress(4, 5, 0, 2000))
    with states.open(0) as snapshot:
        assert (snapshot.progress.step, snapshot.pairs.get([b"k"])) == (4, [b"4"])


def refused(states: RunningStates, partition: int = 0) -> tuple[str, bool]:
    with pytest.raises(NotHere) as why, states.open(partition):
        pass
    return str(why.value), why.value.coming


def correction(task: RunningTask) -> None:
    task.owned.correction = Correction(2, [], "", {})  # type: ignore[arg-type]


CHANGES: dict[str, tuple[Callable[[RunningTask], Any], str, bool]] = {
    "released": (lambda task: task.owned.enter(Phase.RELEASING), "is leaving this worker", False),
    "another owner": (lambda task: setattr(task.owned, "lost", True), "is leaving this worker", False),
    "revoked": (lambda task: setattr(task.owned, "revoked", True), "is leaving this worker", False),
    "corrected": (correction, "has a correction of earlier steps to commit", True),
    "migrated": (lambda task: setattr(task, "moving", True), "is being migrated or rebuilt", True),
    "closed": (lambda task: task.owned.opened().close(), "has no state in this worker", False),
    "without state": (
        lambda task: setattr(task.owned, "store", SimpleNamespace()),
        "has no state in this worker",
        False,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_task_whose_state_is_not_that_of_its_last_step_here_is_not_read(task: RunningTask, name: str) -> None:
    change, words, coming = CHANGES[name]
    states = RunningStates({0: task}, {0: task})
    with states.open(0):
        pass
    store = task.owned.opened()
    change(task)
    assert refused(states) == (words, coming)
    store.close()


def test_a_task_that_comes_is_told_from_another_s(task: RunningTask) -> None:
    states = RunningStates({}, {1: task})
    assert refused(states, 1) == ("is being taken over", True)
    assert refused(states, 0) == ("does not run in this worker", False)
