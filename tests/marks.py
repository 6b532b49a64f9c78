"""A plugin for pytest (`-p tests.marks`): prints the id of each test and its markers, as lines of JSON."""

from __future__ import annotations

import json

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """All tests are known."""
    screen = session.config.get_terminal_writer()
    for item in session.items:
        screen.line(json.dumps([item.nodeid, sorted({mark.name for mark in item.iter_markers()})]))
