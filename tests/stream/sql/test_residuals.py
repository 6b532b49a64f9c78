"""Outer joins with a condition on both tables besides the equality give what DuckDB gives after every step."""

from __future__ import annotations

import pytest
from tests.stream.sql.stepwise import compare

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


@pytest.mark.parametrize("query", QUERIES)
def test_a_row_without_a_partner_has_nulls_for_the_other_key_too(query: str) -> None:
    compare(query)
