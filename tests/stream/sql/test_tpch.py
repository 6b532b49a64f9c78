"""TPC-H over streams that insert and delete: after every step, the integral of each result is DuckDB's answer on the
tables."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, datetime
from typing import Any

import polars as pl
import pytest
from tests.duck import database
from tests.stream.sql.tpch.data import SCHEMAS, Tpch
from tests.stream.sql.tpch.queries import QUERIES

import falkirk as fk


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_gives_after_every_step(name: str) -> None:
    query = QUERIES[name]
    read = [table for table in SCHEMAS if re.search(rf"\b{table}\b", query)]
    flow = fk.Flow("tpch")
    for table in read:
        flow.source(table, value=fk.Json({**SCHEMAS[table], "weight": int}), changes="weights")
    result = flow.sql(query, id=name)
    result.sink("out", key=result.schema.names(), value=fk.Json(), changes="weights")
    app, tables, answers = fk.testing.App(flow), Tpch(), []
    for changes in tables.steps():
        for table in read:
            app.send(table, [{**row, "weight": weight} for of, row, weight in changes if of == table])
        app.run()
        total: Counter[tuple[Any, ...]] = Counter()
        for row in app.sinks["out"].rows:
            total[tuple(plain(v) for k, v in row.items() if k != "weight")] += row["weight"]
        wanted = answered(query, tables, read)
        answers.append(wanted)
        assert {row: n for row, n in total.items() if n} == dict(wanted)
    assert all(answers)
    assert len({repr(sorted(answer.items(), key=repr)) for answer in answers}) > 1


def answered(query: str, tables: Tpch, read: list[str]) -> Counter[tuple[Any, ...]]:
    with database() as connection:
        for name in read:
            schema = fk.Flow("x").source("t", value=fk.Json(SCHEMAS[name])).schema
            connection.register(name, pl.DataFrame(tables.rows(name), schema=schema).to_arrow())
        return Counter(tuple(map(plain, row)) for row in connection.execute(query).fetchall())


def plain(value: Any) -> Any:
    """Sums of floats differ in their last digits with the order of their terms."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return value.isoformat()[:10] if isinstance(value, date | datetime) else value
