"""The first rows of each group, by row_number() and rank(), are those that DuckDB gives, also where rows are taken back."""

from __future__ import annotations

import pytest
from tests.stream.sql.test_joins import random_tables, streamed, wanted

RANK = "rank() over (partition by k order by a desc)"
BEST = "row_number() over (partition by k order by a desc, x)"
QUERIES = [
    f"select k, a, x from l qualify {RANK} <= 2",
    f"select k, a, x, {RANK} as place from l qualify place = 1",
    f"select k, a, place from (select *, {RANK} as place from l) as q where place <= 3",
    f"select k, a, x from l qualify {BEST} <= 2",
    f"select k, a, x, {BEST} as rank from l qualify rank <= 3",
    f"select k, a, x from l where x > 0 qualify {BEST} = 1 and a > 0",
    f"select k, a, x from (select *, {BEST} as n from l) as q where n < 3 and a > 0",
    f"select a, n from (select *, {BEST} as n from l) as q where n <= 2",
    f"select k, sum(a) as total from (select *, {BEST} as n from l) as q where n <= 2 group by k",
    "select k, a, x from l qualify row_number() over (partition by k + 1, x order by a + 1) = 1",
    "select k, a, x from l qualify row_number() over (order by a, k, x desc) <= 5",
    "select k, count(*) as n from l group by k qualify row_number() over (order by n desc, k) <= 2",
    ("select k, x, n from (select k, x, count(*) as n from l group by k, x) as q "
    "qualify row_number() over (partition by k order by n desc, x) <= 2"),
    "select k, a, b from l join r using (k) qualify row_number() over (partition by l.k order by b, a, x, y) <= 3",
    ("select m.a, m.b from (select a, b, row_number() over (partition by l.k order by b, a) as n "
    "from l left join r on l.k = r.k) as m where n <= 2"),
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("seed", "step"), [(1, 100), (2, 6), (3, 1)])
def test_the_first_rows_of_a_group_are_those_of_duckdb(query: str, seed: int, step: int) -> None:
    tables = random_tables(seed)
    assert streamed(query, tables, step) == wanted(query, tables)
