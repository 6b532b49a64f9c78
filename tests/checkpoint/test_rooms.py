"""The docstring of a room names each of its modules, so that a reader who comes in finds the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import falkirk

ROOMS = ["checkpoint", "checkpoint/regimes", "checkpoint/worker", "state", "runtime/worker", "runtime/worker/reading"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room: str) -> None:
    folder = Path(falkirk.__file__).parent / room
    named = re.findall(r"\b(\w+)\.py\b", (folder / "__init__.py").read_text())
    assert set(named) == {file.stem for file in folder.glob("*.py") if file.stem != "__init__"}
