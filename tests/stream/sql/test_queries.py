"""Queries over streams give what DuckDB gives, whatever the cut into steps: the integral of their changes is its answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stream.sql.tables import COLUMNS, answered, plain, random_rows

import falkirk as fk

QUERIES: list[tuple[str, str]] = [
    ("select * from t", ""),
    ("select id as number, a, b + 1 as b from t where a > 0", ""),
    ("select 'x' as x, 1 as one, id from t where true", ""),
    ("select 1 as one from t", ""),
    ("select t.* exclude (seen, till, d) from t", ""),
    ("select x.id, x.big from (select id, a * 10 as big from t where a is not null) as x where x.big > 20", ""),
    ("with v as (select id, a from t where a > 0), w as (select id, a + 1 as n from v) select * from w where n < 6", ""),
    ("with v as (select id, a from t) select id from v where a > 2 union all select id from v where a < 0", ""),
    ("select id, a from t union all select b, n from t union all select n, id from t", ""),
    ("select a from t union all select f from t", ""),
    ("select x.p, x.q from (select id, a from t) as x(p, q) where q = 1", ""),
    ("select distinct a, s from t", ""),
    ("select distinct a > 0 as positive from t", ""),
    ("select a from t union select b from t", ""),
    ("select a from t union select b from t union all select n from t", ""),
    ("select a, s from t intersect select b, u from t", "a s"),
    ("select a from t except select b from t", "a"),
    ("select a from t where a > 0 except (select b from t union select n from t)", "a"),
    ("select a, count(*) as n from t group by a", "a"),
    ("select a, s, count(*) as n, count(b) as c, sum(b) as total, min(b) as low from t group by a, s", "a s"),
    ("select a, max(f) as top, avg(b) as mean from t group by a", "a"),
    ("select a as k, sum(f) as total, sum(b) as s from t group by a having count(*) > 3 and sum(b) > 0", "k"),
    ("select a, sum(b) * 2 + count(*) as x, sum(b) / count(b) as y from t group by a", "a"),
    ("select a % 2 as odd, count(*) as n from t group by a % 2", "odd"),
    ("select a % 2 as odd, count(*) as n from t group by 1", "odd"),
    ("select a % 2 as odd, count(*) as n from t group by odd having odd = 0", "odd"),
    ("select upper(s) as s, max(s) as top from t group by upper(t.s)", "s"),
    ("select date_trunc('day', seen) as day, count(*) filter (where a > 0) as n from t group by day", "day"),
    ("select a, sum(b) filter (where n > 0) as total, coalesce(count_if(c), 0) as yes from t group by a", "a"),
    ("select a, bool_or(c) as any_c, bool_and(c) as all_c, min(s) as s, max(seen) as last from t group by a", "a"),
    ("select a, stddev(b) as s, stddev_pop(f) as p, variance(b) filter (where c) as v, var_pop(n) as q from t group by a",
     "a"),
    ("select a, arg_min(s, id) as low, arg_max(s, n * 100 + id) as h, max_by(b, id) filter (where c) as m from t group by a",
     "a"),
    ("select a, count(distinct b) as x, count(distinct s) filter (where c) as m from t group by a having count(distinct n)>1",
     "a"),
    ("select case when a > 0 then 'up' else 'down' end as way, count(*) as n from t group by 1", "way"),
    ("select a, b from t group by a, b", "a b"),
    ("select count(*) as n, sum(a) as total, min(f) as low, max(f) as top from t where a < 4", "n"),
    ("select sum(a) as total from t where a is null", "total"),
    ("select n, count(*) as groups from (select a, count(*) as n from t group by a) as x group by n", "n"),
    ("select a, n from (select a, count(*) as n, max(f) as f from t group by a) as x where n > 4 and f > 3", "a"),
    ("select max(n) as most from (select a, count(*) as n from t group by a) as x", "most"),
    ("with k as (select distinct a, s from t) select a, count(*) as n from k group by a", "a"),
    ("select a, sum(n) as n from (select a, count(*) as n from t group by a union all select b, 1 from t) x group by a",
     "a"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "key"), QUERIES)
@pytest.mark.parametrize(("seed", "step"), [(1, 1000), (2, 7)])
def test_a_query_gives_what_duckdb_gives(query: str, key: str, seed: int, step: int) -> None:
    rows = random_rows(50, seed)
    assert streamed(query, rows, key.split(), step) == ordered(answered(query, t=rows))


def streamed(query: str, rows: list[dict[str, Any]], key: list[str], step: int) -> list[dict[str, Any]]:
    """All rows, or the last row of each key where the result changes."""
    flow = fk.Flow("sql")
    source = flow.source("t", value=fk.Json(COLUMNS))
    flow.sql(query, t=source, id="q").sink("out", value=fk.Json(), key=key or None)
    out = fk.testing.run(flow, {"t": rows}, step_rows=step).sinks["out"]
    return ordered([{n: plain(v) for n, v in row.items()} for row in (out.table.values() if key else out.rows)])


def test_array_agg_has_the_values_of_a_group_sorted() -> None:
    rows = random_rows(50, seed=3)
    found = streamed("select a, array_agg(n) as l, list(s) as m from t group by a", rows, ["a"], 7)
    wanted = answered(
        "select a, array_agg(n order by n nulls first) as l, list(s order by s nulls first) as m from t group by a",
        t=rows,
    )
    assert found == ordered(wanted)


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def test_a_grouping_keeps_its_state_when_other_text_of_a_named_query_changes() -> None:
    def flow_of(query: str) -> fk.Flow:
        flow = fk.Flow("sql")
        flow.source("t", key="id", value=fk.Json({"id": int, "a": int}))
        flow.sql(query, id="q").sink("out", key="id", value=fk.Json())
        return flow

    app = fk.testing.App(flow_of("select id, count(*) as n from t group by id"))
    app.send("t", [{"id": 1, "a": 5}])
    app.run()
    app.change(flow_of("select id, count(*) as n from t where a > 0 group by id having n < 100"))
    app.send("t", [{"id": 1, "a": 6}, {"id": 1, "a": -1}])
    app.run()
    assert app.sinks["out"].table == {1: {"id": 1, "n": 2}}


def test_a_query_reads_sources_and_results_of_its_flow_by_their_ids() -> None:
    flow = fk.Flow("sql")
    flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}), repartition=True)
    flow.sql("select auction, max(price) as top from bids group by auction", id="tops")
    flow.sql('select top, count(*) as n from "tops.group" group by top', id="how").sink(
        "out", key="top", value=fk.Json()
    )
    bids = [{"auction": 1, "price": 5}, {"auction": 2, "price": 5}]
    assert fk.testing.run(flow, {"bids": bids}).sinks["out"].table == {5: {"top": 5, "n": 2}}


@pytest.mark.parametrize("changes", ["upsert", "debezium", "weights"])
def test_a_query_reads_the_rows_of_a_source_that_changes_them(changes: str) -> None:
    flow = fk.Flow("sql")
    schema = {"id": int, "k": int, **({"weight": int} if changes == "weights" else {})}
    flow.source("t", value=fk.Json(schema), key="id" if changes == "upsert" else None, changes=changes)  # type: ignore[arg-type]
    flow.sql("select k, count(*) as n from t group by k", id="q").sink("out", key="k", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("t", CHANGES[changes])
    app.run()
    assert app.sinks["out"].table == {2: {"k": 2, "n": 1}}


CHANGES: dict[str, list[Any]] = {
    "upsert": [{"id": 1, "k": 1}, {"id": 1, "k": 2}],
    "debezium": [
        (None, b'{"op": "c", "before": null, "after": {"id": 1, "k": 1}}'),
        (None, b'{"op": "u", "before": {"id": 1, "k": 1}, "after": {"id": 1, "k": 2}}'),
    ],
    "weights": [{"id": 1, "k": 1, "weight": 1}, {"id": 1, "k": 1, "weight": -1}, {"id": 1, "k": 2, "weight": 1}],
}


def test_explain_shows_the_operators_of_a_query_under_its_sql() -> None:
    from falkirk.stream.flow.explain import explain

    flow = fk.Flow("sql")
    flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    tops = flow.sql("select auction, max(price) as top\nfrom bids where price > 0 group by auction", id="tops")
    tops.sink("out", key="auction", value=fk.Json())
    lines = [line.partition("  (")[0] for line in explain(flow).splitlines() if line[:5] in ("  sql", "  do ", "    d")]
    assert lines == [
        "  sql     tops: SELECT auction, MAX(price) AS top FROM bids WHERE price > 0 GROUP BY auction",
        "  do      filter: price > 0",
        "  do      group_by tops.group: auction → top = max; state placed by auction",
    ]
