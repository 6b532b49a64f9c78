"""Set operations and joins of columns of different number types give what DuckDB gives after every step."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from tests.stream.sql.stepwise import compare

import falkirk as fk

SCHEMAS: dict[str, dict[str, Any]] = {
    "t": {"k": int, "p": fk.Decimal(9, 2), "q": fk.Decimal(12, 4), "i": int, "n": fk.Int32, "u": fk.UInt64, "v": fk.UInt32,
          "w": fk.Decimal(20, 0), "ms": fk.Datetime, "us": fk.DatetimeMicros},
}  # fmt: skip
MOMENTS = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2025, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
           datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]  # fmt: skip


def tables(seed: int) -> dict[str, list[dict[str, Any]]]:
    random = Random(seed)

    def row() -> dict[str, Any]:
        values = {
            "k": random.randrange(3), "p": Decimal(random.choice([-150, 0, 1, 100, 199, 200])) / 100,
            "q": Decimal(random.choice([-15000, 0, 100, 1234, 20000])) / 10000, "i": random.choice([-1, 0, 1, 2**63 - 1]),
            "n": random.randrange(-2, 3), "u": random.choice([0, 1, 2, 2**63, 2**64 - 1]), "v": random.randrange(3),
            "w": random.choice([Decimal(0), Decimal(1), Decimal(2**63 - 2), Decimal(2**63 - 1)]),
            "ms": random.choice(MOMENTS[:2]), "us": random.choice(MOMENTS),
        }  # fmt: skip
        return {name: None if random.random() < 0.1 else value for name, value in values.items()}

    return {"t": [row() for _ in range(22)]}


@pytest.mark.parametrize(
    "query",
    [
        "select k, p from t union all select k, q from t",
        "select k, q from t union all select k, i from t",
        "select k, n from t union all select k, p from t union all select k, q from t",
        "select k, u from t union all select k, i from t",
        "select k, i from t union all select k, u from t",
        "select u from t union select v from t",
        "select distinct k, p from t",
        "select p, count(*) as n, sum(q) as q from t group by p having p >= 0",
        "select p as price, q * 2 as q from t group by p, q * 2",
        "select p as k, sum(k) as p from t group by t.p",
        "select n, count(*) as c, max(q) as q from (select q, count(*) as n from t group by q) g group by n",
        "select x.k, (select count(*) from t y where y.q = x.p) as n from t x",
        "select x.k from t x where exists (select 1 from t y where y.q = x.p and y.i <> x.i)",
        "select x.k from t x where not exists (select 1 from t y where y.p = x.p and y.n < x.n)",
        "select k, ms from t union all select k, us from t",
        "select us from t union select ms from t",
        "select ms from t except select us from t where k > 0",
        "select p from t union select q from t",
        "select p from t union select i from t",
        "select p from t intersect select q from t",
        "select p from t except select n from t",
        "select u from t union select i from t",
        "select i from t intersect select u from t",
        "select u from t except select i from t",
        "select x.k, y.k as other, x.p from t x join t y on x.p = y.p",
        "select x.k, x.p, y.i from t x left join t y on x.p = y.i and y.k > 0",
        "select p, x.k, y.n from t x full join (select n, n * 1.5 as f, cast(n as decimal(9, 2)) as p from t) y using (p)",
        "select x.k, y.k as other from t x join t y on x.i = y.w",
        "select k from t where p not in (select n from t where n is not null)",
        "select k, sum(n * p) as a, sum(p * q) as b, sum(p + q) as c, sum(p) as d from t group by k",
        "select k, avg(n * p) as a from t where p = 1 group by k",
        "select x.k, y.k as other from t x join t y on x.u = y.i",
        "select x.k, y.k as other from t x left join t y on x.i = y.u",
        "select x.k, y.k as other from t x join t y on x.v = y.u",
        "select k from t where n in (select u from t)",
    ],
)
def test_numbers_of_two_types_keep_their_value(query: str) -> None:
    compare(query, SCHEMAS, tables)
