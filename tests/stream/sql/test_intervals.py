"""Joins in SQL that say how far two event times are apart."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import polars as pl
import pytest
from tests.duck import database

import falkirk as fk

NEAR = "r.at between l.at - interval '5' second and l.at + interval '10' second"
APART = "l.at <= r.at + interval '5 seconds' and l.at + interval '10' second >= r.at"
STRICT = "r.at > l.at - interval '5' second and r.at <= interval '10' second + l.at"


def flow_of(query: str, **more: Any) -> fk.Flow:
    flow = fk.Flow("f")
    value = fk.Json({"k": int, "at": fk.Datetime, "v": int})
    for name in ("l", "r"):
        flow.source(name, value=value, time="at", **{"late": "0s", **more})
    found = flow.sql(query, id="q")
    found.sink("out", key=list(found.schema) if found._op.changes else None, value=fk.Json(), changes="weights")
    return flow


def joins_of(flow: fk.Flow) -> list[Any]:
    return [o for o in flow.graph.operators if o.kind == "join"]


@pytest.mark.parametrize(
    "query",
    [
        f"select l.k, l.v, r.v as w from l join r on l.k = r.k and {NEAR}",
        f"select l.v, r.v as w from l, r where {APART} and l.k = r.k and r.v > 1",
        f"select l.v, r.v as w, r.at as later from l join r on l.k = r.k and {STRICT}",
        f"select l.at, l.v, r.v as w from l left join r on l.k = r.k and {NEAR} and l.v > 2",
        f"select l.v as v, r.v as w from l right join r on l.k = r.k and {NEAR}",
        f"select l.v from l semi join r on l.k = r.k and {NEAR}",
        f"select l.v from l anti join r on l.k = r.k and {APART}",
    ],
)
def test_it_gives_what_duckdb_gives_and_is_bounded(query: str) -> None:
    flow = flow_of(query)
    (join,) = joins_of(flow)
    assert join.expire
    assert {-join.lower, join.upper} == {5_000, 10_000}
    compare(flow, query)


@pytest.mark.parametrize(
    "query",
    [
        f"select l.k, r.k as rk, l.v from l left join r on l.k = r.k and {NEAR} and l.v < r.v",
        f"select l.k, r.k as rk from l full join r on l.k = r.k and {NEAR} and l.v < r.v",
        f"select l.k, count(r.k) as n from l left join r on l.k = r.k and {STRICT} and l.v <> r.v group by l.k",
    ],
)
def test_with_one_more_condition_a_row_without_a_partner_has_nulls(query: str) -> None:
    compare(flow_of(query), query)


def compare(flow: fk.Flow, query: str) -> None:
    rng = Random(3)
    app = fk.testing.App(flow, step_rows=7)
    frames = {}
    for name in ("l", "r"):
        rows = [{"k": rng.randint(0, 2), "at": 1_000 * (n + 1), "v": rng.randint(0, 4)} for n in range(25)]
        frames[name] = pl.DataFrame(rows).with_columns(pl.col("at").cast(pl.Datetime("ms")))
        dated = frames[name].with_columns(pl.col("at").dt.replace_time_zone("UTC"))
        app.send(name, dated.to_dicts())
    app.run()
    total: Counter[Any] = Counter()
    for row in app.sinks["out"].rows:
        weight = row.pop("weight")
        total[tuple(v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in row.values())] += weight
    with database(**frames) as db:
        assert +total == Counter(db.execute(query).fetchall())


@pytest.mark.parametrize("kind", ["", "left", "semi"])
def test_without_watermarks_it_is_a_condition_as_any_other(kind: str) -> None:
    joins = joins_of(flow_of(f"select l.v from l {kind} join r on l.k = r.k and {NEAR}", late=None))
    assert joins
    assert not any(hasattr(join, "lower") for join in joins)


@pytest.mark.parametrize("condition", ["r.at >= l.at", "r.at between l.at and l.at + interval '1' month", "r.v >= l.v"])
def test_what_does_not_bound_the_distance_is_a_condition_as_any_other(condition: str) -> None:
    (join,) = joins_of(flow_of(f"select l.v from l join r on l.k = r.k and {condition}"))
    assert not hasattr(join, "lower")
