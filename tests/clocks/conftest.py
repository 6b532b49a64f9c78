"""Processes whose wall clock is off."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest


class ShiftedClock:
    """A wall clock for processes that are started with `environment`."""

    def __init__(self, library: Path, place: Path) -> None:
        self._place = place
        self.set(0)
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(place)}

    def set(self, seconds: float) -> None:
        """Be so far ahead from now on; at once, also in processes that run."""
        with self._place.open("r+b" if self._place.exists() else "wb") as file:
            file.write(struct.pack("q", round(seconds * 1000)))


@pytest.fixture(scope="session")
def shifting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process preloads."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a wall clock that is off takes Linux and a C compiler")
    library = tmp_path_factory.mktemp("clock") / "shifted.so"
    source = Path(__file__).with_name("shifted.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def shifted(shifting: Path, tmp_path: Path) -> ShiftedClock:
    """A clock for this test."""
    return ShiftedClock(shifting, tmp_path / "shift")
