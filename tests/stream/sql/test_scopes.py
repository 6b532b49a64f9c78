"""Names mean what they mean in DuckDB: common table expressions, their own tables, and other names of columns."""

from __future__ import annotations

import pytest
from tests.stream.sql.stepwise import compare

TWICE = "select k, x, row_number() over (partition by k order by x, a) as n from l"
QUERIES = [
    "select k, y from l as z(x, k, y)",
    "select z.q, z.x, y.k from l as z(q) join r as y(k, b) on z.q = y.b",
    "select p from (select * from l) as z(p)",
    "with v as (select * from l) select p, x from v as z(p)",
    "with l as (select * from l where x > 0) select * from l",
    "with l as (select * from l where x > 0), m as (select k from l) select l.a from l join m on l.k = m.k",
    (
        "with v as (select k from l), w as (select k from v) "
        "select * from (with v as (select x as k from l) select k from w) q"
    ),
    (
        "with v as (select k from l), w as (select k from v) "
        "select q.k, v.k as x from (with v as (select x as k from l) select w.k from w join v on w.k=v.k) q join v on v.k=q.k"
    ),
    (
        "with v as (select k from l), w as (with v as (select k + 1 as k from v) select k from v) "
        "select v.k, w.k as other from v join w on v.k = w.k"
    ),
    "with v as (select count(*) as n from l), w as (with v as (select n from v) select n from v) select a, n from l, w",
    "select a, (with m as (select max(b) as b from r) select b from m) as b from l",
    "select a from l where k in (with l as (select k from r) select k from l)",
    f"select k from (select distinct k, n from ({TWICE}) p) q where n <= 2",
    "select k, x from (select distinct k, x, rank() over (order by x) as n from l) q where n <= 3",
    f"select k, x from ({TWICE} order by x, k, n limit 3) q where n <= 1",
    "select count(*) as c from (select row_number() over (order by x, a, k) as n from l) q where n <= 3",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_name_means_what_it_means_in_duckdb(query: str) -> None:
    compare(query)
