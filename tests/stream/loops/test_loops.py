"""What a loop may contain, what it says of itself, and what happens when it does not end."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.loops.graphs import LOOPS, closure
from tests.stream.loops.test_graphs import applied, flow_of

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.state.codec import prefix_end
from falkirk.state.timed import added, bytes_of, times_of
from falkirk.stream.access.stored_state import table_of
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.loops.folds import Floats
from falkirk.testing.memory import MemoryApp


def links_of(flow: fk.Flow) -> Any:
    return flow.source("links", value=fk.Json({"a": int, "b": int}))


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
@pytest.mark.parametrize("name", ["closure", "components"])
def test_a_loop_is_the_same_after_crashes_everywhere(name: str, regime: Any) -> None:
    edges = [(0, 1, 1), (1, 2, 1), (2, 0, 1), (3, 4, 1), (2, 3, 1)]
    there: Counter[Any] = Counter()
    rows = applied(there, [*((edge, 1) for edge in edges), ((0, 1, 1), -1), ((2, 3, 1), -1), ((4, 3, 1), 1)])
    app = fk.testing.run(flow_of(name, regime), {"edges": rows}, crash_at="everywhere", step_rows=3)
    found = Counter(tuple(row.values()) for row in app.sinks["out"].table.values())
    assert found == LOOPS[name][1](+there)


def test_rows_of_a_cycle_do_not_support_each_other() -> None:
    app = MemoryApp(flow_of("closure"))
    for a, b, weight in [(0, 1, 1), (1, 2, 1), (2, 1, 1), (0, 1, -1)]:
        app.append("edges", None, json.dumps({"a": a, "b": b, "w": 1, "weight": weight}).encode())
        app.run()
    found = {(row["a"], row["b"]) for row in map(json.loads, app.latest("out").values())}
    assert found == {(1, 2), (2, 1), (1, 1), (2, 2)}


def test_a_loop_that_does_not_end_stops_the_app_with_the_sizes_of_its_iterations() -> None:
    flow = fk.Flow("f")
    links = links_of(flow)
    links.iterate(lambda rows: rows.with_columns(b=fk.col("b") + 1), max_iterations=7).sink(
        "out", key=["a", "b"], value=fk.Json()
    )
    with pytest.raises(
        UserCodeError, match=r"still change after 7 iterations: 2 in iteration 4, .*2 in iteration 8"
    ) as e:
        fk.testing.run(flow, {"links": [{"a": 1, "b": 2}]})
    assert "raise max_iterations=" in e.value.hint
    assert "test_loops.py" in e.value.where


def test_a_function_that_fails_inside_a_loop_stops_the_app() -> None:
    flow = fk.Flow("f", on_error=fk.Skip())
    looped = links_of(flow).iterate(lambda rows: rows.map(lambda row: {"a": row["a"], "b": 1 // row["b"]}))
    looped.sink("out", key=["a", "b"], value=fk.Json())
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        fk.testing.run(flow, {"links": [{"a": 1, "b": 0}]})


def _sunk(rows: Any) -> Any:
    rows.sink("inner", key=["a", "b"], value=fk.Json())
    return rows.unique()


WRONG: dict[str, tuple[Any, str]] = {
    "not a function": (5, "5"),
    "not a stream": (lambda rows: 5, "the body gives 5, not a stream"),
    "other columns": (
        lambda rows: rows.select("a"),
        "the body gives a Int64, and the loop begins with a Int64, b Int64",
    ),
    "the same rows": (lambda rows: rows, "does not follow from the rows"),
    "a sink": (_sunk, "a sink cannot be inside a loop"),
    "a repartition": (lambda rows: rows.repartition("a"), "a loop cannot run repartition"),
    "a loop": (lambda rows: rows.iterate(lambda inner: inner.unique()), "a loop cannot run iterate"),
    "an aggregate": (
        lambda rows: rows.group_by("a").agg(b=fk.n_unique("b")),
        "a loop cannot keep b = n_unique",
    ),
    "on_error": (lambda rows: rows.map(lambda row: row, on_error=fk.Skip()), "cannot go on without a row that failed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_loop_cannot_be_is_said_when_it_is_defined(case: str) -> None:
    body, words = WRONG[case]
    flow = fk.Flow("f")
    links = links_of(flow)
    operators = list(flow.graph.operators)
    with pytest.raises(DefinitionError) as raised:
        links.iterate(body)
    assert words in str(raised.value)
    assert "to do" in str(raised.value)
    visible = [o for o in flow.graph.operators if not any(c.startswith("__falkirk") for c in o.schema)]
    assert visible == operators


def test_the_bound_and_the_columns_are_checked() -> None:
    links = links_of(fk.Flow("f"))
    for bound in (0, True, 2.5):
        with pytest.raises(DefinitionError, match="is not a number of iterations"):
            links.iterate(lambda rows: rows.unique(), max_iterations=bound)  # type: ignore[arg-type]
    lists = fk.Flow("g").source("lists", value=fk.Json({"a": fk.List(fk.Int64)}))
    with pytest.raises(DefinitionError, match=r"column 'a' is List\(Int64\), and rows of a loop cannot"):
        lists.iterate(lambda rows: rows.unique())


def test_streams_that_do_not_depend_on_the_loop_stay_outside() -> None:
    flow = fk.Flow("f")
    links = links_of(flow)

    def further(near: Any) -> Any:
        longer = links.filter(fk.col("a") < fk.col("b")).unique(id="longer")
        return near.join(longer, left_on="b", right_on="a", suffix="2").select("a", b="b2").concat(links).unique()

    links.iterate(further).sink("out", key=["a", "b"], value=fk.Json())
    assert any(o.id == "longer" for stage in flow.plan().stages for o in stage.operators)  # type: ignore[attr-defined]


def test_people_can_read_the_result_in_state() -> None:
    flow = flow_of("components")
    app = MemoryApp(flow, tasks=3)
    for a, b in [(0, 1), (2, 1), (5, 4)]:
        app.append("edges", None, json.dumps({"a": a, "b": b, "w": 1, "weight": 1}).encode())
    app.run()
    table = table_of(flow.plan(), "loop")
    pairs = [
        pair
        for (stage, _), state in app.states.items()
        if stage == table.stage
        for prefix in table.prefixes()
        for pair in state.scan(prefix, prefix_end(prefix))
    ]
    assert sorted(table.frame(pairs).rows()) == [(0, 0, 1), (1, 0, 1), (2, 0, 1), (4, 4, 1), (5, 4, 1)]


def test_a_loop_without_rows_keeps_nothing() -> None:
    app = MemoryApp(flow_of("components"))
    for weight in (1, -1):
        for a, b in [(0, 1), (2, 1), (5, 4), (1, 2)]:
            app.append("edges", None, json.dumps({"a": a, "b": b, "w": 1, "weight": weight}).encode())
        app.run()
    assert [state.data for (stage, _), state in app.states.items() if stage == "loop"] == [{}]


def test_explain_shows_the_body_of_a_loop() -> None:
    flow = fk.Flow("f")
    edges = flow.source("edges", value=fk.Json({"a": int, "b": int, "w": int}))
    closure(edges).sink("out", key=["a", "b"], value=fk.Json())
    text = explain(flow)
    assert "do      iterate loop: from select, 1000 iterations at most, in one task" in text
    assert "          each iteration:\n            inner join" in text
    assert "            unique" in text


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_each_kind_of_join_works_inside_a_loop(how: str) -> None:
    """One pass: the loop begins with rows that its body does not change again."""
    flow = fk.Flow("f")
    a, b = (flow.source(n, value=fk.Json({"k": int, n: int, "weight": int}), changes="weights") for n in "ab")
    both = a.join(b, on="k", how=how, id="outside")  # type: ignore[arg-type]
    columns = list(both.schema)

    def once(rows: Any) -> Any:
        mine = rows.filter(fk.col("k") == -1).select("k", a="k").concat(a)
        return mine.join(b, on="k", how=how).select(*columns)  # type: ignore[arg-type]

    both.sink("outside", value=fk.Json(), key=columns)
    both.iterate(once, id="loop").sink("inside", value=fk.Json(), key=columns)
    app = MemoryApp(flow)
    given: list[tuple[str, int | None, int, int]] = [
        ("a", 1, 7, 1), ("b", 1, 8, 1), ("b", 2, 9, 1), ("a", None, 5, 1), ("b", 1, 8, -1), ("a", 2, 6, 1), ("b", None, 4, 1),
    ]  # fmt: skip
    for topic, k, value, weight in given:
        app.append(topic, None, json.dumps({"k": k, topic: value, "weight": weight}).encode())
        app.run()
        assert app.latest("inside") == app.latest("outside")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=20), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_sum_of_floats_is_exact_in_any_order(values: list[float], rng: Any) -> None:
    fold, parts = Floats(mean=False), [0] * Floats.width
    changes = [(v, 1) for v in values] + [
        (1e300, 1),
        (1e300, -1),
        (math.inf, 1),
        (math.inf, -1),
        (math.nan, 1),
        (math.nan, -1),
    ]
    rng.shuffle(changes)
    for value, weight in changes:
        fold.add(parts, 0, value, weight)
    try:
        exact = math.fsum(values)
    except OverflowError:
        return
    assert fold.result(parts) == exact


times = st.dictionaries(st.integers(0, 5), st.integers(-3, 3).filter(bool))


@given(times, times)
def test_times_are_kept_and_added(one: dict[int, int], other: dict[int, int]) -> None:
    assert times_of(bytes_of(one)) == one
    total = added(one, other)
    assert list(total) == sorted(total)
    assert all(total.get(i, 0) == one.get(i, 0) + other.get(i, 0) for i in range(6))
    assert 0 not in total.values()


@pytest.mark.parametrize("step_rows", [1, 2, 7])
def test_a_loop_is_a_table_that_has_the_present_row_of_each_key(step_rows: int) -> None:
    flow = fk.Flow("ways")
    links = flow.source("links", value=fk.Json({"a": str, "b": str, "weight": int}), changes="weights")
    direct = links.select("a", "b", n=fk.lit(1).cast(fk.Int64))

    def further(near: Any) -> Any:
        longer = near.filter(fk.col("n") < 9).join(links, left_on="b", right_on="a", suffix="_2")
        more = longer.select("a", b="b_2", n=fk.col("n") + 1)
        return more.concat(direct).group_by("a", "b").agg(n=fk.min("n"))

    near = flow.table(direct.iterate(further, id="near"), key=["a", "b"])
    asked = flow.source("asked", value=fk.Json({"a": str, "b": str}))
    asked.lookup(near, id="found").sink("out", key="b", value=fk.Json())
    app = fk.testing.App(flow, step_rows=step_rows)
    changes = ["+AB", "+BC", "+CD", "+DE", "+AD", "+BE", "-AD", "-BC", "+BD", "-BE", "+DC", "+AD", "-AB", "-AD"]
    wanted = [None, None, None, 4, 2, 2, 2, 2, 2, 3, 3, 2, 2, None]
    found = []
    for sign, a, b in changes:
        app.send("links", [{"a": a, "b": b, "weight": int(f"{sign}1")}])
        app.run()
        app.send("asked", [{"a": "A", "b": "E"}])
        app.run()
        found.append(app.sinks["out"].rows[-1]["n"])
    assert found == wanted
