"""Outer joins with a condition on both tables besides the equality give what DuckDB gives after every step."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.stream.sql.stepwise import compare

import falkirk as fk

QUERIES = [
    "select l.k, count(r.k) as n from l left join r on l.k = r.k and l.x < r.y group by l.k",
    "select l.k, l.x from l left join r on l.k = r.k and l.x < r.y where r.k is null",
    "select r.k, l.k as lk, b from l right join r on l.k = r.k and l.x < r.y",
    "select l.k, r.k as rk from l full join r on l.k = r.k and l.x < r.y",
    "select l.k, r.k as rk, l.x, r.y from l full join r on l.k = r.k and l.x = r.y and l.a < r.b",
    "select l.k, r.k as rk, r.b, l.a from l left join r on l.k = r.k and l.k = r.b and l.x < r.y",
    "select l.k, r.k as rk from l left join r on l.k = r.k and 1 = 0",
    "select l.k, r.k as rk from l full join r on l.k = r.k and false",
    "select coalesce(l.k, r.k) as k, r.k as rk from l full join r on l.k = r.k and l.x < r.y",
    "select l.k, r.k as rk, s.n from l left join r on l.k = r.k and l.x < r.y left join s on s.n = r.k and s.c < l.x",
    "select one.k, two.k as other from l one full join l two on one.k = two.k and one.x < two.x",
    "select m.k, r.k as rk from (select k, max(x) as x from l group by k) m left join r on m.k = r.k and m.x < r.y",
]


ODD: dict[str, dict[str, Any]] = {
    "l": {"k": int, "x": int, "bytes": fk.Binary, "list": fk.List(fk.Int64)},
    "r": {"k": int, "y": int, "list": fk.List(fk.Int64)},
}


def odd_tables(seed: int) -> dict[str, list[dict[str, Any]]]:
    random = Random(seed)

    def value(name: str) -> Any:
        if random.random() < 0.15:
            return None
        odd = {"bytes": random.choice([b"", b"\xff", b"\x00\xfe", b"a"]), "list": [random.randrange(2)]}
        return odd.get(name, random.randrange(-1, 3))

    return {name: [{c: value(c) for c in schema} for _ in range(22)] for name, schema in ODD.items()}


@pytest.mark.parametrize(
    "query",
    [
        "select l.x, l.bytes from l left join r on l.k = r.k and l.x < r.y",
        "select l.x, r.k from l left join r on l.k = r.k and l.x < r.y",
        "select l.x, r.k, l.bytes from l full join r on l.k = r.k and l.x < r.y",
        "select l.x from l semi join r on l.k = r.k and (l.x < r.y or r.y = 2)",
        "select l.x, l.bytes from l where not exists (select 1 from r where r.k = l.k and r.y + l.x > 1)",
        "select k, rank() over (partition by k order by x) as n from l",
        "select k, sum(x) over (partition by k order by x) as n, count(*) over () as c from l where x > 0",
        "select count(*) over () as c from l",
    ],
)
def test_bytes_are_compared_and_columns_that_are_not_read_are_not_kept(query: str) -> None:
    compare(query, ODD, odd_tables)


@pytest.mark.parametrize("query", QUERIES)
def test_a_row_without_a_partner_has_nulls_for_the_other_key_too(query: str) -> None:
    compare(query)
