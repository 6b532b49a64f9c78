"""What the tests of state share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

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


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders in memory where the system has such a place: thousands of syncs are minutes on a busy disk.

    A copy of the files shows what a killed process leaves whether they were synced or not.
    """
    shared = Path("/dev/shm")
    if os.access(shared, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
