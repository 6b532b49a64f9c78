"""The first row of each key within a time, against its definition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.windows import deduplicate

VALUE = fk.Json({"id": fk.Int64, "k": fk.String, "at": fk.Int64})
Sent = list[tuple[str | None, int]]
"""Key and time."""


def once(within: str | None, *, regime: Any = None, **timed: Any) -> fk.Flow:
    flow = fk.Flow("once", regime=regime)
    rows = flow.source("rows", value=VALUE, **timed)
    rows.deduplicate("k", within=within, id="d").sink("out", value=fk.Json())
    return flow


def rows_of(sent: Sent) -> list[dict[str, Any]]:
    return [{"id": i, "k": k, "at": at} for i, (k, at) in enumerate(sent)]


def ids(app: fk.testing.App) -> list[int]:
    return sorted(row["id"] for row in app.sinks["out"].rows if row)


def expected(sent: Sent, within: int | None, late: int) -> list[int]:
    """The rows that pass, by definition: one after another."""
    greatest, passed = 0, list[int]()
    for i, (k, at) in enumerate(sent):
        near = [p for p in passed if sent[p][0] == k and (within is None or abs(sent[p][1] - at) <= within)]
        if at >= greatest - late and not near:
            passed.append(i)
        greatest = max(greatest, at)
    return passed


sent = st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.integers(1, 60)), max_size=25)


@given(sent=sent, within=st.none() | st.integers(1, 20), late=st.integers(1, 40), step=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_the_first_row_passes_and_no_row_near_it(sent: Sent, within: int | None, late: int, step: int) -> None:
    app = fk.testing.App(once(within and f"{within}ms", time="at", late=f"{late}ms"), step_rows=step)
    app.send("rows", rows_of(sent))
    app.run()
    passed = expected(sent, within, late)
    assert ids(app) == passed
    watermark = max((at for _, at in sent), default=0) - late
    assert set(app.state("d")["k"]) == {
        sent[p][0] for p in passed if within is None or sent[p][1] + within >= watermark
    }


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_the_same_rows_pass_after_crashes_everywhere(regime: Any) -> None:
    sent: Sent = [("a", 5), ("a", 14), ("b", 8), ("a", 22), ("b", 35), ("a", 30), ("a", 61), ("a", 62)]
    flow = once("10ms", regime=regime, time="at", late="20ms")
    app = fk.testing.run(flow, {"rows": rows_of(sent)}, crash_at="everywhere", step_rows=2)
    assert ids(app) == expected(sent, 10, 20)


def test_without_a_watermark_the_clock_of_the_step_counts_and_state_goes_by_itself() -> None:
    app = fk.testing.App(once("1m"))
    app.send("rows", rows_of([("a", 1), ("a", 900_000), ("b", 1)]))
    app.run()
    app.advance("1m")
    app.send("rows", [{"id": 3, "k": "a", "at": 1}])
    app.run()
    assert (ids(app), app.state("d").height) == ([0, 2], 2)
    app.advance("1ms")
    app.run()
    assert app.state("d").height == 0
    app.send("rows", [{"id": 4, "k": "a", "at": 1}])
    app.run()
    assert (ids(app), app.state("d").height) == ([0, 2, 4], 1)


@pytest.mark.parametrize("at_once", [3, 20_000])
def test_all_state_goes_when_time_has_passed(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(deduplicate, "AT_ONCE", at_once)
    app = fk.testing.App(once("2ms", time="at", late="1s"))
    app.send("rows", rows_of([("abc"[at % 3], at) for at in range(1, 40)]))
    app.run()
    assert ids(app) == list(range(39))
    app.send("rows", rows_of([("a", 5_000)]))
    app.run()
    (task,) = [task for task in app._worker().tasks if task.bound.stage.id == "d"]
    # The last row's key and its time, and the watermark.
    assert len([*task.owned.opened().scan(b"", b"\xff" * 8)]) == 3


def test_explain_says_which_time_counts() -> None:
    assert "deduplicate d: the first row of each k, within 1h of at" in explain(once("1h", time="at", late="1s"))
    assert "deduplicate d: the first row of each k, within 1h of the clock" in explain(once("1h", time="at"))
    assert "the first row of each k, whose state is kept for ever" in explain(once(None))


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    rows = fk.Flow("x").source("rows", value=VALUE)
    with pytest.raises(DefinitionError, match="can be taken back"):
        rows.group_by("k").agg(n=fk.len()).deduplicate("k", within="1h")
    with pytest.raises(DefinitionError, match="no column 'key'"):
        rows.deduplicate("key", within="1h")
    with pytest.raises(DefinitionError, match="no column"):
        rows.deduplicate([], within="1h")
    with pytest.raises(DefinitionError, match="within='soon'"):
        rows.deduplicate("k", within="soon")
