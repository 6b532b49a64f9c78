"""A sink of Delta Lake in a flow: what it accepts, what it sends to its log, which rows fail, and how it is shown."""

from __future__ import annotations

import polars as pl
import pytest
from tests.stream.sinks.logs import logged

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.definition.outlets import GONE
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.sinks.keyed import out_of_years, within
from falkirk.testing.memory import MemoryApp

BIDS = fk.Json({"auction": fk.Int64, "price": fk.Int64})
USERS = fk.Json({"id": fk.String, "name": fk.String})
BEFORE = -719_163
"""The last day, counted from 1970, that no table holds."""


def source() -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("app", regime=fk.EagerCheckpoint())
    return flow, flow.source("bids", key="auction", value=BIDS)


def test_rows_without_a_key_are_logged_as_they_are() -> None:
    flow, bids = source()
    bids.sink_delta("table", "somewhere")
    app = MemoryApp(flow, {"bids": 2}, tasks=2)
    for i in range(10):
        app.append("bids", str(i).encode(), b'{"auction":%d,"price":1}' % i)
    app.run()
    assert sorted(row for frame in logged(app) for row in frame.rows()) == [(i, 1) for i in range(10)]
    assert all(frame.columns == ["auction", "price"] for frame in logged(app) if frame.height)


def test_changes_are_one_row_for_each_key_and_step_marked_if_it_is_gone() -> None:
    flow = fk.Flow("app")
    users = flow.source("users", key="id", value=USERS, changes="upsert")
    users.sink_delta("table", "somewhere", key="id")
    app = MemoryApp(flow, {"users": 1})
    for key, value in ((b"a", b"ann"), (b"a", b"anna"), (b"b", b"bob")):
        app.append("users", key, b'{"id":"%s","name":"%s"}' % (key, value))
    app.run()
    app.append("users", b"a", None)
    app.append("users", b"b", b'{"id":"b","name":"bert"}')
    app.run()
    (rows,) = logged(app)
    found = rows.select("id", "name", GONE).rows()
    assert sorted(found[:2]) == [("a", "anna", False), ("b", "bob", False)]
    assert sorted((id_, gone) for id_, _, gone in found[2:]) == [("a", True), ("b", False)]


def test_a_row_that_no_table_holds_stops_the_app_or_fails_as_on_error_says() -> None:
    flow = fk.Flow("app")
    rows = [
        {"id": 1, "day": 0},
        {"id": None, "day": 0},
        {"id": 3, "day": BEFORE},
    ]
    users = flow.source("users", value=fk.Json({"id": fk.Int64, "day": fk.Int64})).repartition("id")
    timed = users.select("id", at=(fk.col("day") * 86_400_000).cast(fk.Datetime))
    timed.sink_delta("table", "somewhere", key="id", on_error=fk.DeadLetter())
    app = MemoryApp(flow, {"users": 1})
    for row in rows:
        app.append("users", None, fk.Json().encode(pl.DataFrame([row]))[0] or b"")
    app.run()
    assert [row[0] for frame in logged(app) for row in frame.rows()] == [1]
    result = fk.testing.run(flow, {"users": rows})
    assert sorted(letter["reason"] for letter in result.dead_letters) == [
        "column 'at' has a time outside of the years 1 to 9999",
        "its key column 'id' is null, and a primary key holds no null",
    ]


def test_times_within_lists_and_structs_are_looked_at() -> None:
    days = pl.Series([[BEFORE], [0, BEFORE + 1], [], None], dtype=pl.List(pl.Int32())).cast(pl.List(pl.Date()))
    for column in (days, days.to_frame("a").to_struct("s"), days.to_frame("a").to_struct("s").implode().explode()):
        found = within(column, out_of_years)
        assert found is not None
        assert found.to_list() == [True, False, False, False]
    assert within(pl.Series([[1], None]), out_of_years) is None


def test_a_stream_with_retractions_needs_a_key_that_identifies_its_rows() -> None:
    _, bids = source()
    counts = bids.group_by("auction").agg(n=fk.len())
    with pytest.raises(DefinitionError, match="can be taken back") as caught:
        counts.sink_delta("table", "somewhere")
    assert "test_delta.py:" in caught.value.where
    with pytest.raises(DefinitionError, match="does not identify a row"):
        counts.sink_delta("table", "somewhere", key="n")
    with pytest.raises(DefinitionError, match="can be in several tasks"):
        bids.sink_delta("table", "somewhere", key="price")
    counts.sink_delta("table", "somewhere", key=["auction", "n"])


def test_what_cannot_be_written_is_refused() -> None:
    _, bids = source()
    for url in ("", "memory:///", "postgresql://host"):
        with pytest.raises(DefinitionError, match=r"no table|not the place of a table"):
            bids.sink_delta("table", url)
    with pytest.raises(DefinitionError, match="every='soon' is not a duration"):
        bids.sink_delta("table", "somewhere", every="soon")
    with pytest.raises(DefinitionError, match="there is no column 'id'"):
        bids.sink_delta("table", "somewhere", key="id")
    with pytest.raises(DefinitionError, match="batch part"):
        bids.with_regime(fk.Batch()).sink_delta("table", "somewhere")
    for name in ("a b", "a,b", "a=b"):
        with pytest.raises(DefinitionError, match="cannot be a column of Delta Lake"):
            bids.with_columns(**{name: fk.col("price")}).sink_delta("table", "somewhere")
    with pytest.raises(DefinitionError, match="are one column to readers"):
        bids.with_columns(Price=fk.col("price")).sink_delta("table", "somewhere")
    halves = bids.with_columns(half=fk.col("price") / 2)
    with pytest.raises(DefinitionError, match="key column 'half' is Float64") as caught:
        halves.repartition("half").sink_delta("table", "somewhere", key="half")
    assert 'fk.col("half").cast(fk.String)' in caught.value.hint
    timed = bids.with_columns(at=fk.lit(0).cast(fk.Datetime))
    spans = timed.with_columns(took=fk.col("at") - fk.col("at"))
    with pytest.raises(DefinitionError, match="Delta Lake has no type for column 'took'"):
        spans.sink_delta("table", "somewhere")


def test_explain_says_which_table_is_written() -> None:
    flow, bids = source()
    bids.sink_delta("prices", "s3://bucket/prices", key="auction", every="90s")
    assert "  write   rows prices: Delta table in s3://bucket/prices, by auction, every 1m30s" in explain(flow)


def test_a_flow_under_test_runs_with_a_sink_of_a_table() -> None:
    flow, bids = source()
    bids.sink_delta("table", "somewhere")
    bids.sink("out", key="auction", value=fk.Json())
    result = fk.testing.run(flow, {"bids": [{"auction": 7, "price": 1}]}, crash_at=[1])
    assert len(result.sinks["out"].rows) == 1
