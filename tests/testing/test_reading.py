"""What an app under test reads."""

from __future__ import annotations

from typing import Any

import pytest

import falkirk as fk
from falkirk.testing.simulator.cluster.partition import Partition


def test_reading_costs_by_what_is_read_and_not_by_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, each = 1_000, 10
    seen = 0
    between = Partition._between

    def counting(self: Partition, start: int, end: int) -> Any:
        nonlocal seen
        found = between(self, start, end)
        seen += len(found)
        return found

    monkeypatch.setattr(Partition, "_between", counting)
    flow = fk.Flow("copy")
    flow.source("numbers", value=fk.Json({"n": int})).sink("copies", value=fk.Json())
    app = fk.testing.App(flow, step_rows=each)
    app.send("numbers", [{"n": n} for n in range(rows)])
    app.run()
    assert app.steps == rows // each
    assert len(app.sinks["copies"].rows) == rows
    assert seen < 10 * rows
