"""Windows of SQL give what DuckDB gives of the same windows written out, and are complete when the DSL's are."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.flow.explain import explain

SCHEMA: dict[str, Any] = {"k": int, "x": int, "ts": int}
START = "ts // 60000 * 60000 as window_start, ts // 60000 * 60000 + 60000 as window_end"
TUMBLED = f"(select *, {START} from t where ts is not null)"
HOPPED = (
    "(select *, window_start + 60000 as window_end from (select *, unnest([ts // 20000 * 20000 - 20000 * i for i in "
    "range(3)]) as window_start from t where ts is not null))"
)
TUMBLE = "tumble(table t, descriptor(ts), interval '1' minute)"
HOP = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)"

QUERIES = [
    "select window_start, window_end, count(*) as n from {w} as w group by window_start, window_end",
    "select window_start, k, sum(x) as total from {w} as w group by window_start, k",
    "select window_end, max(x) as top from {w} as w where x > 0 and w.k < 3 group by window_end having count(*) > 1",
    "select k % 2 as odd, window_start, count(*) as n from {w} as w group by 1, 2",
    "select * from {w} as w",
    "select k, window_start + 1 as later from {w} as w where window_end > 120000",
    "select k, count(*) as n, min(window_start) as first from {w} as w group by k",
    "select window_start from {w} as w group by window_start",
    "select a.k, a.window_start from {w} as a join {w} as b on a.k = b.x and a.window_start = b.window_start",
    "select window_start, max(n) as most from (select window_start, k, count(*) as n from {w} as w group by 1, 2) group by 1",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("function", "written"), [(TUMBLE, TUMBLED), (HOP, HOPPED), (f"table({TUMBLE})", TUMBLED)])
def test_windows_give_what_duckdb_gives(query: str, function: str, written: str) -> None:
    rows = random_rows()
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA))
    result = flow.sql(query.format(w=function), id="q")
    columns = result.schema.names()
    result.group_by(columns, id="counted").agg(times=fk.len()).sink("out", key=columns, value=fk.Json())
    out = fk.testing.run(flow, {"t": rows}, step_rows=7).sinks["out"].table.values()
    with database(t=pl.DataFrame(rows, schema=dict.fromkeys(SCHEMA, pl.Int64))) as connection:
        wanted = connection.execute(query.format(w=written)).fetchall()
    assert Counter({tuple(row[c] for c in columns): row["times"] for row in out}) == Counter(wanted)


OF_WINDOWS = [
    "select k, count(*) as n, min(window_start) as first from {w} as w group by k",
    "select k, window_start, max(window_end) as till, count(*) as n from {w} as w group by k, window_start",
    "select k, window_start, sum(x) as x from (select * from {w} as w) group by k, window_start",
    "select k, window_end, sum(x) as x from (select * from {w} as w) group by k, window_end",
    "select k, window_start, window_end, count(distinct x) as x from (select * from {w} as w) group by 1, 2, 3",
    "select window_end, count(*) as n from (select * from {w} as w) group by window_end",
    "select k, sum(x) as x from (select * from {w} as w) group by k",
    "select count(*) as n, max(window_end) as last from {w} as w",
    "select *, count(*) over (partition by window_start order by x) as n from {w} as w",
    "select * from {w} as w qualify rank() over (partition by window_start, window_end order by x desc) <= 2",
    "select * from (select * from {w} as w) order by window_end desc, x, k, ts limit 3",
    ("with v as (select * from {w} as w) select k, window_start, count(*) as n from v group by 1, 2 union all select k, "
     "window_end, max(x) as n from v group by k, window_end"),
]  # fmt: skip


@pytest.mark.parametrize("query", OF_WINDOWS)
@pytest.mark.parametrize(
    ("function", "written", "times"), [(TUMBLE, TUMBLED, {}), (HOP, HOPPED, {"time": "ts", "late": "1h"})]
)
def test_rows_that_have_windows_are_rows_like_others(query: str, function: str, written: str, times: Any) -> None:
    rows = [row for row in random_rows() if row["ts"]]
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA), **times)
    result = flow.sql(query.format(w=function), id="q")
    columns = result.schema.names()
    result.group_by(columns, id="counted").agg(times=fk.len()).sink("out", key=columns, value=fk.Json())
    out = fk.testing.run(flow, {"t": rows}, step_rows=7).sinks["out"].table.values()
    with database(t=pl.DataFrame(rows, schema=dict.fromkeys(SCHEMA, pl.Int64))) as connection:
        wanted = connection.execute(query.format(w=written).replace("x desc)", "x desc nulls last)")).fetchall()
    assert Counter({tuple(row[c] for c in columns): row["times"] for row in out}) == Counter(wanted)


@pytest.mark.parametrize("bounds", ["window_start", "window_end", "window_start, window_end"])
def test_groups_of_a_query_around_windows_leave_the_state_too(bounds: str) -> None:
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA), time="ts", late="0s")
    query = f"with w as (select * from {TUMBLE}) select k, {bounds}, sum(x) as x from w group by k, {bounds}"
    result = flow.sql(query, id="q")
    with pytest.raises(DefinitionError, match="does not identify a row"):
        result.sink("wrong", key="k", value=fk.Json())
    result.sink("out", key=["k", *bounds.split(", ")], value=fk.Json())
    result.final().sink("final", value=fk.Json())
    rows = [{"k": 1, "x": 2, "ts": 1}, {"k": 1, "x": 3, "ts": 59_999}, {"k": 1, "x": 4, "ts": 60_000}]
    app = fk.testing.run(flow, {"t": rows}, step_rows=1)
    assert [row["x"] for row in app.sinks["out"].table.values()] == [5, 4]
    assert [row["x"] for row in app.sinks["final"].rows] == [5]
    assert app.state("q.group").height == 1


def random_rows() -> list[dict[str, Any]]:
    random = Random(1)

    def some(value: int) -> int | None:
        return None if random.random() < 0.1 else value

    return [
        {"k": some(random.randrange(5)), "x": some(random.randrange(-3, 6)), "ts": some(random.randrange(400_000))}
        for _ in range(40)
    ]


def test_windows_of_a_sources_time_are_complete_when_it_has_passed() -> None:
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA), time="ts", late="0s")
    query = f"select k + 1 as k, window_start, sum(x) as x from {TUMBLE} where x > 0 group by 1, 2"
    flow.sql(query, id="q").sink("out", key=["k", "window_start"], value=fk.Json())
    rows = [{"k": 1, "x": 2, "ts": 1}, {"k": 1, "x": 3, "ts": 59_999}, {"k": 1, "x": 4, "ts": 60_000}]
    late = [{"k": 1, "x": 9, "ts": 2}]
    out = fk.testing.run(flow, {"t": rows + late}, step_rows=3).sinks["out"].table
    assert [(row["k"], row["window_start"], row["x"]) for row in out.values()] == [(2, 0, 5), (2, 60_000, 4)]


SESSION = "session(table t partition by k, descriptor(ts), interval '3' millisecond)"
SESSIONIZED = """(
    select *, min(ts) over s as window_start, max(ts) over s + 3 as window_end from (
        select *, sum(coalesce(new, true)::int) over (partition by {by} order by ts) as number from (
            select *, ts - lag(ts) over (partition by {by} order by ts) > 3 as new from a where ts is not null
        )
    ) window s as (partition by {by}, number)
)"""

SESSIONS = [
    ("select k, window_start, window_end, count(*) as n, sum(x) as x from {w} group by k, window_start, window_end", SESSION),
    ("select window_end, w.k, max(x) as top from {w} as w group by 1, 2 having count(*) > 1 and min(x) < 3", SESSION),
    ("select k, window_start, count(distinct x) + 1 as kinds from {w} group by window_start, k", f"TABLE({SESSION})"),
    ("select k, window_start, sum(x) filter (where x > 0) as x from {w} group by k, window_start", SESSION),
    ("select k, window_start, window_end from {w} group by k, window_start, window_end", SESSION.replace("k,", "(k),")),
    ("select window_start, count(*) as n from {w} group by window_start", SESSION.replace("partition by k", "")),
    ("select k, x, window_start, min(ts) as first from {w} group by k, x, window_start", SESSION.replace("k,", "k, x,")),
    ("select k, x, window_end, min(ts) as ts from {w} group by x, k, window_end", SESSION.replace("k,", "(k, x),")),
]  # fmt: skip
row = st.fixed_dictionaries(
    {"k": st.none() | st.integers(0, 1), "x": st.integers(-2, 4), "ts": st.none() | st.integers(0, 30)}
)
LATEST = "(select k, x, max(ts) as ts from t group by k, x)"
"""A table whose rows are replaced."""


@pytest.mark.parametrize(("query", "function"), SESSIONS)
@pytest.mark.parametrize("table", ["(select * from t where x < 4)", LATEST])
@settings(max_examples=4, deadline=None)
@given(steps=st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=4))
def test_sessions_are_after_each_step_what_duckdb_says_of_the_rows_so_far(
    query: str, function: str, table: str, steps: list[list[dict[str, Any]]]
) -> None:
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA))
    asked = f"with v as {table} {query.format(w=function.replace('(table t', '(table v'))}"
    result = flow.sql(asked, id="q")
    columns = result.schema.names()
    result.group_by(columns, id="counted").agg(times=fk.len()).sink("out", key=columns, value=fk.Json())
    by = function.lower().partition("partition by ")[2].partition(", desc")[0].strip("()") or "true"
    written = f"with a as {table} {query.format(w=SESSIONIZED.replace('{by}', by))}"
    app, rows = fk.testing.App(flow), []
    for some in steps:
        app.send("t", some)
        app.run()
        rows += some
        out = app.sinks["out"].table.values()
        with database(t=pl.DataFrame(rows, schema=dict.fromkeys(SCHEMA, pl.Int64))) as connection:
            wanted = connection.execute(written).fetchall()
        assert Counter({tuple(row[c] for c in columns): row["times"] for row in out}) == Counter(wanted)


def test_sessions_of_a_sources_time_leave_the_state_when_it_has_passed() -> None:
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json(SCHEMA), time="ts", late="0s")
    query = f"select k, window_start, sum(x) as x from {SESSION} group by k, window_start"
    flow.sql(query, id="q").sink("out", key=["k", "window_start"], value=fk.Json())
    rows = [{"k": 1, "x": x, "ts": ts} for x, ts in ((2, 1), (3, 4), (9, 8), (1, 40))]
    app = fk.testing.run(flow, {"t": rows}, step_rows=2)
    assert {key: row["x"] for key, row in app.sinks["out"].table.items()} == {(1, 1): 5, (1, 8): 9, (1, 40): 1}
    assert app.state("q.group").select("window_start", "window_end").rows() == [(40, 43)]
    assert "state placed by k, until the watermark is past window_end" in explain(flow)


@pytest.mark.parametrize(
    "columns",
    [
        "k, window_start, window_end, count(*) as n",
        "window_end as till, count(*) as n, k",
        "2 * count(*) as n, k",
        "k, window_start, sum(x) as x",
    ],
)
@pytest.mark.parametrize(
    "window", [TUMBLE, HOP, "session(table t partition by k, descriptor(ts), interval '5' second)"]
)
def test_a_query_of_windows_has_final_rows_whatever_it_selects(window: str, columns: str) -> None:
    flow = fk.Flow("final")
    flow.source("t", value=fk.Json(SCHEMA), time="ts", late="0s")
    query = f"select {columns} from {window} as w group by k, window_start, window_end"
    result = flow.sql(query, id="q")
    result.final().sink("final", value=fk.Json())
    flow.sql(query, id="all").sink("all", key=result.schema.names(), value=fk.Json(), changes="weights")
    rows = [{"k": ts % 2, "x": ts, "ts": 1000 * ts} for ts in range(1, 300, 7)]
    app = fk.testing.run(flow, {"t": rows}, step_rows=5)
    total: Counter[tuple[Any, ...]] = Counter()
    for row in app.sinks["all"].rows:
        *cells, weight = row.values()
        total[tuple(cells)] += weight
    found = Counter(tuple(row.values()) for row in app.sinks["final"].rows)
    assert found
    assert not found - total
