"""Which record a request of many rows becomes, without a broker."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.connectors.http.messages import Reply
from falkirk.runtime.gateway.desk import ToAppend
from falkirk.runtime.gateway.gateway import served_by
from falkirk.runtime.gateway.metrics import ReducedRows
from falkirk.runtime.gateway.recording import Recording, reduced_by
from falkirk.stream.operators.sources.reduction import Misfit, Reduction, Request

VALUE = fk.Json({"origin": str, "delay": int, "tags": fk.List(fk.String), "number": str})


def late(rows: fk.Stream[Any]) -> fk.Stream[Any]:
    found = rows.filter(fk.col("delay") > 0).with_columns(hours=fk.col("delay") / 60)
    return found.select("origin", "hours", "tags", n=fk.col("number").cast(fk.Int64)).explode("tags")


def reduction_of(reduce: Any = late, value: Any = VALUE) -> Reduction:
    flow = fk.Flow("flights")
    flow.http("delays", value=value, reduce=reduce)
    found = served_by(flow.plan())["delays"].reduction
    assert found is not None
    return found


def recording() -> tuple[Recording, ReducedRows]:
    rows = ReducedRows(["delays"])
    return reduced_by(reduction_of(), "delays", rows), rows


def asked(key: str, *rows: Any) -> ToAppend:
    return ToAppend(
        key, b"", f"digest-{key}", [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    )


def row(delay: Any, *tags: str, number: str = "7") -> dict[str, Any]:
    return {"origin": "JFK", "delay": delay, "tags": tags, "number": number, "gate": 3}


def left(hours: float, tag: str) -> dict[str, Any]:
    return {"origin": "JFK", "hours": hours, "tags": tag, "n": 7}


def test_a_record_has_the_rows_of_its_request_that_are_left_in_their_order() -> None:
    records, rows = recording()
    a = asked("a", row(60, "x", "y"), row(-60, "x"), row(90, "z"))
    one, nothing, none, another = records([a, asked("b", row(-1, "x"), row(1)), asked("c"), asked("d", row(30, "w"))])
    assert isinstance(one, bytes)
    assert isinstance(another, bytes)
    assert json.loads(one) == {
        "request": "a", "request_digest": "digest-a", "rows": [left(1.0, "x"), left(1.0, "y"), left(1.5, "z")]
    }  # fmt: skip
    assert json.loads(another)["rows"] == [left(0.5, "w")]
    assert (nothing, none) == (None, None)
    assert (rows.received["delays"], rows.logged["delays"]) == (6, 4)


WRONG: list[tuple[str, list[Any]]] = [
    ("row 1: field 'delay'", [row(1, "x"), row("1", "x"), row(True, "x")]),
    ("row 0: not JSON", [b"{", row(1, "x")]),
    ("row 2: not a JSON object", [row(1, "x"), row(1, "x"), b"[1]"]),
    ("row 2: select 'select' raised", [row(1, "x"), row(-1, number="no"), row(1, "x", number="no")]),
]


@pytest.mark.parametrize(("words", "rows"), WRONG)
def test_a_row_that_does_not_fit_refuses_its_request_and_no_other(words: str, rows: list[Any]) -> None:
    records, counted = recording()
    before, wrong, after = records([asked("a", row(60, "x")), asked("b", *rows), asked("c", row(90, "y"))])
    assert isinstance(wrong, Reply)
    assert (wrong.status, words in wrong.body.decode()) == (400, True)
    assert [json.loads(each)["rows"] for each in (before, after) if isinstance(each, bytes)] == [
        [left(1.0, "x")], [left(1.5, "y")]
    ]  # fmt: skip
    assert (counted.received["delays"], counted.logged["delays"]) == (2, 2)


@pytest.mark.parametrize("millis", [253402300800000, -99999999999999, 9 * 10**15, -9 * 10**18])
def test_a_time_that_is_in_no_calendar_refuses_its_request_and_no_other(millis: int) -> None:
    reduction = reduction_of(lambda rows: rows.with_columns(at=fk.col("ms").cast(fk.Datetime)), fk.Json({"ms": int}))
    good = Request("a", "", [b'{"ms": 0}'])
    wrong = Request("b", "", [b'{"ms": 0}', b'{"ms": %d}' % millis])
    before, between, after = reduction.reduced([good, wrong, good])
    assert isinstance(between, Misfit)
    assert (between.row, between.reason.startswith("what is left of it cannot be ")) == (1, True)
    assert before == after == reduction.reduced([good])[0]
    assert not isinstance(before, Misfit)


some_rows = st.lists(
    st.tuples(st.integers(-2, 2), st.sampled_from(["7", "8", "no"]), st.lists(st.sampled_from("xy"), max_size=2)),
    max_size=4,
)


@given(st.lists(some_rows, max_size=5))
def test_what_becomes_of_a_request_does_not_depend_on_those_beside_it(requests: list[Any]) -> None:
    reduction = reduction_of()
    made = [
        Request(str(n), "", [json.dumps(row(d, *tags, number=number)).encode() for d, number, tags in rows])
        for n, rows in enumerate(requests)
    ]
    assert reduction.reduced(made) == [one for request in made for one in reduction.reduced([request])]


def test_the_flow_reads_what_the_gateway_has_left_value_for_value() -> None:
    schema = {
        "at": fk.Datetime,
        "share": float,
        "day": fk.Date,
        "big": fk.UInt64,
        "text": str,
        "tags": fk.List(fk.Int8),
    }
    reduction = reduction_of(lambda rows: rows.filter(fk.col("share") > 0), fk.Json(schema))
    flow = fk.Flow("flights")
    flow.http("delays", value=fk.Json(schema), reduce=lambda rows: rows).select(*schema).sink(
        "all", value=fk.Json(schema)
    )
    body = {
        "at": "2026-11-26T12:00:00Z", "share": 0.1, "day": "2026-11-26", "big": 2**64 - 1, "text": 'a"\né', "tags": [1, None]
    }  # fmt: skip
    (made,) = reduction.reduced([Request("k", "d", [json.dumps(body).encode(), b'{"share": 1}'])])
    app = fk.testing.run(flow, {"delays": [("k", made.value)]})  # type: ignore[union-attr]
    given_rows = pl.DataFrame(app.sinks["all"].rows, schema=fk.Json(schema).schema)
    assert given_rows.equals(fk.Json(schema).decode([json.dumps(body).encode(), b'{"share": 1}']).frame)
