"""Subqueries give what DuckDB gives after every step, over tables with nulls and duplicates whose rows come and go."""

from __future__ import annotations

import pytest
from tests.stream.sql.stepwise import compare

MAX_L = "(select k, max(a) as a from l group by k)"
MAX_R = "(select k, max(b) as b from r group by k)"
BEST_L = "(select k, a, x from l qualify row_number() over (partition by k order by a, x) <= 2)"
BEST_R = "(select k, b, y from r qualify row_number() over (partition by k order by b, y) <= 2)"

QUERIES = [
    # a value, which does not depend on the row
    "select a, x from l where a < (select avg(b) from r)",
    "select a, (select max(b) from r) - a as below from l",
    "select a from l where a = (select max(a) from l where x > 2)",
    "select a from l where a is not null and (select count(*) from r where b > 90) = 0",
    "select a from l where coalesce((select max(b) from r where b > 90), 1) = 1",
    "select a, m from l, (select max(b) as m from r) as q where a < m",
    "select a, m from l cross join (select max(b) as m from r) as q",
    "select a, m from l left join (select max(b) as m from r) as q on q.m > l.a",
    "with t as (select sum(b) as total from r) select a, total from l, t where a + total > 2",
    "with t as (select k, count(*) as n from l group by k) select k from t where n = (select max(n) from t)",
    "select k, sum(a) as total from l group by k having sum(a) > (select avg(b) * 2 from r)",
    "select k, (select min(b) from r) as low, sum(a) as total from l group by k",
    "select k, sum(case when a > (select avg(b) from r) then 1 else 0 end) as high from l group by k",
    # a value, which depends on the row
    "select a, x from l where a < (select avg(b) from r where r.k = l.k)",
    "select a, (select max(b) from r where r.k = l.k and r.y > 0) as top from l",
    "select a, (select count(*) from r where r.k = l.k) as n from l",
    "select a from l where (select count(b) from r where r.k = l.k) = 0",
    "select a from l where (select coalesce(sum(b), 7) from r where r.k = l.k and r.y = l.x) > 3",
    "select a from l where (select max(b) from r where r.k = l.k) is null",
    "select a from l where 2 * a - 1 <> (select min(b) + 1 from r where r.k + 1 = l.x and l.a > 0)",
    "select l.a, b from l, r where l.k = r.k and r.b = (select min(b) from r where l.k = r.k)",
    "select k, count(*) as n from l group by k having count(*) > (select count(*) from r where r.k = l.k)",
    "select k from l group by k having k in (select y from r)",
    f"select m.k, m.a from {MAX_L} m where m.a > (select max(n.b) from {MAX_R} n where n.k = m.k)",
    f"select m.k, (select sum(n.b) from {BEST_R} n where n.k = m.k) as low from {BEST_L} m",
    # exists and in
    "select a from l where exists (select 1 from r where b > 2)",
    "select a from l where not exists (select 1 from r where b > 90)",
    "select a from l where exists (select 1 from r where r.k = l.k and r.y <> l.x)",
    "select a from l where not exists (select 1 from r where r.k = l.k and r.y <> l.x)",
    "select a from l where not exists (select 1 from r where r.k = l.k and r.y < l.x and r.b > 0 and l.a > 0)",
    "select a from l where exists (select 1 from r where r.k = l.k and l.x + 1 >= r.y * 2)",
    "select a from l where exists (select 1 from r where r.y > l.x)",
    "select a, x from l where exists (select 1 from r where r.k = l.k and r.y > l.x and r.b + l.a > 1)",
    "select a, x from l where not exists (select 1 from r where r.k = l.k and (r.y > l.x or r.b = l.a))",
    f"select k, a from {BEST_L} m where not exists (select 1 from {BEST_R} n where n.k = m.k and n.y <> m.x)",
    f"select k, a from {BEST_L} m where not exists (select 1 from {BEST_R} n where n.k = m.k and n.y < m.x and n.b > m.a)",
    "select one.a from l one where exists (select 1 from l two where two.k = one.k and two.x <> one.x)",
    "select a from l where k not in (select k from r where b > 2)",
    "select a from l where k not in (select k from r where b > 1 and k is not null)",
    "select a from l where x not in (select y from r where b > 90)",
    "select a from l where x not in (select y from r where r.k = l.k)",
    "select a from l where x not in (select y from r where r.k = l.k and y is not null and r.b <> l.a)",
    f"select k from {BEST_L} m where x not in (select n.y from {BEST_R} n where b > 0 and n.y is not null)",
    f"select k from {BEST_L} m where x not in (select n.y from {BEST_R} n where b > 2)",
    # joins with conditions on both tables
    "select a, b from l left join r on l.k = r.k and l.x <> r.y",
    "select a, b from l right join r on l.k = r.k and l.x < r.y and r.b > 0",
    "select a, l.k, b from l full join r on l.k = r.k and l.x < r.y + 1 and l.a > 0",
    "select a from l semi join r on l.k = r.k and l.x > r.y",
    "select a from l anti join r on l.k = r.k and (l.x > r.y or l.a = r.b)",
    "select a from l semi join r on l.k = r.k and l.x > r.y anti join s on l.k = s.n and l.a < s.c",
    f"select m.k, m.a, n.b from {BEST_L} m left join {BEST_R} n on m.k = n.k and m.x < n.y",
    "select a, b, w from l left join r on l.k = r.k and l.x < r.y left join s on s.n = l.x and s.w <> 'u' and s.c > r.b",
    # a value with having
    "select a, (select count(*) from r where b > 0 having count(*) > 4) as n from l",
    "select a from l where (select count(*) from r where b > 0 having count(*) > 4) = 0",
    "select a, (select count(*) + 1 from r having sum(b) > 3) as n from l",
    "select a, (select count(*) from r where r.k = l.k having count(*) <> 1) as n from l",
    "select a, (select count(*) as c from r where k = 7 group by k order by c limit 1) as n from l",
    # a value as a key
    "select (select max(b) from r) as g, count(*) as n from l group by g having count(*) > 0",
    "select (select max(b) from r where r.k = l.k) as g, count(*) as n, sum(a) as a from l group by 1",
    "select (select count(*) from r where r.k = l.k) + 1 as g, max(x) as x from l group by g",
    "select (select max(b) from r) as g, k, count(*) as n from l group by g, k having count(*) > (select min(y) from r)",
    # several of a kind in one query
    "select l.k from l semi join r on l.k = r.k semi join s on s.n = l.x",
    "select l.k from l anti join r on l.k = r.k anti join r r2 on r2.b = l.x",
    "select k, x, a from l qualify row_number() over (partition by k order by x, a) = 1 order by x, k, a limit 3",
    # aggregates in exists
    "select a from l join r on l.k = r.k where exists (select count(*) from r where b > 90)",
    "select a from l join r on l.k = r.k where not exists (select max(b) from r where r.k = l.k)",
    "select a from l where exists (select max(b) from r having max(b) > 2)",
    "select a from l where not exists (select 1 from r where r.k = l.k having count(*) > 1)",
    # a table that is used again deeper
    "select a from l where exists (select 1 from r where r.k = l.k and r.y in (select x from l))",
    "select a from l where exists (select 1 from (select k, x as y from l where a > 0) q where q.k = l.k and q.y < l.x)",
    "select a from l where a < (select max(b) from r where r.k = l.k and r.y in (select x from l))",
    "select a, (select max(b) from (select * from r where b in (select a from l)) r where r.k = l.k) as top from l",
    # constants
    (
        "select k, sum(1) as a, max('x') as b, count(null) as c, count(distinct 1) as d, count(*) filter (where true) as e "
        "from l group by k"
    ),
    (
        "select k, min(1.5) as a, sum(2.5) as b, avg(2) as c, bool_or(true) as d, any_value(3) as e, count_if(true) as f, "
        "sum(1) filter (where x > 0) as g, count('x') as h, max(null) as i from l group by k"
    ),
    "select k, sum(1) over (partition by k) as n, count(x) filter (where true) over (partition by k) as m from l",
    # the rest
    "select k, count(distinct a) as n, count(distinct x) filter (where a > 0) as m from l group by k",
    "select a, x from l order by a desc, x, 1 limit 4",
    "select k, sum(a) as total from l group by k order by total, k limit 3",
    "select a from (select a from l order by a limit 5) as low where a > -2",
    "select a from l union all select b from r order by a limit 6",
    "select a, b from l, r where (l.k = r.k and a > 1) or (l.k = r.k and b > 1)",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_subquery_gives_what_duckdb_gives_after_every_step(query: str) -> None:
    compare(query)
