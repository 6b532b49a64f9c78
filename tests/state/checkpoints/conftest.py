"""A task's store, and a checkpoint store for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import ObjectStore
from tests.state.checkpoints.copies import WHOSE

from falkirk.state import checkpoints
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore


@pytest.fixture(autouse=True)
def objects_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests are small: their files would all lie in the version's json."""
    monkeypatch.setattr(checkpoints, "SMALL", -1)


@pytest.fixture(params=["file", "memory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return connect("memory:///" if request.param == "memory" else (tmp_path / "re mote" / "checkpoints").as_uri())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    store = RocksStore(tmp_path / "local", WHOSE)
    yield store
    store.close()
