"""Each query of NexMark gives what DuckDB gives over the same events."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database
from tests.stream.operators.against import Row, shown

import falkirk as fk

FOLDER = Path(__file__).parents[2] / "examples" / "nexmark"
LATE = 4_000
"""How many milliseconds late the queries let rows be."""


def module(name: str) -> ModuleType:
    """A file of the example, which imports nothing that lies beside it."""
    spec = importlib.util.spec_from_file_location(f"nexmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


answers, events, queries = module("answers"), module("events"), module("queries")
sys.modules["queries"] = queries  # as for a script in that folder
texts = module("texts")


@cache
def some(count: int, seed: int) -> dict[str, pl.DataFrame]:
    """Events out of order, by less than rows may be late; 100 a second, so that there are several windows."""
    found = events.events(0, count, rate=100)
    frames = {"person": found.people, "auction": found.auctions, "bid": found.bids}
    delay = pl.int_range(pl.len()).shuffle(seed) % LATE
    late = {name: frame.sort(pl.col("ts") + delay, maintain_order=True) for name, frame in frames.items()}
    return {"side_input": events.side_input(), **late}


def wanted(number: int, inputs: dict[str, pl.DataFrame], columns: list[str]) -> Counter[Row]:
    with database(**inputs) as db:
        found = db.execute(f"select {', '.join(columns)} from ({answers.ANSWERS[number]})").fetchall()
    return Counter(map(shown, found))


def result(number: int, app: Any) -> tuple[list[str], Counter[Row]]:
    """The columns of the query's sink, and what a reader finally sees in it."""
    found = app.sinks[f"q{number}"]
    changes = queries.QUERIES[number](queries.Streams(fk.Flow("f")))[1] is not None
    rows = found.table.values() if changes else found.rows
    columns = list(found.schema)
    return columns, Counter(shown([row[c] for c in columns]) for row in rows)


def check(flow: fk.Flow, number: int, inputs: dict[str, pl.DataFrame], rows: int, partitions: int) -> None:
    app = fk.testing.App(flow, partitions=partitions, step_rows=rows)
    for name, frame in inputs.items():
        if name in app._cluster.counts:
            app.send(name, frame)
    app.run()
    columns, found = result(number, app)
    assert found == wanted(number, inputs, columns)


CUTS = {
    "count": st.integers(1_000, 3_000),
    "seed": st.integers(0, 3),
    "rows": st.integers(150, 2_000),
    "partitions": st.integers(1, 2),
}


@pytest.mark.parametrize("number", list(queries.QUERIES))
@given(**CUTS)
@settings(max_examples=2, deadline=None)
def test_a_query_gives_what_duckdb_gives_however_its_steps_are_cut(
    number: int, count: int, seed: int, rows: int, partitions: int
) -> None:
    check(queries.flow(number), number, some(count, seed), rows, partitions)


@pytest.mark.parametrize("number", list(texts.TEXTS))
@given(**CUTS)
@settings(max_examples=1, deadline=None)
def test_a_query_in_sql_gives_the_same(number: int, count: int, seed: int, rows: int, partitions: int) -> None:
    check(texts.flow(number), number, some(count, seed), rows, partitions)
