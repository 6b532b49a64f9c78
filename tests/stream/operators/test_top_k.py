"""The best rows of each group, against DuckDB."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.operators.against import Change, Driven, changes

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError

SCHEMA = {"k": fk.Int64, "f": fk.Float64, "i": fk.Int64, "s": fk.String}
row = st.tuples(
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from([-1.5, 0.0, 0.1, 1e3, float("nan"), float("inf")]),
    st.none() | st.integers(-2, 2),
    st.sampled_from(["", "a", "b", "ü\0", "ü"]),
)
ORDERS: dict[str, tuple[Any, Any, str]] = {
    "greatest": ("f", False, "f desc nulls last, i nulls first, s"),
    "smallest": ("f", True, "f nulls last, i nulls first, s"),
    "text": ("s", False, "s desc, f nulls first, i nulls first"),
    "both ways": (["i", "s"], [True, False], "i nulls last, s desc, f nulls first"),
}


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rank", [None, "rank"])
@pytest.mark.parametrize("retract", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@given(steps=changes(row), k=st.integers(1, 4))
@settings(max_examples=6, deadline=None)
def test_the_top_of_each_group_is_what_sql_gives(
    order: str, retract: bool, rank: str | None, ties: bool, steps: list[Change], k: int
) -> None:
    by, reverse, sql = ORDERS[order]
    function = "rank" if ties else "row_number"
    if ties:  # of equal rows none is before another
        sql = ", ".join(sql.split(", ")[: 1 if isinstance(by, str) else len(by)])
    made = lambda a: a.group_by("k").top_k(k, by=by, reverse=reverse, rank=rank, ties=ties)  # noqa: E731
    driven = Driven(SCHEMA, made, retract=retract)
    query = f"""select * {"exclude n" if rank is None else ""} from
        (select *, {function}() over (partition by k order by {sql}) as n from a) where n <= {k}"""
    for change in steps:
        assert driven.step(change) == driven.wanted(query)


class Reads:
    """A state that counts what is read and written."""

    def __init__(self, state: Any) -> None:
        self.state, self.count = state, 0

    def get(self, keys: Any) -> Any:
        self.count += len(keys)
        return self.state.get(keys)

    def scan(self, start: bytes, end: bytes) -> Any:
        for pair in self.state.scan(start, end):
            self.count += 1
            yield pair

    def put(self, keys: Any, values: Any) -> None:
        self.count += len(keys)
        self.state.put(keys, values)


@pytest.mark.parametrize("size", [10, 2_000])
def test_a_change_reads_the_top_and_not_the_group(size: int) -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").top_k(3, by="i"), retract=True)
    driven.step([((1, None, i, ""), 1) for i in range(size)])
    driven.state = reads = Reads(driven.state)  # type: ignore[assignment]
    best = size
    for change in ([((1, None, 0, "x"), 1)], [((1, None, best - 1, ""), -1), ((1, None, best - 2, ""), -1)]):
        reads.count = 0
        driven.step(change)
        assert reads.count <= 2 * len(change) + 2 + 3
    assert [i for (_, _, i, _) in driven.output.elements()] == [size - 3, size - 4, size - 5]


def test_a_gap_is_filled_by_the_next_rows_and_those_that_tie_with_them() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").top_k(1, by="i", ties=True), retract=True)
    driven.step([((1, None, i, s), 1) for i in range(1_000) for s in "abc"])
    driven.state = reads = Reads(driven.state)  # type: ignore[assignment]
    driven.step([((1, None, 999, s), -1) for s in "ab"])
    assert [(i, s) for (_, _, i, s) in driven.output.elements()] == [(999, "c")]
    driven.step([((1, None, 999, "c"), -1)])
    assert sorted((i, s) for (_, _, i, s) in driven.output.elements()) == [(998, s) for s in "abc"]
    assert reads.count <= 20


def test_a_worse_row_changes_nothing_and_a_better_row_changes_only_two_rows_without_a_rank() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").top_k(3, by="i"), retract=False)
    driven.step([((1, None, i, ""), 1) for i in (5, 6, 7)])
    for row, changed in (((1, None, 4, ""), 0), ((1, None, 9, ""), 2)):
        batch = driven.emitted([(row, 1)])
        assert (0 if batch is None else len(batch)) == changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regime", "rank", "totals"),
    [
        (fk.EagerCheckpoint(), None, True),
        (fk.EagerCheckpoint(), "rank", False),
        (fk.LazyCheckpoint(), None, False),
        (fk.LazyCheckpoint(), "rank", True),
    ],
)
def test_tops_are_the_same_after_crashes_everywhere(regime: Any, rank: str | None, totals: bool) -> None:
    rows = [{"id": i, "g": "ab"[i % 2], "x": x} for i, x in enumerate([5, 14, 3, 22, 35, 28, 61, 12, 90, -70])]
    flow = fk.Flow("best", regime=regime)
    source: Any = flow.source("rows", value=fk.Json({"id": int, "g": str, "x": int}))
    if totals:
        source = source.with_columns(id=fk.col("id") % 5).group_by("id").agg(x=fk.sum("x"), g=fk.max("g"))
    best = source.group_by("g", id="best").top_k(2, by="x", rank=rank)
    best.sink("out", key=["g", rank or "id"], value=fk.Json())
    app = fk.testing.run(flow, {"rows": rows}, crash_at="everywhere", step_rows=2)
    found = [(row["g"], row["id"], row["x"]) for row in app.sinks["out"].table.values()]
    wanted = [("a", 6, 61), ("a", 8, 90), ("b", 3, 22), ("b", 5, 28)]
    assert sorted(found) == ([("b", 1, 75), ("b", 3, 112)] if totals else wanted)
    assert app.state("best").height == len(found)


def test_a_row_that_was_never_added_stops_the_app() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").top_k(1, by="i"), retract=True)
    driven.inputs[0][(1, None, 1, "")] = 1
    with pytest.raises(UserCodeError, match="is retracted, but was never added"):
        driven.step([((1, None, 1, ""), -1)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"k": 0, "by": "i"}, "k=0 is not a number of rows"),
        ({"k": 1, "by": "nope"}, "there is no column 'nope'"),
        ({"k": 1, "by": []}, "no column to order by"),
        ({"k": 1, "by": "k"}, "column 'k' is the same in the whole group"),
        ({"k": 1, "by": ["i", "i"]}, "column 'i' is named twice"),
        ({"k": 1, "by": "i", "reverse": [True, False]}, "not one value for each column"),
        ({"k": 1, "by": "i", "rank": "s"}, "rank='s' is not a new column"),
    ],
)
def test_what_cannot_have_a_top_is_named(given: Any, message: str) -> None:
    source = fk.Flow("f").source("a", value=fk.Json(SCHEMA))
    with pytest.raises(DefinitionError, match=message):
        source.group_by("k").top_k(**given)


def test_a_sink_is_keyed_by_the_group_where_a_row_may_change_its_group() -> None:
    """Two tasks would write one key, and a tombstone could overtake the newer row."""
    source = fk.Flow("f").source("a", value=fk.Json(SCHEMA))
    best = source.group_by("i", id="totals").agg(k=fk.max("k"), f=fk.sum("f")).group_by("k").top_k(2, by="f")
    with pytest.raises(DefinitionError, match="does not identify a row"):
        best.sink("out", key="i", value=fk.Json())
    best.sink("out", key=["k", "i"], value=fk.Json())


def test_windows_are_aggregated_before_their_top() -> None:
    source = fk.Flow("f").source("a", value=fk.Json(SCHEMA))
    with pytest.raises(DefinitionError, match="the rows of windows have no top"):
        source.group_by("k", fk.tumbling("i", "1s")).top_k(1, by="f")
