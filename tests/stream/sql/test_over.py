"""Window functions in SQL give what DuckDB gives."""

from __future__ import annotations

from typing import Any

import pytest
from tests.stream.sql.stepwise import compare
from tests.stream.sql.tables import COLUMNS, answered, plain, random_rows

import falkirk as fk
from falkirk.errors import DefinitionError

QUERIES = [
    "select id, sum(b) over (partition by a order by id) as total from t",
    "select id, sum(b) over (partition by a order by n) as total, count(*) over (partition by a order by n) as c from t",
    "select id, avg(f) over (partition by a order by id rows between 2 preceding and current row) as m from t",
    "select id, max(b) over (partition by s order by id rows 3 preceding) * 2 as m, a + 1 as b from t",
    "select id, sum(b) over (partition by a) as total, count(*) over () as n, b - min(b) over (partition by a) as c from t",
    """select id, max(f) over (partition by a order by id rows between unbounded preceding and unbounded following) as m,
       row_number() over (partition by a order by id) as r from t""",
    "select id, sum(b) over (partition by a order by id rows between 1 preceding and 2 following) as m from t",
    "select id, max(b) over (partition by a order by id rows between current row and 1 following) as m from t",
    """select id, count(b) over (partition by a order by seen
       range between interval 3 days preceding and interval 10 days following) as c from t""",
    """select id, count(b) filter (where b > 0) over (partition by a order by seen
       range between interval 10 days preceding and current row) as c from t""",
    "select id, min(b) over (order by id desc rows unbounded preceding) as low from t",
    """select id, row_number() over (partition by a order by id desc) as n, rank() over (partition by a order by b) as r,
       dense_rank() over (partition by a order by b) as d from t""",
    "select id, lag(b) over (partition by a order by id) as x, lead(b, 2) over (partition by a order by id) as y from t",
    "select id, b - lag(b) over (partition by a % 2 order by id) as change from t where id > 5",
    "select id, rank() over (partition by a order by b) as r from t qualify r <= 2",
    "select id from t qualify row_number() over (partition by a order by id) > 1 and sum(b) over (order by id) > 3",
    "select id, total from (select id, sum(b) over (partition by a order by id) as total from t) as x where total > 0",
    "select a, n, rank() over (order by n desc) as r from (select a, count(*) as n from t group by a) as x",
]


@pytest.mark.parametrize("query", QUERIES)
def test_window_functions_give_what_duckdb_gives(query: str) -> None:
    rows = random_rows(40, 3)
    flow = fk.Flow("sql")
    source = flow.source("t", value=fk.Json(COLUMNS))
    found = flow.sql(query, t=source, id="q")
    found.sink("out", value=fk.Json(), key="a" if found.schema.names()[0] == "a" else "id")
    out = fk.testing.run(flow, {"t": rows}, step_rows=9).sinks["out"].table.values()
    assert ordered([{n: plain(v) for n, v in row.items()} for row in out]) == ordered(answered(query, t=rows))


@pytest.mark.parametrize(
    "query",
    [
        "select k, count(*) over (partition by k) as n from l",
        "select k, a, max(a) over (partition by k, a) as top, sum(k) over (partition by k, a) as s from l",
        "select count(*) over () as n from l",
    ],
)
def test_rows_may_have_no_other_columns_than_those_of_their_partition(query: str) -> None:
    compare(query)


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select rank() over (partition by b) as x from t", "the window has no order"),
        ("select sum(a) over (partition by b rows 1 preceding) as x from t", "the window has no order, and so"),
        ("select sum(a) over (order by b nulls first) as x from t", "nulls come last here"),
        (
            "select sum(a) over (order by b rows between 1 preceding and unbounded following) as x from t",
            "all rows after a row",
        ),
        (
            "select sum(a) over (order by b rows between unbounded preceding and 1 following) as x from t",
            "and all before",
        ),
        ("select sum(a) over (order by b rows between 1 following and 2 following) as x from t", "the row itself"),
        ("select sum(a) over (partition by b order by b) as x from t", "all rows of a partition are equal"),
        ("select lag(a, 1, 0) over (order by b) as x from t", "default is not supported here"),
        ("select lag(a, b) over (order by b) as x from t", "the offset is not a number of rows"),
        (
            "select sum(a) over (order by s range between 1 preceding and current row) as x from t",
            "of times or integers",
        ),
        ("select first_value(a) over (order by s) as x from t", "is not an aggregate that streams have"),
    ],
)
def test_what_windows_cannot_say_is_refused_with_its_place(query: str, message: str) -> None:
    flow = fk.Flow("sql")
    source = flow.source("t", value=fk.Json(COLUMNS))
    with pytest.raises(DefinitionError, match=message):
        flow.sql(query, t=source)


def test_aggregates_without_group_by_need_no_key() -> None:
    rows = random_rows(30, 4)
    flow = fk.Flow("sql")
    query = "select count(*) as n, sum(a) as total, max(f) as top from t where b > 0"
    flow.sql(query, t=flow.source("t", value=fk.Json(COLUMNS)), id="q").sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"t": rows}, step_rows=7, partitions=3)
    (row,) = app.sinks["out"].table.values()
    assert [{n: plain(v) for n, v in row.items()}] == answered(query, t=rows)
