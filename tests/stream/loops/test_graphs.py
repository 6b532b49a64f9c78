"""Loops over random graphs whose edges come and go: after each step the result is what plain Python finds in what is left."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.loops.graphs import EDGE, LOOPS, Edge, Rows

import falkirk as fk
from falkirk.testing.memory import MemoryApp

edge = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 3))
batch = st.lists(st.tuples(edge, st.sampled_from([1, 1, 1, -1, -1])), max_size=8)
steps = st.lists(batch, min_size=1, max_size=6)


def flow_of(name: str, regime: Any = None) -> fk.Flow:
    flow = fk.Flow("graphs", regime=regime)
    edges = flow.source("edges", value=fk.Json({**EDGE, "weight": int}), changes="weights")
    loop = LOOPS[name][0](edges)
    loop.sink("out", key=sorted(loop.schema), value=fk.Json())
    return flow


def applied(there: Counter[Edge], batch: list[tuple[Edge, int]]) -> list[dict[str, Any]]:
    """The records of a batch: an edge is only taken back if it is there."""
    records = []
    for (a, b, w), weight in batch:
        if there[a, b, w] + weight >= 0:
            there[a, b, w] += weight
            records.append({"a": a, "b": b, "w": w, "weight": weight})
    return records


def run(app: MemoryApp, records: list[dict[str, Any]]) -> None:
    for record in records:
        app.append("edges", None, json.dumps(record).encode(), partition=0)
    app.run()


def table(app: MemoryApp) -> Rows:
    return Counter(tuple(json.loads(value).values()) for value in app.latest("out").values())


@pytest.mark.parametrize("name", LOOPS)
@given(changes=steps)
@settings(max_examples=6, deadline=None)
def test_a_loop_is_what_is_computed_from_nothing_after_each_step(
    name: str, changes: list[list[tuple[Edge, int]]]
) -> None:
    app, there = MemoryApp(flow_of(name)), Counter[Edge]()
    for change in changes:
        run(app, applied(there, change))
        assert table(app) == LOOPS[name][1](+there)
