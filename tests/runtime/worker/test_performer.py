"""What a commit domain learns of its transactions."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.worker.instructions import Commit
from falkirk.runtime.observe.traces import SILENT
from falkirk.runtime.worker.performer import Performer


def test_a_commit_takes_until_it_ends_and_not_until_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, todo, took = [10.0], [[Commit((), ())]], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    outcome: Future[Any] = Future()
    core: Any = SimpleNamespace(
        todo=lambda **_: todo.pop() if todo else [], ended=lambda _: None, recovered=lambda _: None, blocked=()
    )
    committer: Any = SimpleNamespace(transact=lambda _: outcome)
    takes_over: Any = SimpleNamespace(ended=list, note_blocked=lambda _: None)
    performer = Performer(core, committer, takes_over, SimpleNamespace(), lambda *of: took.append(of[2]), SILENT)  # type: ignore[arg-type]
    performer.perform()
    now[0] = 10.25
    assert performer.committing() == 0.25
    outcome.set_result([])
    now[0] = 12.0  # the worker's thread runs a step of another domain meanwhile
    performer.perform()
    assert took == [0.25]
    assert performer.idle
