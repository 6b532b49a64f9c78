"""The docstring of a room is its map: it names each module and each room in it, so that a reader who comes in finds the way.

    named in the docstring of src/falkirk/room/__init__.py  =  what is in src/falkirk/room

The same holds for the rooms of the bench. And a folder has at most 25 files, so that a list of it is seen at once.

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
ROOT = Path(__file__).parents[1]
ROOMS = sorted(
    {file.parent for file in SOURCES.rglob("*.py")} | {file.parent for file in ROOT.glob("bench/**/__init__.py")}
)
FOLDERS = sorted(
    {file.parent for top in (SOURCES, ROOT / "bench") for file in top.rglob("*") if "__pycache__" not in file.parts}
)
MOST = 25
NAMED = re.compile(r"(?<![\w./])(\w+(?:\.py\b|/(?!\w)))")


def named(folder: Path) -> str:
    """Below the project's root."""
    return folder.relative_to(ROOT).as_posix()


def test_a_map_names_what_is_in_its_own_room_alone() -> None:
    said = "core.py (ports.py: …), regimes/ and worker/; neither state/rocks.py nor docs/http.md, falkirk.state, rows/s"
    assert NAMED.findall(said) == ["core.py", "ports.py", "regimes/", "worker/"]


@pytest.mark.parametrize("room", ROOMS, ids=named)
def test_a_room_says_what_is_in_it(room: Path) -> None:
    said = NAMED.findall(ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or "")
    modules = [file.name for file in room.glob("*.py") if file.name != "__init__.py"]
    rooms = [f"{inner.name}/" for inner in ROOMS if inner.parent == room]
    assert sorted(set(said)) == sorted(modules + rooms)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_folder_is_seen_at_once(folder: Path) -> None:
    files = [path.name for path in folder.iterdir() if path.is_file() and path.name[0] != "."]
    assert len(files) <= MOST, sorted(files)
