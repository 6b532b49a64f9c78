"""What `falkirk peek` shows on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from rich.console import Console

from falkirk.cli.commands.peek import Rows
from falkirk.stream.access.endpoints import Row, View
from falkirk.stream.access.objects import as_object

VIEW = View("totals", "sink", "totals", columns=("region", "start", "usd"))
ROW = Row(0, 7, 1500, "eu", {"region": "eu", "start": datetime(2026, 1, 1, tzinfo=UTC), "usd": 12})


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_screen_of_any_width_shows_all_values(width: int) -> None:
    console = Console(width=width)
    with console.capture() as text:
        Rows(VIEW, console)([ROW, ROW])
    shown = text.get()
    assert all(shown.count(word) >= 2 for word in ("2026-01-01T00:00:00Z", "12", "1970-01-01T00:00:01.500Z", "eu"))
    assert ("totals[0] 7" in shown) == (width < 100)


def test_a_record_with_a_time_that_is_in_no_calendar_is_shown_as_any_other() -> None:
    row = Row(0, 7, 1_767_225_600_000_000, "eu", {"region": "eu", "start": None, "usd": 12})
    assert as_object(row)["timestamp"] == "1767225600000000"
    console = Console(width=200)
    with console.capture() as text:
        Rows(VIEW, console)([row])
    assert "1767225600000000" in text.get()
