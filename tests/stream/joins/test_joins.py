"""Joins in flows: where rows meet, what the result is called, what is kept, and what a change of a hot key costs."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import narwhals as nw
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.joins.task import CountingState, JoinTask, joined_by

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.dataflow.batch import TS
from falkirk.stream.flow.explain import explain
from falkirk.testing.memory import MemoryApp

A = fk.Json({"a": fk.Int64, "x": fk.Int64, "c": fk.Int64})
B = fk.Json({"b": fk.Int64, "x": fk.Int64, "d": fk.Int64})


def two(flow: fk.Flow) -> tuple[fk.Stream, fk.Stream]:
    return flow.source("as", key="a", value=A), flow.source("bs", key="b", value=B)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("on", [("a", "b"), ("x", "x"), (["a", "x"], ["b", "x"]), (fk.col("a") + 1, "b")])
def test_columns_are_called_as_in_polars(how: Any, on: Any) -> None:
    left, right = two(fk.Flow("f"))
    frames = [pl.DataFrame(schema=stream.schema) for stream in (left, right)]
    native = [pl.col("a") + 1 if isinstance(each, nw.Expr) else each for each in on]
    coalesce = True if how == "full" and not isinstance(on[0], nw.Expr) else None
    expected = frames[0].join(frames[1], left_on=native[0], right_on=native[1], how=how, coalesce=coalesce)
    found = left.join(right, left_on=on[0], right_on=on[1], how=how)
    assert dict(found.schema) == dict(expected.schema)


def test_both_sides_in_one_task_need_no_exchange() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    left.join(right, left_on="a", right_on="b").sink("out", value=fk.Json())
    (stage,) = flow.plan().stages
    assert [i.topic for i in stage.inputs] == ["as", "bs"]


def test_sides_that_are_keyed_otherwise_meet_through_exchanges() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    left.join(right, on="x").sink("out", value=fk.Json())
    assert [len(stage.inputs) for stage in flow.plan().stages] == [1, 1, 2]


def test_a_result_that_an_exchange_has_placed_by_the_key_is_not_sent_again() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    third = flow.source("cs", key=None, value=fk.Json({"x": fk.Int64, "e": fk.Int64}))
    joined = left.join(right, on="x", id="first").join(third, on="x", id="second")
    joined.group_by("x", id="count").agg(n=fk.len()).sink("out", key="x", value=fk.Json())
    *_, last = flow.plan().stages
    assert [o.id for o in last.operators if o.stateful] == ["first", "second", "count"]  # type: ignore[attr-defined]
    assert len(last.inputs) == 3


@settings(max_examples=20)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.none() | st.integers(0, 3)), max_size=25),
    rng=st.randoms(use_true_random=False),
)
def test_joins_in_a_row_over_several_tasks_give_each_pair_once(rows: Any, rng: random.Random) -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    joined = left.join(right, on="x", id="first").join(left, left_on="d", right_on="a", id="second")
    joined.sink("out", value=fk.Json())
    app = MemoryApp(flow, {"as": 2, "bs": 3, "out": 2}, tasks=3)
    lefts, rights = [], []
    for i, (of_left, key, x) in enumerate(rows):
        row = {"a": key, "x": x, "c": i} if of_left else {"b": key, "x": x, "d": i % 4}
        (lefts if of_left else rights).append(row)
        app.append("as" if of_left else "bs", str(key).encode(), msgspec.json.encode(row))
    app.run(rng)
    found = Counter(tuple(msgspec.json.decode(r.value() or b"").values()) for r in app.records("out"))
    assert found == Counter(
        (a["a"], a["x"], a["c"], b["b"], b["d"], again["x"], again["c"])
        for a in lefts for b in rights for again in lefts
        if a["x"] is not None and a["x"] == b["x"] and b["d"] == again["a"]
    )  # fmt: skip


def test_a_stream_can_be_joined_with_itself() -> None:
    flow = fk.Flow("f")
    links = flow.source("links", key="from", value=fk.Json({"from": str, "to": str}))
    links.join(links, left_on="to", right_on="from").sink("paths", value=fk.Json())
    rows = [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "c"}]
    found = fk.testing.run(flow, {"links": rows}).sinks["paths"].rows
    assert {(r["from"], r["to"], r["to_right"]) for r in found} == {("a", "b", "c"), ("b", "c", "c"), ("c", "c", "c")}


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_a_join_of_grouped_results_survives_a_crash_at_every_point_of_a_step(regime: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    left, right = two(flow)
    ours = left.group_by("x", id="ours").agg(n=fk.len(), top=fk.max("c"))
    theirs = right.group_by("x", id="theirs").agg(m=fk.len())
    ours.join(theirs, on="x", how="full", id="both").sink("out", key="x", value=fk.Json())
    given = {
        "as": [{"a": i % 3, "x": i % 4, "c": i} for i in range(40)],
        "bs": [{"b": i % 3, "x": i % 5, "d": i} for i in range(40)],
    }
    table = fk.testing.run(flow, given, crash_at=[1, 2]).sinks["out"].table
    assert table == {
        x: {"x": x, "n": 10 if x < 4 else None, "top": 36 + x if x < 4 else None, "m": 8} for x in range(5)
    }


def test_a_row_that_goes_and_comes_back_in_one_step_changes_nothing() -> None:
    task = JoinTask(*joined_by("left", pl.Int64()))
    assert task.step([(1, 1, 1)], [(1, 2, 1)]) == [(1, 1, 2, 1)]
    assert task.step([(1, 1, -1), (1, 1, 1)], [(1, 2, 1), (1, 2, -1)]) == []


def test_weights_are_multiplied() -> None:
    task = JoinTask(*joined_by("inner", pl.Int64()))
    assert task.step([(1, 1, 2)], [(1, 2, 3)]) == [(1, 1, 2, 6)]
    assert task.step(right=[(1, 2, -2)]) == [(1, 1, 2, -4)]


def test_a_row_that_was_never_added_cannot_be_taken_back() -> None:
    task = JoinTask(*joined_by("inner", pl.Int64()))
    task.step([(1, 1, 1)])
    with pytest.raises(UserCodeError, match=r"\{'k': 1, 'v': 2\} is retracted, but was never added"):
        task.step([(1, 2, -1)])


def test_a_result_is_as_late_as_the_later_side() -> None:
    task = JoinTask(*joined_by("inner", pl.Int64()))
    task.step([(1, 1, 1)], time=900)
    out = task.batch(right=[(1, 2, 1)], time=700)
    assert out is not None
    assert out.meta[TS].to_list() == [900]


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_a_change_of_a_hot_key_costs_what_it_changes(how: Any) -> None:
    costs = []
    for rows in (2_000, 100_000):
        state = CountingState()
        task = JoinTask(*joined_by(how, pl.Int64()), state)
        task.step([(1, v, 1) for v in range(rows)], [(1, 0, 1)] if how == "semi" else [])
        cost = []
        for left, right in (
            ([(1, -1, 1)], []),  # an insert on the hot side
            ([(1, -1, -1), (1, 7, -1)], []),  # deletes
            ([], [(2, 0, 1)]),  # another key
            ([], [(1, 1, 1)] if how == "semi" else [(3, 1, 1)]),  # a probe that changes nothing
        ):
            before = state.gets, state.puts, state.calls
            task.step(left, right)
            cost.append(tuple(b - a for a, b in zip(before, (state.gets, state.puts, state.calls), strict=True)))
        costs.append(cost)
    assert costs[0] == costs[1]
    assert max(gets for gets, _, _ in costs[0]) <= 6


def test_a_key_that_shrinks_leaves_nothing_behind() -> None:
    state = CountingState()
    task = JoinTask(*joined_by("inner", pl.Int64()), state)
    task.step([(1, v, 1) for v in range(5000)])
    grown = len(state.data)
    for start in range(0, 5000, 500):
        task.step([(1, v, -1) for v in range(start, start + 500)])
    assert grown == 5001
    assert not state.data


def test_stored_rows_of_both_sides_can_be_read() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    left.join(right, on="x", id="both").sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("as", [{"a": 1, "x": 7, "c": c % 150} for c in range(300)])
    app.send("bs", [{"b": 2, "x": None, "d": 1}, {"b": 2, "x": 8, "d": 1}])
    app.run()
    rows = app.state("both").sort("c")
    assert rows.columns == ["x", "a", "c", "__falkirk_rows"]
    assert rows.rows() == [(7, 1, c, 2) for c in range(150)]
    assert app.state("both/right").rows(named=True) == [{"x": 8, "b": 2, "d": 1, "__falkirk_rows": 1}]


def test_a_plan_warns_of_state_without_a_bound() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    left.join(right, on="x", id="both").sink("out", value=fk.Json())
    assert "inner join both: as with bs on x" in explain(flow)
    assert "\n          keeps all rows of both sides\n" in explain(flow)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"on": "y"}, "there is no column 'y'"),
        ({}, "the columns to join on are missing"),
        ({"left_on": "a"}, "the columns to join on are missing"),
        ({"on": "x", "left_on": "a"}, "are both given"),
        ({"left_on": ["a", "x"], "right_on": "b"}, "left_on= names 2 columns, and right_on= 1 column"),
        ({"left_on": fk.col("a").cast(fk.String), "right_on": "b"}, "they never match"),
        ({"on": "x", "how": "outer"}, "how='outer' is not a join"),
        ({"left_on": "a", "right_on": "b", "suffix": ""}, "two columns 'x'"),
        ({"on": fk.col("x").sum()}, "is not row-wise"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_line(given: Any, what: str) -> None:
    left, right = two(fk.Flow("f"))
    with pytest.raises(DefinitionError) as error:
        left.join(right, **given)
    assert what in str(error.value)
    assert "test_joins.py" in str(error.value)


def test_only_streams_of_the_same_flow_are_joined() -> None:
    flow, other = fk.Flow("f"), fk.Flow("g")
    left, _ = two(flow)
    with pytest.raises(DefinitionError, match="different flows"):
        left.join(two(other)[1], on="x")
    with pytest.raises(DefinitionError, match="a table is looked up"):
        left.join(flow.table("t", key="x", value=fk.Json({"y": int})), on="x")  # type: ignore[arg-type]


def test_what_is_known_to_identify_a_row_is_known_of_the_result() -> None:
    left, right = two(fk.Flow("f"))
    by_x = left.group_by("x", id="1").agg(n=fk.len())
    by_both = right.group_by("x", "d", id="2").agg(m=fk.len())
    assert by_both.join(by_x, on="x", id="3")._op.unique == {"x", "d"}
    assert by_x.join(by_both, on="x", id="4")._op.unique == {"x", "d"}
    assert by_x.join(by_both, on="x", how="semi", id="5")._op.unique == {"x"}
    assert by_x.join(right, on="x", id="6")._op.unique is None
    assert not left.join(right, on="x", id="7")._op.changes
    assert left.join(right, on="x", how="left", id="8")._op.changes


def test_a_changing_result_is_not_written_by_a_key_that_several_tasks_have() -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    by_a = left.group_by("a", id="1").agg(x=fk.max("x"))
    joined = by_a.join(right.group_by("x", id="2").agg(n=fk.len()), on="x", id="both")
    for stream in (joined, joined.repartition("a")):
        with pytest.raises(DefinitionError, match="several tasks would write it"):
            stream.sink("out", key="a", value=fk.Json())
    joined.sink("out", key=["x", "a"], value=fk.Json())
    joined.group_by("a", id="again").agg(n=fk.max("n")).sink("by-a", key="a", value=fk.Json())


def test_a_join_that_grows_without_end_is_warned_of_by_name(caplog: pytest.LogCaptureFixture) -> None:
    flow = fk.Flow("f")
    left, right = two(flow)
    left.join(right, on="x", id="both")
    (said,) = caplog.messages
    assert "join 'both' (" in said
    assert "keeps every row of as and bs for ever. To do: join within= a span of event time" in said
    assert "grows without end: join within=" in explain(flow_with(left.join(right, on="x", id="again"), flow))
    caplog.clear()
    counts = [left.group_by("x", id=name).agg(n=fk.len()) for name in ("1", "2")]
    counts[0].join(counts[1], on="x")
    assert not caplog.messages


def flow_with(stream: fk.Stream, flow: fk.Flow) -> fk.Flow:
    stream.sink("out", value=fk.Json())
    return flow
