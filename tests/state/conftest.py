"""What the tests of state share."""

from __future__ import annotations

import pytest
from rocksdict import Options

from falkirk.state import engine
from falkirk.state.engine import Memory


@pytest.fixture
def still_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compaction in the background, so that a copy of the files is what a kill at that moment would leave."""
    options = engine._options

    def still(memory: Memory, create: bool) -> Options:
        chosen = options(memory, create)
        chosen.set_disable_auto_compactions(True)
        return chosen

    monkeypatch.setattr(engine, "_options", still)
