"""Set operations against DuckDB, and lists."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database

import falkirk as fk
from falkirk.errors import DefinitionError

SQL = {"union": "union", "intersect": "intersect", "subtract": "except"}
row = st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "v": st.none() | st.sampled_from(["", "x"])})
Rows = list[dict[str, Any]]


def combined(kind: str, regime: Any = None) -> fk.Flow:
    flow = fk.Flow("sets", regime=regime)
    a, b = (flow.source(name, value=fk.Json({"k": int, "v": str})) for name in "ab")
    getattr(a, kind)(b, id="set").sink("out", key=["k", "v"], value=fk.Json())
    return flow


def by_sql(kind: str, a: Rows, b: Rows) -> Counter[Any]:
    schema = {"k": pl.Int64, "v": pl.String}
    with database(a=pl.DataFrame(a, schema), b=pl.DataFrame(b, schema)) as db:
        return Counter(db.execute(f"select * from a {SQL[kind]} select * from b").fetchall())


def table_of(app: fk.testing.App) -> Counter[Any]:
    return Counter((row["k"], row["v"]) for row in app.sinks["out"].table.values())


@pytest.mark.parametrize("kind", SQL)
@given(a=st.lists(row, max_size=6), b=st.lists(row, max_size=6), later=st.lists(row, max_size=4))
@settings(max_examples=15, deadline=None)
def test_a_set_operation_is_what_sql_gives_after_each_step(kind: str, a: Rows, b: Rows, later: Rows) -> None:
    app = fk.testing.App(combined(kind), partitions=2)
    app.send("a", a)
    app.send("b", b)
    app.run()
    assert table_of(app) == by_sql(kind, a, b)
    app.send("b", later)
    app.run()
    assert table_of(app) == by_sql(kind, a, b + later)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "regime"), [*zip(SQL, cycle([fk.EagerCheckpoint(), fk.LazyCheckpoint()]), strict=False)]
)
def test_a_set_operation_is_the_same_after_crashes_everywhere(kind: str, regime: Any) -> None:
    a: Rows = [{"k": k, "v": v} for k in (1, 2, 3) for v in ("x", None)]
    b: Rows = [{"k": k, "v": "x"} for k in (2, 4)]
    app = fk.testing.run(combined(kind, regime), {"a": a, "b": b}, crash_at="everywhere", step_rows=2)
    assert table_of(app) == by_sql(kind, a, b)


def test_a_column_named_like_a_count_stays() -> None:
    flow = fk.Flow("f")
    a, b = (flow.source(name, value=fk.Json({"in_left": int})) for name in "ab")
    a.subtract(b).sink("out", key="in_left", value=fk.Json())
    assert list(
        fk.testing.run(flow, {"a": [{"in_left": 5}, {"in_left": 6}], "b": [{"in_left": 6}]}).sinks["out"].table
    ) == [5]


def test_a_column_named_like_what_unique_computes_stays() -> None:
    flow = fk.Flow("f")
    flow.source("a", value=fk.Json({"change": int})).unique().sink("out", key="change", value=fk.Json())
    assert fk.testing.run(flow, {"a": [{"change": 5}, {"change": 5}]}).sinks["out"].rows == [{"change": 5}]


@pytest.mark.parametrize("kind", SQL)
def test_streams_with_other_columns_cannot_be_combined(kind: str) -> None:
    flow = fk.Flow("f")
    a, b = flow.source("a", value=fk.Json({"k": int})), flow.source("b", value=fk.Json({"k": str}))
    with pytest.raises(DefinitionError, match="the streams have other columns") as raised:
        getattr(a, kind)(b)
    assert f"{kind} (" in str(raised.value)
    with pytest.raises(DefinitionError, match="different flows"):
        getattr(a, kind)(fk.Flow("g").source("a", value=fk.Json({"k": int})))


@pytest.mark.parametrize("dtype", [fk.List(fk.Int64), fk.Decimal(9, 2)])
def test_rows_that_state_cannot_count_are_refused(dtype: Any) -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json({"id": int, "odd": dtype}))
    with pytest.raises(DefinitionError, match="cannot be part of a key in state") as raised:
        rows.unique(id="once")
    assert "column 'odd' of unique 'once'" in str(raised.value)
    with pytest.raises(DefinitionError, match="cannot be part of a key in state"):
        rows.union(rows, id="both")


def test_each_element_of_a_list_becomes_a_row() -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=fk.Json({"id": int, "l": fk.List(fk.Int64)}))
    rows.explode("l").sink("out", value=fk.Json())
    given: Rows = [{"id": 1, "l": [5, None]}, {"id": 2, "l": []}, {"id": 3, "l": None}, {"id": 4, "l": [7]}]
    found = fk.testing.run(flow, {"rows": given}).sinks["out"].rows
    assert [(row["id"], row["l"]) for row in found] == [(1, 5), (1, None), (4, 7)]


def test_only_lists_can_be_exploded() -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json({"id": int, "l": fk.List(fk.Int64)}))
    with pytest.raises(DefinitionError, match="column 'id' is Int64, and not a list"):
        rows.explode("id")
    with pytest.raises(DefinitionError, match="there is no column 'm'"):
        rows.explode("m")
