"""The docstring of a room is its map: it names each module and each room in it, so that a reader who comes in finds the way.

    named in the docstring of src/falkirk/room/__init__.py  =  what is in src/falkirk/room

A map names modules as `name.py` and rooms as `name/`. What is elsewhere has a path (`checkpoint/steps.py`) or dots
(`falkirk.checkpoint.steps`): this test passes over it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import falkirk

SOURCES = Path(falkirk.__file__).parent
ROOMS = sorted({file.parent for file in SOURCES.rglob("*.py")})
NAMED = re.compile(r"(?<![\w./])(\w+(?:\.py\b|/(?!\w)))")


def test_a_map_names_what_is_in_its_own_room_alone() -> None:
    said = "core.py (ports.py: …), regimes/ and worker/; neither state/rocks.py nor docs/http.md, falkirk.state, rows/s"
    assert NAMED.findall(said) == ["core.py", "ports.py", "regimes/", "worker/"]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(SOURCES).as_posix())
def test_a_room_says_what_is_in_it(room: Path) -> None:
    said = NAMED.findall(ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or "")
    modules = [file.name for file in room.glob("*.py") if file.name != "__init__.py"]
    rooms = [f"{inner.name}/" for inner in ROOMS if inner.parent == room]
    assert sorted(set(said)) == sorted(modules + rooms)
