"""What is trimmed, and what stays for people to look back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.runtime import maintenance
from falkirk.runtime.maintenance import Maintenance
from falkirk.state.memory import MemoryStore
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress

STEPS, EDGE = TopicPartition("steps", 0), TopicPartition("edge", 0)


class Trimmed:
    """In the place of the topics."""

    def __init__(self) -> None:
        self.below: list[dict[TopicPartition, int]] = []

    def trim(self, below: dict[TopicPartition, int]) -> None:
        self.below.append(below)


def versions(keep: float, monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """What is trimmed at five versions, ten seconds and a hundred steps apart."""
    store, now = MemoryStore(Identity("app", "stats/0", "f")), [0.0]
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: now[0]))
    partition = InputPartition("", "edge", "id", 0)
    bound = SimpleNamespace(
        inputs=[SimpleNamespace(place=EDGE, partition=partition, input=SimpleNamespace(kind="edge"))],
        stage=SimpleNamespace(regime=SimpleNamespace(every=SimpleNamespace(total_seconds=lambda: 10.0))),
    )
    task: Any = SimpleNamespace(bound=bound, begun=True, owned=SimpleNamespace(
        task=SimpleNamespace(id=TaskId("stats", 0), steps=STEPS), opened=lambda: store, last=None, correction=None
    ))  # fmt: skip
    trimmed: Any = Trimmed()
    kept = Maintenance(None, trimmed, keep)  # type: ignore[arg-type]  # no store of files, so no copies
    kept.known(TaskId("stats", 0)).versioned = 0.0
    for n in range(1, 6):
        now[0] = 10.0 * n
        division = (Range(partition, Offset(0), Offset(1000 * n)),)
        task.owned.last = StepRecord("stats/0", Step(n), Nonce("n"), OwnerId("o"), Millis(0), division, (), "")
        store.write({}, Progress(n, 100 * n, 0))
        kept.known(TaskId("stats", 0)).stepped = True
        kept.tick([task])
        kept.known(TaskId("stats", 0)).busy.result()  # type: ignore[union-attr]
    kept.close()
    return trimmed.below  # type: ignore[no-any-return]


def test_without_more_ado_what_no_task_needs_goes_with_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions(0.0, monkeypatch) == [
        {STEPS: 99},
        *({STEPS: 100 * n - 1, EDGE: 1000 * (n - 1)} for n in (2, 3, 4, 5)),
    ]


def test_what_is_to_be_kept_for_a_while_goes_that_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions(25.0, monkeypatch) == [{}, {}, {}, {STEPS: 99, EDGE: 1000}, {STEPS: 199, EDGE: 2000}]


@pytest.mark.parametrize(
    ("changelog", "stepped", "version", "waits"),
    [
        (None, True, 93_000, 3.0),
        (TopicPartition("changelog", 0), True, 93_000, 10.0),
        (None, True, None, 1.0),
        (None, False, None, 10.0),
    ],
    ids=["a version is there", "nothing would be run again", "all would be run again", "no step was committed"],
)
def test_what_would_be_run_again_gets_its_version_so_long_after_the_last_however_often_the_task_comes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changelog: TopicPartition | None,
    stepped: bool,
    version: int | None,
    waits: float,
) -> None:
    """Of workers that are killed within the time between two versions, none would make one."""
    store = RocksStore(tmp_path, Identity("app", "stats/0", "f"))
    if version is not None:
        store.write({b"k": b"v"}, Progress(7, 8, 0, clock=version))
        store.commit()
    now, begun = [50.0], list[float]()
    monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 50.0 + now[0]))
    every = SimpleNamespace(every=SimpleNamespace(total_seconds=lambda: 10.0))
    task: Any = SimpleNamespace(
        bound=SimpleNamespace(inputs=[], stage=SimpleNamespace(regime=every)),
        begun=True,
        owned=Owned(Task(TaskId("stats", 0), STEPS, changelog), Phase.RUNNING, Nonce("n"), store),
    )
    if stepped:
        task.owned.last = StepRecord("stats/0", Step(7), Nonce("n"), OwnerId("o"), Millis(93_000), (), (), "")
    kept = Maintenance(None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(kept, "_version", lambda *_: begun.append(now[0]))
    kept.known(TaskId("stats", 0)).versioned = now[0]
    kept.taken(task)
    kept.known(TaskId("stats", 0)).stepped = True
    while not begun:
        now[0] += 1.0
        kept.tick([task])
        if (busy := kept.known(TaskId("stats", 0)).busy) is not None:
            busy.result()
    assert begun == [50.0 + waits]
    kept.close()
    store.close()
