"""Interval joins, against DuckDB: after each step, and when the state of past rows has gone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.joins.task import CountingState, JoinTask

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.joins import interval_expiry

DATABASE = duckdb.connect(config={"threads": 1})
NEAR = "l.k = r.k and r.at - l.at between {} and {}"
SQL = {
    "inner": "select l.k, l.at, l.v, r.at as at_right, r.v as v_right from l join r on {}",
    "left": "select l.k, l.at, l.v, r.at as at_right, r.v as v_right from l left join r on {}",
    "right": "select l.at, l.v, r.k, r.at as at_right, r.v as v_right from l right join r on {}",
    "full": "select coalesce(l.k, r.k) as k, l.at, l.v, r.at as at_right, r.v as v_right from l full join r on {}",
    "semi": "select l.k, l.at, l.v from l semi join r on {}",
    "anti": "select l.k, l.at, l.v from l anti join r on {}",
}
SCHEMA = {"k": pl.Int64(), "at": pl.Int64(), "v": pl.Int64()}


def changing(flow: fk.Flow, name: str) -> fk.Stream:
    """A stream with an event time, whose rows can be taken back."""
    rows = flow.source(name, value=fk.Json({"k": fk.Int64, "at": fk.Int64, "v": fk.Int64}))
    counted = rows.group_by("k", "at", "v", id=f"by-{name}").agg(n=fk.len()).select("k", "at", "v")
    flow.graph.add_hidden(timed := replace(counted._op, time="at"))
    return fk.Stream(flow.graph, timed)


def both_changing(how: Any, lower: int, upper: int) -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("f")
    within = tuple(timedelta(milliseconds=bound) for bound in (lower, upper))
    joined = changing(flow, "a").join(changing(flow, "b"), on="k", how=how, within=within, id="join")
    return flow, joined


@pytest.mark.parametrize("how", SQL)
@settings(max_examples=10)
@given(
    rng=st.randoms(use_true_random=False), steps=st.integers(1, 5), a=st.integers(-6, 6), b=st.integers(-6, 6),
    much=st.booleans(),
)  # fmt: skip
def test_after_each_step_the_sum_of_the_output_is_what_sql_gives(
    how: Any, rng: random.Random, steps: int, a: int, b: int, much: bool
) -> None:
    task, total = JoinTask(*both_changing(how, min(a, b), max(a, b))), Counter[Any]()
    sides: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    for _ in range(steps):
        changes = []
        for side in sides:
            change: list[Any] = []
            for _ in range(rng.randint(0, 60 if much else 6)):
                row, weight = (
                    (rng.choice([None, 1, 1, 2]), rng.randint(1, 20), rng.randint(0, 1)),
                    rng.choice([1, 1, 2]),
                )
                if rng.random() < 0.4 and (there := [row for row, n in side.items() if n > 0]):
                    row, weight = rng.choice(there), -1
                side[row] += weight
                change.append((*row, weight))
            changes.append(change)
        for *row, weight in task.step(*changes):
            total[tuple(row)] += weight
        assert {row: n for row, n in total.items() if n} == answer(how, min(a, b), max(a, b), sides)


def answer(how: str, lower: int, upper: int, sides: Any) -> dict[Any, int]:
    for name, side in zip("lr", sides, strict=True):
        frame = pl.DataFrame([*side.elements()], SCHEMA, orient="row")
        DATABASE.register(name, frame.to_arrow())
    return dict(Counter(DATABASE.execute(SQL[how].format(NEAR.format(lower, upper))).fetchall()))


VALUE = fk.Json({"k": fk.Int64, "at": fk.Int64, "v": fk.Int64})


def flowing(
    how: Any = "inner", within: Any = ("-5ms", "10ms"), *, regime: Any = None, key: str | None = None
) -> fk.Flow:
    flow = fk.Flow("near", regime=regime)
    a, b = (flow.source(name, key=key, value=VALUE, time="at", late="3ms") for name in ("a", "b"))
    joined = a.join(b, on="k", how=how, within=within, id="join")
    sink_key = None if how in ("inner", "semi") else list(joined.schema)
    joined.sink("out", key=sink_key, value=fk.Json(), changes="weights")
    return flow


def sum_of(app: fk.testing.App, columns: list[str]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for row in app.sinks["out"].rows:
        total[tuple(row[c] for c in columns)] += row["weight"]
    return +total


def in_order(rng: random.Random, rows: int) -> list[dict[str, int]]:
    return [{"k": rng.randint(0, 2), "at": 20 * i // 3 + rng.randint(1, 3), "v": i} for i in range(rows)]


@pytest.mark.parametrize("how", SQL)
@pytest.mark.parametrize("within", [(-5, 10), (0, 0), (4, 9), (-9, -4)])
@settings(max_examples=2)
@given(rng=st.randoms(use_true_random=False), cut=st.integers(1, 30))
def test_rows_that_find_no_more_partners_leave_the_state(how: Any, within: Any, rng: random.Random, cut: int) -> None:
    app = fk.testing.App(flowing(how, tuple(timedelta(milliseconds=n) for n in within)))
    given = in_order(rng, 30), in_order(rng, 30)
    for part in (slice(None, cut), slice(cut, None)):
        for name, rows in zip("ab", given, strict=True):
            app.send(name, rows[part])
        app.run()
    for name in "ab":
        app.send(name, [{"k": 9, "at": 100_000, "v": 0}])
    app.run()
    last = Counter([(9, 100_000, 0)])
    sides = [Counter((row["k"], row["at"], row["v"]) for row in rows) + last for rows in given]
    wanted = answer(how, *within, sides)
    names = ["k", "at", "v"] if how in ("semi", "anti") else ["k", "at", "v", "at_right", "v_right"]
    names = ["at", "v", "k", "at_right", "v_right"] if how == "right" else names
    assert dict(sum_of(app, names)) == wanted
    assert app.state("join")["k"].to_list() == [9]
    assert app.state("join/right")["k"].to_list() == [9]


@pytest.mark.parametrize("how", SQL)
@pytest.mark.parametrize("within", [(-1, 40), (-40, 1), (10, 40)])
def test_partners_that_come_one_after_the_other_count_while_the_state_goes(how: Any, within: Any) -> None:
    """Seconds, so that rows leave the state at many times between two partners of a row."""
    rng = random.Random(5)
    app = fk.testing.App(flowing(how, tuple(timedelta(seconds=n) for n in within)))
    given = [
        [{"k": rng.randint(0, 1), "at": 4_000 * i + rng.randint(1, 2_000), "v": i} for i in range(30)] for _ in range(2)
    ]
    for first in range(30):
        for name, rows in zip("ab", given, strict=True):
            app.send(name, rows[first : first + 1])
        app.step()
    app.run()
    assert app.state("join").height + app.state("join/right").height < 50
    sides = [Counter((row["k"], row["at"], row["v"]) for row in rows) for rows in given]
    names = ["k", "at", "v"] if how in ("semi", "anti") else ["k", "at", "v", "at_right", "v_right"]
    names = ["at", "v", "k", "at_right", "v_right"] if how == "right" else names
    total: Counter[Any] = Counter()
    for row in app.sinks["out"].rows:
        total[tuple(row[c] for c in names)] += row["weight"]
    assert {row: n for row, n in total.items() if n} == answer(how, *(1_000 * n for n in within), sides)


def test_a_step_drops_no_more_rows_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_expiry, "AT_ONCE", 7)
    app = fk.testing.App(flowing())
    app.send("a", [{"k": 1, "at": 100, "v": n} for n in range(200)] + [{"k": n, "at": 100, "v": n} for n in range(30)])
    app.send("b", [{"k": 2, "at": 100, "v": 0}])
    app.run()
    assert app.state("join")["__falkirk_rows"].sum() == 230
    for name in "ab":
        app.send(name, [{"k": 9, "at": 100_000, "v": 0}])
    app.run()
    assert app.state("join").height == 1
    assert app.state("join/right").height == 1


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_it_is_the_same_after_crashes_everywhere(regime: Any) -> None:
    rng = random.Random(5)
    rows = {name: in_order(rng, 12) for name in ("a", "b")}
    columns = ["k", "at", "v", "at_right", "v_right"]
    app = fk.testing.run(flowing("left", regime=regime), rows, crash_at="everywhere", step_rows=3)
    sides = [Counter((row["k"], row["at"], row["v"]) for row in some) for some in rows.values()]
    assert dict(sum_of(app, columns)) == answer("left", -5, 10, sides)


def test_windows_can_follow_it_and_become_complete() -> None:
    flow = fk.Flow("f")
    a, b = (flow.source(name, value=VALUE, time="at", late="0s") for name in ("a", "b"))
    near = a.join(b, on="k", within=("0s", "10ms"), id="near")
    near.group_by(fk.tumbling("at", "20ms"), id="w").agg(n=fk.len()).final().sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("a", [{"k": 1, "at": at, "v": 0} for at in (5, 15, 25)])
    app.send("b", [{"k": 1, "at": at, "v": 0} for at in (9, 24, 29)])
    app.run()
    assert app.sinks["out"].rows == []  # A row of time 15 to 19 can still find a partner of time 29.
    app.send("a", [{"k": 2, "at": 31, "v": 0}])
    app.send("b", [{"k": 2, "at": 31, "v": 0}])
    app.run()
    assert app.sinks["out"].rows == [{"window_start": 0, "window_end": 20, "n": 2}]


def test_another_interval_join_can_follow_an_outer_one_and_is_bounded() -> None:
    flow = fk.Flow("f")
    a, b, c = (flow.source(name, value=VALUE, time="at", late="0s") for name in ("a", "b", "c"))
    near = a.join(b, on="k", how="left", within=("0s", "10ms"), id="near")
    nearer = near.join(c, on="k", how="left", within=("0s", "5ms"), suffix="_c", id="nearer")
    nearer.sink("out", key=list(nearer.schema), value=fk.Json(), changes="weights")
    app = fk.testing.App(flow)
    for name in "abc":
        app.send(name, [{"k": 1, "at": at, "v": at} for at in (5, 15, 5_000)])
    app.run()
    columns = ["at", "at_right", "at_c"]
    pairs = [(5, 5), (5, 15), (15, 15), (5_000, 5_000)]
    assert sum_of(app, columns) == Counter((a, b, a) for a, b in pairs)
    assert app.state("nearer")["at"].to_list() == [5_000]


def test_a_change_of_a_hot_key_costs_what_it_changes_and_what_it_reaches() -> None:
    costs = []
    for rows in (2_000, 20_000):
        state = CountingState()
        task = JoinTask(*both_changing("inner", -2, 2), state)
        task.step([(1, at, 0, 1) for at in range(rows)])
        before = state.gets, state.puts
        assert len(task.step([(1, 50, 1, 1)], [(1, 1_000, 7, 1), (1, 10, 7, 1)])) == 10
        costs.append((state.gets - before[0], state.puts - before[1]))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("types", [(fk.Int64, fk.DatetimeMicros), (fk.Datetime, fk.DatetimeMicros)])
def test_times_of_different_units_are_compared_exactly(types: Any) -> None:
    flow = fk.Flow("f")
    sides = [
        flow.source(name, value=fk.Json({"k": fk.Int64, "at": dtype}), time="at", late="0s")
        for name, dtype in zip("ab", types, strict=True)
    ]
    sides[0].join(sides[1], on="k", within=("0s", "1ms")).sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    begin = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    half = begin + timedelta(milliseconds=500)
    app.send("a", [{"k": 1, "at": int(half.timestamp() * 1000) if types[0] is fk.Int64 else half}])
    app.send("b", [{"k": 1, "at": begin + timedelta(microseconds=n)} for n in (499_999, 500_000, 501_000, 501_001)])
    app.run()
    found = [row["at_right"] for row in app.sinks["out"].rows]
    assert [at.microsecond for at in found] == [500_000, 501_000]


def test_explain_says_what_is_kept() -> None:
    assert "within -5ms to 10ms" in explain(flowing())
    assert "keeps rows until the watermark is past their time and 10ms on the left side, 5ms on the right" in explain(
        flowing()
    )
    flow = fk.Flow("f")
    a, b = (flow.source(name, value=VALUE, time="at") for name in ("a", "b"))
    a.join(b, on="k", within=("0s", "1s"), id="join").sink("out", value=fk.Json())
    assert "grows without end: give both sources a watermark" in explain(flow)


@pytest.mark.parametrize(
    ("within", "what"),
    [
        ("1h", "within='1h' is not an interval"),
        (("1h",), "is not an interval"),
        (("1h", "5m"), "ends before it begins"),
        (("-1 hour", "5m"), "within='1 hour' is not a duration"),
        ((-5, 5), "is not a duration"),
        (("0s", "40000d"), "is farther than a hundred years"),
    ],
)
def test_a_wrong_interval_is_refused_with_its_line(within: Any, what: str) -> None:
    flow = fk.Flow("f")
    a, b = (flow.source(name, value=VALUE, time="at") for name in ("a", "b"))
    with pytest.raises(DefinitionError, match=what) as raised:
        a.join(b, on="k", within=within)
    assert "test_intervals.py" in raised.value.where


def test_both_streams_need_an_event_time() -> None:
    flow = fk.Flow("f")
    a, b = flow.source("a", value=VALUE, time="at"), flow.source("b", value=VALUE)
    with pytest.raises(DefinitionError, match="the other stream \\('b'\\) has none") as raised:
        a.join(b, on="k", within=("0s", "1s"))
    assert 'time="at"' in str(raised.value)
    with pytest.raises(DefinitionError, match="the stream \\('select'\\) has none"):
        a.select("k").join(a, on="k", within=("0s", "1s"))
