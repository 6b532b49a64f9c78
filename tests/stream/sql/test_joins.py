"""Joins over streams give what DuckDB gives: the integral of their changes is its answer, with nulls, duplicates, and rows
that are taken back on both sides."""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

import polars as pl
import pytest
from tests.duck import database

import falkirk as fk

SCHEMAS: dict[str, dict[str, Any]] = {
    "l": {"k": int, "a": int, "x": int},
    "r": {"k": int, "b": int, "y": int},
    "s": {"n": fk.Int32, "c": int, "w": str},
}
MAX_L = "(select k, max(a) as a from l group by k)"
MAX_R = "(select k, max(b) as b from r group by k)"

QUERIES = [
    "select * exclude (k) from l join r on l.k = r.k",
    "select l.k, r.b from l join r using (k)",
    "select * from l join r using (k)",
    "select l.*, r.b from l join r on l.k = r.k and l.a < r.b",
    "select l.k as lk, r.k as rk, a, b from l left join r on l.k = r.k",
    "select l.a from l left join r on l.k = r.k where r.k is null",
    "select k, a, b from l left join r using (k) where a > 0",
    "select k, a, b from l right join r using (k)",
    "select l.k as lk, r.k as rk, a, b from l right join r on l.k = r.k and a > 0",
    "select k, a, b from l full join r using (k)",
    "select l.k as lk, r.k as rk, a, b from l full outer join r on l.k = r.k",
    "select l.k as lk, r.k as rk, a, b from l full join r on l.k = r.k and l.a > 0 and r.b > 0",
    "select a, b from l left join r on l.k = r.k and l.x > 0 and r.y > 0",
    "select a from l left join r on l.k = r.k and true",
    "select count(*) as n from l full join r on l.k = r.k and 1 = 1",
    "select a, b from l left join r on l.k = r.k and 1 = 0",
    "select a from l anti join r on l.k = r.k and null",
    "select a, b from l left join r on l.k = r.k where coalesce(r.y, 1) > 0 and l.x < 3",
    "select a, b from l join r on l.k + 1 = r.k * 2",
    "select a, b from l join r on l.k = r.k and l.x = r.y",
    "select a, b, c from l join r on l.k = r.k and l.k = r.b join s on s.n = l.x",
    "select a, b, w from l join r using (k) left join s on l.k = s.n",
    "select a, b, w from l left join r using (k) full join s on l.x = s.n and w = 'u'",
    "select a, b, w from l left join r using (k) right join s on l.x = s.n and r.y = s.c",
    "select r.b from s join l on s.n = l.k right join r on l.x = r.y and l.a > 0",
    "select a, b, c from l, r, s where l.k = r.k and s.n = l.x and s.w = 'u' and l.a + r.b > 0",
    "select a, b, c from l, s, r where l.k = r.k and s.c = r.b and l.a <> s.n",
    "select one.a as a, two.a as other from l one join l two on one.k = two.k and one.a < two.a",
    "select one.a as a, two.x as other from l one left join l two on one.k = two.x",
    f"select m.k as mk, m.a, r.b from {MAX_L} m left join r on m.k = r.k",
    f"select m.k as mk, n.k as nk, m.a, n.b from {MAX_L} m full join {MAX_R} n on m.k = n.k",
    f"select m.k, m.a, n.b from {MAX_L} m join {MAX_R} n using (k) where m.a > n.b",
    "with j as (select l.k, a, b from l join r using (k)) select p.a, q.b from j p join j q on p.k = q.k and p.a = q.b",
    "select k, count(*) as n, sum(b) as total from l join r using (k) group by k having count(*) > 1",
    "select distinct l.k from l join r on l.k = r.k",
    "select a from l semi join r on l.k = r.k",
    "select a from l anti join r on l.k = r.k and r.b > 0 and l.a > 0",
    "select a, x from l where exists (select 1 from r where r.k = l.k and r.b > 0)",
    "select a, x from l where exists (select * from r where r.k = l.k and l.x = r.y and l.a > 0)",
    "select a, x from l where not exists (select 1 from r where l.k = r.k)",
    "select a, x from l where not exists (select 1 from r where l.k = r.k and l.a > 0 and r.b > 0)",
    "select a, x from l where k in (select k from r where b > 0) and a > 0",
    "select a, x from l where k in (select k from r group by k having count(*) > 2)",
    "select a, x from l where k in (select r.y from r where r.k = l.k)",
    "select a, x from l where x + 1 in (select k from r union all select n from s)",
    "select a, b from l join r using (k) where exists (select 1 from s where s.n = l.x) and l.a in (select c from s)",
    "select a from l where exists (select 1 from r join s on r.b = s.n where r.k = l.k and w = 'u')",
    f"select k, a from {MAX_L} m where not exists (select 1 from {MAX_R} n where n.k = m.k and n.b > 0)",
    "select l.a from l where exists (select 1 from r where r.k = l.k and not exists (select 1 from s where s.n = r.b))",
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("seed", "step"), [(1, 100), (2, 6)])
def test_a_join_gives_what_duckdb_gives(query: str, seed: int, step: int) -> None:
    tables = random_tables(seed)
    assert streamed(query, tables, step) == wanted(query, tables)


def random_tables(seed: int) -> dict[str, list[dict[str, Any]]]:
    random = Random(seed)

    def value(dtype: Any) -> Any:
        if random.random() < 0.12:
            return None
        return random.choice("uvw") if dtype is str else random.randrange(-2, 4)

    return {
        name: [{c: value(dtype) for c, dtype in schema.items()} for _ in range(22)] for name, schema in SCHEMAS.items()
    }


def streamed(query: str, tables: dict[str, list[dict[str, Any]]], step: int) -> Counter[tuple[Any, ...]]:
    """How often each row is in the result, once all changes have come."""
    flow = fk.Flow("sql")
    read = [name for name in SCHEMAS if re.search(rf"(from|join|,) {name}\b", query)]
    for name in read:
        flow.source(name, value=fk.Json(SCHEMAS[name]))
    result = flow.sql(query, id="q")
    columns = result.schema.names()
    result.group_by(columns, id="counted").agg(times=fk.len()).sink("out", key=columns, value=fk.Json())
    rows = fk.testing.run(flow, {name: tables[name] for name in read}, step_rows=step).sinks["out"].table.values()
    return Counter({tuple(row[c] for c in columns): row["times"] for row in rows})


def wanted(query: str, tables: dict[str, list[dict[str, Any]]]) -> Counter[tuple[Any, ...]]:
    with database() as connection:
        for name, rows in tables.items():
            schema = fk.Flow("x").source("t", value=fk.Json(SCHEMAS[name])).schema
            connection.register(name, pl.DataFrame(rows, schema=schema).to_arrow())
        return Counter(connection.execute(query).fetchall())
