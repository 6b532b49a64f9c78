"""What is trimmed, and what stays for people to look back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.runtime import maintenance
from falkirk.runtime.maintenance import Maintenance
from falkirk.state.memory import MemoryStore
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
