"""What the tests of state share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Options
from tests.state.stats import WHOSE

from falkirk.state import engine
from falkirk.state.engine import Memory
from falkirk.state.rocks import RocksStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the store."""
    return tmp_path / "stats-0"


@pytest.fixture
def store(folder: Path) -> Iterator[RocksStore]:
    """An empty one."""
    store = RocksStore(folder, WHOSE)
    yield store
    store.close()


@pytest.fixture
def still_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compaction in the background, so that a copy of the files is what a kill at that moment would leave."""
    options = engine._options

    def still(memory: Memory, create: bool) -> Options:
        chosen = options(memory, create)
        chosen.set_disable_auto_compactions(True)
        return chosen

    monkeypatch.setattr(engine, "_options", still)
