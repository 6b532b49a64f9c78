"""Approximate aggregates: near to the exact answer, the same for the same steps, and mergeable."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.bound import Bound, Context
from falkirk.stream.aggregates.sketches import BoundApproxNUnique, BoundApproxQuantile

TYPES: dict[str, pl.Series] = {
    "integers": pl.Series("x", [*range(5_000), None]),
    "text": pl.Series("x", [f"user {i}" for i in range(5_000)]),
    "floats": pl.Series("x", [*np.linspace(-1, 1, 4_999), float("nan")]),
    "times": pl.Series("x", range(5_000)).cast(pl.Datetime("us")),
    "bytes": pl.Series("x", [i.to_bytes(2, "big") for i in range(5_000)]),
    "decimals": pl.Series("x", range(5_000)).cast(pl.Decimal(10, 2)),
    "flags": pl.Series("x", [True, False, None]),
    "few": pl.Series("x", [1, 2, 3, 3, 3, 2]),
}


def bound(aggregate: Any, dtype: Any) -> Bound:
    found: Bound = aggregate.bind(Context("n", pl.Schema({"x": dtype}), retract=False, where="agg"))
    return found


@pytest.mark.parametrize("name", TYPES)
def test_different_values_are_counted_nearly(name: str) -> None:
    values = TYPES[name]
    counted = bound(fk.approx_n_unique("x"), values.dtype)
    assert isinstance(counted, BoundApproxNUnique)
    physical = values.to_frame().select(counted.value()).to_series()
    whole = counted.sketch(physical)
    first, second = counted.sketch(physical[: len(values) // 2]), counted.sketch(physical[len(values) // 3 :])
    assert whole is not None
    assert first is not None
    assert second is not None
    exact = values.n_unique()
    assert abs(counted.estimate(whole) - exact) <= (0 if exact < 10 else 0.05 * exact)
    assert counted.estimate(counted.merged(first, second)) == counted.estimate(whole)
    assert whole == counted.sketch(physical)


@pytest.mark.parametrize("q", [0, 0.01, 0.5, 0.9, 0.999, 1])
def test_a_quantile_has_nearly_its_rank(q: float) -> None:
    values = pl.Series("x", np.random.default_rng(7).lognormal(size=20_000))
    measured = bound(fk.approx_quantile("x", q), pl.Float64())
    assert isinstance(measured, BoundApproxQuantile)
    parts = [measured.sketch(values[i : i + 1_500]) for i in range(0, len(values), 1_500)]
    state = parts[0]
    for part in parts[1:]:
        assert state is not None
        assert part is not None
        state = measured.merged(state, part)
    assert state is not None
    found = measured.estimate(state)
    assert abs(float((values <= found).mean() or 0.0) - q) < 0.01
    assert len(state) < 5_000


@given(steps=st.lists(st.lists(st.none() | st.floats(width=32), max_size=30), max_size=4))
def test_the_same_steps_give_the_same_bytes(steps: list[list[float | None]]) -> None:
    def run() -> list[Any]:
        made = []
        for aggregate in (fk.approx_n_unique("x"), fk.approx_quantile("x", 0.5)):
            one: Any = bound(aggregate, pl.Float64())
            state = None
            for step in steps:
                part = one.sketch(pl.Series("x", step, dtype=pl.Float64))
                state = part if state is None else state if part is None else one.merged(state, part)
            made.append(state)
        return made

    assert run() == run()


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False])
def test_sketches_are_the_same_after_crashes_everywhere(keyed: bool) -> None:
    flow = fk.Flow("sketches", regime=fk.LazyCheckpoint())
    rows = flow.source("rows", value=fk.Json({"k": int, "x": int}))
    asked = {"n": fk.approx_n_unique("x"), "low": fk.approx_quantile("x", 0), "high": fk.approx_quantile("x", 1)}
    found = rows.group_by("k").agg(**asked) if keyed else rows.agg(**asked)
    found.sink("out", key="k" if keyed else None, value=fk.Json())
    given_rows = [{"k": 1, "x": i % 7} for i in range(12)]
    app = fk.testing.run(flow, {"rows": given_rows}, crash_at="everywhere", step_rows=4)
    (row,) = app.sinks["out"].table.values()
    assert (row["n"], row["low"], row["high"]) == (7, 0.0, 6.0)


def test_sketches_in_sql_and_windows() -> None:
    flow = fk.Flow("sketches")
    rows = flow.source("rows", value=fk.Json({"k": int, "x": int, "at": int}), time="at", late="0s")
    query = "select k, approx_count_distinct(x) as n, approx_quantile(x, 0.5) as middle from rows group by k"
    flow.sql(query, id="q").sink("sql", key="k", value=fk.Json())
    tumbling = rows.group_by("k", fk.tumbling("at", "10ms")).agg(n=fk.approx_n_unique("x"))
    tumbling.final().sink("windows", value=fk.Json())
    given_rows = [{"k": 1, "x": (i * 3) % 5 if i else None, "at": i + 1} for i in range(21)]
    app = fk.testing.run(flow, {"rows": given_rows}, step_rows=5)
    assert app.sinks["sql"].table == {1: {"k": 1, "n": 5, "middle": 2.0}}
    assert [row["n"] for row in app.sinks["windows"].rows] == [6, 5]


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (fk.approx_quantile("x", 1.5), "1.5 is not a quantile"),
        (fk.approx_quantile("s", 0.5), "approx_quantile of 's', which is String, is not defined"),
        (fk.approx_n_unique("l"), "cannot be part of a key"),
        (fk.approx_n_unique("nope"), "nope"),
    ],
)
def test_what_has_no_sketch_is_refused(aggregate: Any, message: str) -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json({"k": int, "x": int, "s": str, "l": fk.List(fk.Int64)}))
    with pytest.raises(DefinitionError, match=message):
        rows.group_by("k").agg(n=aggregate)


@pytest.mark.parametrize("aggregate", [fk.approx_n_unique("n"), fk.approx_quantile("n", 0.5)])
def test_a_sketch_of_rows_that_can_be_taken_back_is_refused(aggregate: Any) -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json({"k": int, "x": int}))
    with pytest.raises(DefinitionError, match="cannot forget a value"):
        rows.group_by("k").agg(n=fk.len()).group_by("n", id="again").agg(m=aggregate)
