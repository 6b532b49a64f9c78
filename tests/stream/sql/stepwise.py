"""Compares a query with DuckDB after every step, over tables whose rows come and go."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import narwhals as nw
import polars as pl
from tests.duck import database
from tests.stream.sql.test_joins import SCHEMAS, random_tables

import falkirk as fk

Rows = dict[str, list[dict[str, Any]]]


def compare(
    query: str, schemas: Mapping[str, Mapping[str, Any]] = SCHEMAS, tables: Callable[[int], Rows] = random_tables
) -> None:
    """Fails if the result of a query differs from DuckDB's after any step. `tables` makes rows of a seed."""
    read = [name for name in schemas if re.search(rf"(from|join|,) {name}\b", query)]
    flow = fk.Flow("sql")
    for name in read:
        flow.source(name, value=fk.Json({**schemas[name], "weight": int}), changes="weights")
    result = flow.sql(query, id="q")
    keys = [c for c, dtype in result.schema.items() if not isinstance(dtype, pl.Decimal | pl.List)]
    columns = result.schema.names()
    result = result.with_columns(every=nw.lit(value=True))  # a key, if there is no other
    result.sink("out", key=keys or "every", value=fk.Json(), changes="weights")
    app, random = fk.testing.App(flow), Random(query)
    there: Rows = {name: [] for name in schemas}
    for step in range(3):
        new = tables(random.randrange(1000))
        for name in read:
            gone = random.sample(there[name], len(there[name]) * 2 // 3)
            come = new[name][: (12, 9, 3)[step]]
            app.send(name, [{**row, "weight": w} for rows, w in ((gone, -1), (come, 1)) for row in rows])
            for row in gone:
                there[name].remove(row)
            there[name] += come
        app.run()
        total: Counter[tuple[Any, ...]] = Counter()
        for row in app.sinks["out"].rows:
            total[tuple(_plain(row[c]) for c in columns)] += row["weight"]
        assert {row: n for row, n in total.items() if n} == _wanted(query, schemas, there)


def _wanted(query: str, schemas: Mapping[str, Mapping[str, Any]], tables: Rows) -> dict[tuple[Any, ...], int]:
    with database() as connection:
        for name, rows in tables.items():
            schema = fk.Flow("x").source("t", value=fk.Json(schemas[name])).schema
            connection.register(name, pl.DataFrame(rows, schema=schema).to_arrow())
        found = connection.execute(query).fetchall()
    return dict(Counter(tuple(map(_plain, row)) for row in found))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
