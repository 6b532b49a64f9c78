"""−0.0 is 0.0: which of them comes first, and how rows are cut into steps, changes no result."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import falkirk as fk

ZEROS = [b"0.0", b"-0.0"]


def sent(*values: bytes, weight: int = 1) -> list[tuple[None, bytes]]:
    return [(None, b'{"k":1,"x":%s,"n":1,"weight":%d}' % (x, weight)) for x in values]


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
@pytest.mark.parametrize("changes", ["append", "weights"])
def test_aggregates_of_zeros_are_the_same_however_they_come(regime: Any, changes: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    columns = {"k": fk.Int64, "x": fk.Float64, "n": fk.Int64}
    value = fk.Json({**columns, "weight": fk.Int64} if changes == "weights" else columns)
    rows = flow.source("in", value=value, changes=changes)
    found = rows.group_by("k", id="g").agg(
        low=fk.min("x"), high=fk.max("x"), first=fk.first("x", by="n"), last=fk.last("n", by="x"), all=fk.collect("x")
    )
    found.sink("out", key="k", value=fk.Json())
    seen = {
        str(fk.testing.run(flow, {"in": sent(*values)}, step_rows=step).sinks["out"].table)
        for values in itertools.product(ZEROS, repeat=2)
        for step in (1, 2)
    }
    assert seen == {"{1: {'k': 1, 'low': 0.0, 'high': 0.0, 'first': 0.0, 'last': 1, 'all': [0.0, 0.0]}}"}


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
def test_a_group_of_zeros_has_one_key(regime: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    rows = flow.source("in", value=fk.Json({"x": fk.Float64}))
    rows.group_by("x", id="g").agg(n=fk.len()).sink("out", key="x", value=fk.Json())
    seen = {
        str(fk.testing.run(flow, {"in": sent(*values)}, step_rows=step).sinks["out"].table)
        for values in itertools.permutations([*ZEROS, b"-0.0"])
        for step in (1, 3)
    }
    assert seen == {"{0.0: {'x': 0.0, 'n': 3}}"}


@pytest.mark.parametrize(("came", "gone"), itertools.permutations(ZEROS))
def test_a_joined_row_is_taken_back_by_its_equal(came: bytes, gone: bytes) -> None:
    flow = fk.Flow("f")
    value = fk.Json({"k": fk.Int64, "x": fk.Float64, "n": fk.Int64, "weight": fk.Int64})
    rows = flow.source("in", value=value, changes="weights")
    names = flow.source("names", value=fk.Json({"k": fk.Int64, "name": fk.String}))
    rows.join(names, on="k", id="j").agg(n=fk.len(), id="all").sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("names", [{"k": 1, "name": "a"}])
    app.send("in", sent(came, b"1.0"))
    app.run()
    app.send("in", sent(gone, weight=-1))
    app.run()
    assert app.sinks["out"].rows[-1] == {"n": 1}
