"""Every expression gives what DuckDB gives, on random rows with nulls."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from tests.stream.sql.tables import COLUMNS, answered, plain, random_rows

import falkirk as fk

EXPRESSIONS = """
a + b * 2 - 1
f < 0.06 + 0.01 * 100 - 0.5
0.1 + 0.2 = 0.3
-a
a / 4
a / b
f / 4
a // 3
a // -3
(a + 1) // 2 * 2
a % 3
a % -4
mod(a, 5)
f % 2
abs(a) + abs(f)
round(f)
round(f, 1)
floor(f)
ceil(f)
sign(a)
sign(f)
power(a, 2)
sqrt(abs(f))
ln(abs(f) + 1)
log(abs(f) + 1)
log2(abs(a) + 1)
exp(f / 100)
greatest(a, b, 3)
least(a, b)
a = b
a <> b
a < b
a <= 2.5
f > a
n = a
n + a
c and e
c or e
not c
not (c and e) or a > 1
c is true
c is not true
c is false
c is null
a is null or b is not null
a is distinct from b
a is not distinct from b
a is not distinct from null
a = null
null and c
null or c
a in (1, 2, 3)
a in (1, null, 3)
a not in (1, 2)
a not in (1, null)
a in (b, b + 1, 0)
s in ('abc', 'x')
f in (1, 2.5)
a between 0 and 3
a not between b and 3
case when a > 2 then 'big' when a > 0 then 'small' end
case when c then a else f end
case a when 1 then 'one' when 2 then 'two' else s end
case when a > b then 1 else 0 end
if(a > 1, s, u)
case when a >= 0 then cast(replace(cast(a as varchar), '-', 'x') as bigint) end
case when a < 0 then 0 when c then 1 else cast(replace(cast(a as varchar), '-', 'x') as int) end
case a >= 0 when true then case when c then cast(replace(cast(a as varchar), '-', 'x') as double) else f end end
if(a > 0 and c, cast(replace(cast(a as varchar), '-', 'x') as decimal(9, 2)), n)
coalesce(nullif(a, abs(a)), cast(replace(cast(a as varchar), '-', 'x') as bigint))
coalesce(a, b, -1)
coalesce(s, 'none')
nullif(a, b)
nullif(s, 'abc')
cast(f as bigint)
cast(f as int) + 1
cast(a as double) / 2
cast(a as varchar)
cast(c as varchar)
cast(c as int)
a::smallint
cast(s = 'abc' as bigint)
cast(seen as date)
cast(d as varchar)
cast(null as bigint)
s || '-' || u
s || a
concat(s, '-', u)
concat_ws('-', s, u)
upper(s)
lower(s)
length(s)
trim(s)
ltrim(s)
rtrim(s)
trim(both 'x' from s)
substring(s, 2, 2)
substring(s, 2)
substring(s, 0, 2)
substring(s, -2, 1)
left(s, 2)
right(s, 2)
replace(s, 'b', 'zz')
contains(s, 'b')
starts_with(s, 'a')
s like 'a%'
s like '_b%'
s not like '%c'
s ilike 'A%'
s like 'a$%' escape '$'
regexp_matches(s, '^a.c$')
regexp_replace(s, '[ab]', 'q')
regexp_replace(s, '[ab]', 'q', 'g')
s < u
year(seen)
quarter(seen)
month(seen)
day(d)
hour(seen)
extract(minute from seen)
extract(second from seen)
extract(dow from seen)
extract(isodow from d)
extract(doy from seen)
extract(epoch from seen)
epoch(seen)
date_trunc('minute', seen)
date_trunc('hour', seen)
date_trunc('day', seen)
date_trunc('week', seen)
date_trunc('month', seen)
date_trunc('quarter', seen)
date_trunc('year', seen)
seen + interval '90' minute
seen + interval 2 hour
seen - interval '1 month'
interval '1' day + seen
seen - till > interval '1 hour'
seen < till
seen > '2026-02-01'
seen >= timestamp '2026-01-15 12:00:00'
d = date '2026-01-31'
d < '2026-02-03'
d < seen
date_diff('hour', seen, till)
date_diff('day', seen, till)
datediff('minute', seen, till)
strftime(seen, '%Y-%m-%d %H:%M')
epoch_ms(seen)
epoch_ms(a)
to_timestamp(a * 3600)
strptime('2026-01-0' || cast(abs(a) % 9 + 1 as varchar), '%Y-%m-%d')
""".strip().splitlines()

CONDITIONS = ["a > 1", "a > 1 or null", "c", "not c", "a in (1, null)", "a not in (1, null)", "a > b and s like 'a%'"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return random_rows(60, seed=1)


def test_a_product_of_decimals_keeps_all_digits() -> None:
    flow = fk.Flow("sql")
    flow.source("t", value=fk.Json({"p": fk.Decimal(9, 2), "d": fk.Decimal(9, 2)}))
    flow.sql("select p * (1 - d) as x from t").sink("out", value=fk.Json())
    assert (
        str(fk.testing.run(flow, {"t": [{"p": Decimal("10.05"), "d": Decimal("0.07")}]}).sinks["out"].rows[0]["x"])
        == "9.3465"
    )


def streamed(query: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    flow = fk.Flow("sql")
    source = flow.source("t", value=fk.Json(COLUMNS))
    result = flow.sql(query, t=source)
    result.sink("out", value=fk.Json())
    out = fk.testing.run(flow, {"t": rows}, step_rows=17).sinks["out"].rows
    return [{n: plain(v) for n, v in row.items()} for row in out]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_gives_what_duckdb_gives(expression: str, rows: list[dict[str, Any]]) -> None:
    query = f"select id, {expression} as x from t"
    assert sorted(streamed(query, rows), key=lambda r: r["id"]) == answered(f"{query} order by id", t=rows)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_where_keeps_the_rows_that_duckdb_keeps(condition: str, rows: list[dict[str, Any]]) -> None:
    query = f"select id, a from t where {condition}"
    assert sorted(streamed(query, rows), key=lambda r: r["id"]) == answered(f"{query} order by id", t=rows)
