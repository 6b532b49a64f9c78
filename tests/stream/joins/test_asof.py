"""As-of joins, against a rule written with lists: after each step, and when the state of past rows has gone."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.joins.task import CountingState, JoinTask
from tests.stream.joins.test_intervals import VALUE, changing, in_order

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.state.entries import digest
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.joins import interval_expiry

CASES = [("backward", None), ("backward", 3), ("forward", 3), ("forward", 0), ("nearest", 4)]
Row = tuple[Any, ...]
COLUMNS = ["k", "at", "v", "at_right", "v_right"]


def both_changing(strategy: Any, tolerance: int | None) -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("f")
    far = None if tolerance is None else timedelta(milliseconds=tolerance)
    a, b = changing(flow, "a"), changing(flow, "b")
    return flow, a.join_asof(b, by="k", strategy=strategy, tolerance=far, id="join")


def answer(strategy: str, tolerance: int | None, sides: Any, packed: Any) -> dict[Row, int]:
    """The rule, for each left row by itself."""
    out: Counter[Row] = Counter()
    for a, count in sides[0].items():
        found = [b for b, n in sides[1].items() if n > 0 and a[0] is not None and b[0] == a[0]]
        found = [b for b in found if tolerance is None or abs(b[1] - a[1]) <= tolerance]
        found = [b for b in found if strategy != "backward" or b[1] <= a[1]]
        found = [b for b in found if strategy != "forward" or b[1] >= a[1]]
        best = min(found, key=lambda b: (abs(b[1] - a[1]), -b[1], digest(packed(b))), default=(None, None, None))
        out[(*a, *best[1:])] += count
    return dict(+out)


@pytest.mark.parametrize(("strategy", "tolerance"), CASES)
@settings(max_examples=10)
@given(rng=st.randoms(use_true_random=False), steps=st.integers(1, 5), much=st.booleans())
def test_after_each_step_the_sum_of_the_output_is_what_the_rule_gives(
    strategy: Any, tolerance: Any, rng: random.Random, steps: int, much: bool
) -> None:
    task, total = JoinTask(*both_changing(strategy, tolerance)), Counter[Any]()
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
        assert {row: n for row, n in total.items() if n} == answer(strategy, tolerance, sides, packed_by(task))


def packed_by(task: JoinTask) -> Any:
    """A right row as its state has it: it orders rows of one time."""
    import polars as pl

    from falkirk.state.codec import encode_values

    kept = task.operator.sides[1].kept
    return lambda row: encode_values(kept, pl.DataFrame([row], kept, orient="row"))[0]


def flowing(strategy: Any, tolerance: int | None, regime: Any = None) -> fk.Flow:
    flow = fk.Flow("near", regime=regime)
    a, b = (flow.source(name, value=VALUE, time="at", late="3ms") for name in ("a", "b"))
    far = None if tolerance is None else timedelta(milliseconds=tolerance)
    joined = a.join_asof(b, by="k", strategy=strategy, tolerance=far, id="join")
    joined.sink("out", key=list(joined.schema), value=fk.Json(), changes="weights")
    return flow


def sum_of(app: fk.testing.App) -> Counter[Row]:
    total: Counter[Row] = Counter()
    for row in app.sinks["out"].rows:
        total[tuple(row[c] for c in COLUMNS)] += row["weight"]
    return +total


@pytest.mark.parametrize(("strategy", "tolerance"), CASES)
@settings(max_examples=2)
@given(rng=st.randoms(use_true_random=False), cut=st.integers(1, 60))
def test_rows_that_are_not_needed_any_more_leave_the_state(
    strategy: Any, tolerance: Any, rng: random.Random, cut: int
) -> None:
    app = fk.testing.App(flowing(strategy, tolerance))
    given = in_order(rng, 60), in_order(rng, 60)
    for part in (slice(None, cut), slice(cut, None)):
        for name, rows in zip("ab", given, strict=True):
            app.send(name, [{**row, "at": 100 * row["at"]} for row in rows[part]])
        app.run()
    for at in (100_000, 200_000):
        for name in "ab":
            app.send(name, [{"k": 9, "at": at, "v": 0}])
        app.run()
    last = Counter([(9, 100_000, 0), (9, 200_000, 0)])
    sides = [Counter((row["k"], 100 * row["at"], row["v"]) for row in rows) + last for rows in given]
    # No two rows of one key have one time, so their bytes do not matter.
    assert dict(sum_of(app)) == answer(strategy, tolerance, sides, lambda row: b"")
    left, right = app.state("join"), app.state("join/right")
    assert left["at"].to_list() == [200_000]
    if tolerance is None:
        past = {k: max(at for other, at, _ in sides[1] if other == k and at < 200_000) for k, _, _ in sides[1]}
        assert sorted(right.select("k", "at").rows()) == sorted([*past.items(), (9, 200_000)])
    else:
        assert right["at"].to_list() == [200_000]


def test_the_last_row_of_a_key_with_many_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval_expiry, "AT_ONCE", 7)
    app = fk.testing.App(flowing("backward", None))
    app.send("b", [{"k": 1, "at": n, "v": n} for n in range(1, 200)])
    for name in "ab":
        app.send(name, [{"k": 2, "at": 100_000, "v": 0}])
    app.run()
    assert sorted(app.state("join/right").select("k", "at").rows()) == [(1, 199), (2, 100_000)]
    app.send("a", [{"k": 1, "at": 100_001, "v": 5}])
    app.run()
    assert (1, 100_001, 5, 199, 199) in sum_of(app)


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_it_is_the_same_after_crashes_everywhere(regime: Any) -> None:
    rng = random.Random(5)
    rows = {name: in_order(rng, 12) for name in ("a", "b")}
    app = fk.testing.run(flowing("nearest", 9, regime), rows, crash_at="everywhere", step_rows=3)
    sides = [Counter((row["k"], row["at"], row["v"]) for row in some) for some in rows.values()]
    assert dict(sum_of(app)) == answer("nearest", 9, sides, lambda row: b"")


def test_a_new_row_of_a_hot_key_costs_one_look() -> None:
    costs = []
    for rows in (2_000, 20_000):
        state = CountingState()
        task = JoinTask(*both_changing("backward", None), state)
        task.step(right=[(1, at, 0, 1) for at in range(rows)])
        before = state.gets, state.puts
        assert task.step([(1, 1_500, 7, 1)]) == [(1, 1_500, 7, 1_500, 0, 1)]
        costs.append((state.gets - before[0], state.puts - before[1]))
    assert costs[0] == costs[1]


def test_explain_says_what_is_kept() -> None:
    text = explain(flowing("nearest", 4))
    assert "as-of join join: a with b on k, nearest within 4ms" in text
    assert "past their time and 4ms on the left side, 8ms on the right\n" in text
    assert "0s on the right, and the last one of each key" in explain(flowing("backward", None))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"by": "k", "strategy": "before"}, "strategy='before' is not known"),
        ({"by": "k", "strategy": "forward"}, "needs a tolerance"),
        ({"by": "k", "tolerance": "5 min"}, "is not a duration"),
        ({"by": "k", "tolerance": "40000d"}, "more than a hundred years"),
        ({}, "the columns to join on are missing"),
        ({"by": "k", "by_left": "k"}, "by= and by_left= or by_right= are both given"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_line(given: Any, what: str) -> None:
    flow = fk.Flow("f")
    a, b = (flow.source(name, value=VALUE, time="at") for name in ("a", "b"))
    with pytest.raises(DefinitionError, match=what) as raised:
        a.join_asof(b, **given)
    assert "test_asof.py" in raised.value.where


def test_both_streams_need_an_event_time() -> None:
    flow = fk.Flow("f")
    a, b = flow.source("a", value=VALUE, time="at"), flow.source("b", value=VALUE)
    with pytest.raises(DefinitionError, match="join_asof is about event time, and the other stream \\('b'\\) has none"):
        a.join_asof(b, by="k")
