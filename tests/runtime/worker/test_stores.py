"""A kill at each file that goes, while what a host has gives way to something newer."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ids import Step, TaskId, TopicPartition
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.tasks import Task
from falkirk.runtime.worker.stores import TaskStores
from falkirk.state.engine import Memory
from falkirk.state.files import discard_folder
from falkirk.state.rocks import RocksStore
from falkirk.state.store import EMPTY, Progress, Store

LAZY = Task(TaskId("lazy", 0), TopicPartition("steps", 0), Lazy())


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def folder(no_waiting_for_the_disk: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="falkirk-") as folder:
        yield Path(folder)


@pytest.fixture
def stores(folder: Path) -> Callable[[str], TaskStores]:
    """What the workers of one app begin with, each in a folder of its own."""
    stage = SimpleNamespace(fingerprint="f00", state_schema="rows")
    app = SimpleNamespace(name="app", incarnation="i", tasks=[SimpleNamespace(task=LAZY, stage=stage)])
    url, memory = f"file://{folder / 'checkpoints'}", Memory(cache=8 << 20, write_buffers=8 << 20)
    return lambda worker: TaskStores(app, folder / worker, url, memory, lambda: None)  # type: ignore[arg-type]


def opened(stores: TaskStores) -> Store:
    return asyncio.run(stores.open(LAZY.id, lambda: None))


def advance(stores: TaskStores, step: int) -> None:
    """Go on to a step, and make a version of it that all workers can have."""
    store = opened(stores)
    assert isinstance(store, RocksStore)
    store.write({b"a": b"%d" % step, b"%d" % step: b""}, Progress(step, step, step))
    version = store.commit()
    stores.copies(LAZY.id).upload(store.version_folder(version), store.version_progress(version))
    store.close()


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> bool:
    """Whether `act` was killed: when so many files had gone."""
    gone = 0

    def counted(remove: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            nonlocal gone
            if gone == number:
                raise Killed
            gone += 1
            remove(*args, **kwargs)

        return run

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        try:
            act()
        except Killed:
            return True
    return False


def test_a_newer_version_takes_the_place_of_a_store_whole(
    stores: Callable[[str], TaskStores], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = stores("worker-0"), stores("worker-1")
    step = kills = 0
    advance(here, step)
    while kills == step:
        advance(there, step + 1)
        kills += killed_at(kills, monkeypatch, lambda: opened(stores("worker-0")).close())
        step += 1
        store = opened(stores("worker-0"))
        assert store.progress == Progress(step, step, step)
        assert store.get([b"a"]) == [b"%d" % step]
        store.close()
    assert kills > 5


def test_a_store_is_emptied_whole(stores: Callable[[str], TaskStores], monkeypatch: pytest.MonkeyPatch) -> None:
    step = kills = 0
    while kills == step:
        step += 1
        advance(stores("worker-0"), step)
        kills += killed_at(kills, monkeypatch, lambda: asyncio.run(stores("worker-0").fresh(LAZY.id)).close())
        left = RocksStore(
            stores("worker-0")._folder_of(LAZY.id), stores("worker-0")._identity(LAZY.id), Memory(cache=8 << 20)
        )
        assert left.progress in (EMPTY, Progress(step, step, step))
        left.close()
    assert kills > 5


@pytest.mark.parametrize(("below", "found"), [(9, 6), (6, 3), (4, 3), (3, -1)])
def test_a_store_among_corrected_steps_gives_way_to_a_version_before_them(
    stores: Callable[[str], TaskStores], below: int, found: int
) -> None:
    advance(stores("worker-0"), 3)
    advance(stores("worker-0"), 6)
    here = stores("worker-0")
    live = opened(here)
    live.write({b"a": b"8"}, Progress(8, 8, 8))
    live.close()
    older = asyncio.run(here.before(LAZY.id, Step(below), lambda: None))
    assert older.progress.step == found
    assert older.get([b"a"]) == [None if found < 0 else b"%d" % found]
    older.write({b"a": b"9"}, Progress(9, 9, 9))
    older.close()
    again = opened(stores("worker-0"))
    assert again.get([b"a"]) == [b"9"]
    again.close()


def test_a_folder_is_discarded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills, ended = 0, False
    while not ended:
        folder = tmp_path / f"{kills}" / "folder"
        folder.mkdir(parents=True)
        for name in ("a", "b", "c"):
            (folder / name).touch()
        ended = not killed_at(kills, monkeypatch, lambda path=folder: discard_folder(path))  # type: ignore[misc]
        assert not folder.exists()
        kills += not ended
    assert kills > 3
