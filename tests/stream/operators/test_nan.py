"""Rows whose key is NaN belong together, also where a step has no other key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import UserCodeError

NAN = float("nan")
BUILT: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    "over": (lambda rows: rows.over("k").agg(n=fk.len()), (2, 4)),
    "top_k": (lambda rows: rows.group_by("k").top_k(1, by="v").select(n=fk.col("v")), (1, 2)),
    "sessions": (lambda rows: rows.group_by("k", fk.session("at", gap="1m")).agg(n=fk.len()), (1, 2)),
    "deduplicate": (lambda rows: rows.deduplicate("k").select(n=fk.col("v")), (1, 1)),
    "values": (lambda rows: rows.group_by("k").agg(n=fk.n_unique("v")), (1, 2)),
    "count windows": (lambda rows: rows.group_by("k", fk.count_window(2)).agg(n=fk.len()), (1, 2)),
    "join": (lambda rows: rows.join(rows, on="k").select(n=fk.col("v") + fk.col("v_right")), (4, 12)),
}
"""Operators, and how many rows there are of two rows of NaN, and the sum of their `n`."""


@pytest.mark.parametrize("step_rows", [1, 2])
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
@pytest.mark.parametrize("kind", BUILT)
def test_rows_of_nan_meet(kind: str, regime: Any, step_rows: int) -> None:
    flow = fk.Flow("f", regime=regime)
    rows = flow.source("in", value=fk.Json({"v": int, "at": int}), time="at", late="1m")
    build, (count, total) = BUILT[kind]
    built = build(rows.with_columns(k=fk.when(fk.col("v") > 0).then(NAN).otherwise(0.0)))
    built.agg(rows=fk.len(), total=fk.sum("n")).sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"in": [{"v": v, "at": 1_000 + v} for v in (1, 2)]}, step_rows=step_rows)
    assert app.sinks["out"].rows[-1] == {"rows": count, "total": total}


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
def test_one_row_of_nan_is_joined_with_another(regime: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    a, b = (flow.source(n, value=fk.Json({"v": int})).select(k=fk.lit(NAN) * fk.col("v")) for n in "ab")
    a.join(b, on="k").agg(n=fk.len()).sink("out", value=fk.Json())
    assert fk.testing.run(flow, {"a": [{"v": 1}], "b": [{"v": 2}]}).sinks["out"].rows == [{"n": 1}]


def test_a_group_of_nan_whose_row_never_came_is_named() -> None:
    flow = fk.Flow("f")
    rows = flow.source("in", value=fk.Json({"v": int, "weight": int}), changes="weights")
    keyed = rows.with_columns(k=fk.when(fk.col("v") > 0).then(NAN).otherwise(0.0))
    keyed.group_by("k").agg(n=fk.sum("v")).agg(n=fk.sum("n")).sink("out", value=fk.Json())
    with pytest.raises(UserCodeError, match=r"'v': 1, 'k': nan\} is retracted, but was never added"):
        fk.testing.run(flow, {"in": [{"v": 1, "weight": -1}]})
