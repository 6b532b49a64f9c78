"""A sink of PostgreSQL in a flow: what it accepts, what it sends to its log, which rows fail, and how it is shown."""

from __future__ import annotations

import json
from datetime import datetime

import polars as pl
import pytest
from tests.stream.sinks.logs import logged

import falkirk as fk
from falkirk.connectors.postgres.outlet import values as sent
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.definition.outlets import GONE, TablePlan
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.sinks.keyed import out_of_years, within
from falkirk.stream.operators.sinks.postgres import with_nul
from falkirk.testing.memory import MemoryApp

BIDS = fk.Json({"auction": fk.Int64, "price": fk.Int64})
USERS = fk.Json({"id": fk.String, "name": fk.String, "region": fk.String})


def source(regime: fk.EagerCheckpoint | fk.Batch | None = None) -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("app", regime=regime or fk.EagerCheckpoint())
    return flow, flow.source("bids", key="auction", value=BIDS)


def test_rows_without_a_key_are_logged_as_they_are() -> None:
    flow, bids = source()
    bids.sink_postgres("table", "shop")
    app = MemoryApp(flow, {"bids": 2}, tasks=2)
    for i in range(10):
        app.append("bids", str(i).encode(), b'{"auction":%d,"price":1}' % i)
    app.run()
    assert sorted(row for frame in logged(app) for row in frame.rows()) == [(i, 1) for i in range(10)]
    assert all(frame.columns == ["auction", "price"] for frame in logged(app) if frame.height)


def test_changes_are_one_row_for_each_key_and_step_marked_if_it_is_gone() -> None:
    flow = fk.Flow("app")
    users = flow.source("users", key="id", value=USERS, changes="upsert")
    users.sink_postgres("table", "shop", key="id")
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
        {"id": "1", "name": "ann"},
        {"id": None, "name": "bob"},
        {"id": "3", "name": "a\0b"},
        {"id": "4" * 2_501, "name": "dan"},
    ]
    flow.source("users", value=USERS).repartition("id").sink_postgres(
        "table", "shop", key="id", on_error=fk.DeadLetter()
    )
    app = MemoryApp(flow, {"users": 1})
    for row in rows:
        app.append("users", None, fk.Json().encode(pl.DataFrame([row]))[0] or b"")
    app.run()
    assert [row[:2] for frame in logged(app) for row in frame.rows()] == [("1", "ann")]
    result = fk.testing.run(flow, {"users": rows})
    assert sorted(letter["reason"] for letter in result.dead_letters) == [
        "column 'name' has a value that PostgreSQL does not hold: text with the character U+0000",
        "its key column 'id' is null, and a primary key holds no null",
        "its key has more than 2,500 bytes, and PostgreSQL's index does not hold that",
    ]
    flow = fk.Flow("app")
    flow.source("users", value=USERS).sink_postgres("table", "shop")
    with pytest.raises(UserCodeError, match=r"U\+0000"):
        fk.testing.run(flow, {"users": rows})


@pytest.mark.parametrize(
    "dtype", [pl.Datetime("ms", "UTC"), pl.Datetime("us"), pl.Datetime("us", "Europe/Berlin"), pl.Date()]
)
def test_times_outside_of_the_years_1_to_9999_are_not_held(dtype: pl.DataType) -> None:
    days = pl.Series([-719_163, -719_162, 0, None, 2_932_896, 2_932_897])
    unit = 1 if dtype == pl.Date() else 86_400_000 * (1_000 if dtype.time_unit == "us" else 1)  # type: ignore[attr-defined]
    column = (days * unit).cast(pl.Int32() if unit == 1 else pl.Int64()).cast(dtype)
    for values, expected in (
        (column, [True, False, False, False, False, True]),
        (column.implode(), [True]),
        (column.to_frame("a").to_struct("s"), [True, False, False, False, False, True]),
    ):
        found = within(values, out_of_years)
        assert found is not None
        assert found.to_list() == expected


def test_moments_of_another_zone_than_utc_are_written() -> None:
    flow = fk.Flow("app")
    rows = flow.source("days", value=fk.Json({"at": fk.Datetime}))
    rows.with_columns(at=fk.col("at").dt.convert_time_zone("Europe/Berlin")).sink_postgres("table", "shop")
    app = MemoryApp(flow, {"days": 1})
    app.append("days", None, b'{"at":"9999-12-31T23:30:00Z"}')
    app.run()
    (frame,) = logged(app)
    assert [at.isoformat() for at in sent(frame["at"])] == ["9999-12-31T23:30:00+00:00"]


def test_moments_of_another_zone_within_lists_and_structs_are_written_in_utc() -> None:
    # The second is of year 10000 there; the offset of the third is 5 hours, 53 minutes and 28 seconds.
    texts = ["2026-01-31T12:00:00Z", "9999-12-31T23:30:00Z", "1811-07-23T15:06:40Z"]
    moments = pl.Series([datetime.fromisoformat(text) for text in texts]).dt.convert_time_zone("Asia/Kolkata")
    assert sent(moments.implode()) == [json.dumps(texts, separators=(",", ":"))]
    assert sent(moments.reshape((3, 1))) == [f'["{text}"]' for text in texts]
    assert sent(pl.DataFrame({"at": moments, "x": None}).to_struct()) == [
        f'{{"at":"{text}","x":null}}' for text in texts
    ]


def test_text_within_lists_is_looked_at() -> None:
    column = pl.Series([[{"a": "x\0"}], [{"a": None}], None], dtype=pl.List(pl.Struct({"a": pl.String()})))
    found = within(column, with_nul)
    assert found is not None
    assert found.to_list() == [True, False, False]


def test_a_time_within_a_list_that_no_table_holds_fails_with_its_row() -> None:
    flow = fk.Flow("app")
    rows = flow.source("days", value=fk.Json({"id": fk.Int64, "days": fk.List(fk.Date)}))
    rows.sink_postgres("table", "shop", on_error=fk.Skip())
    app = MemoryApp(flow, {"days": 1})
    for value in (b'{"id":1,"days":["0000-12-31"]}', b'{"id":2,"days":["0001-01-01"]}'):
        app.append("days", None, value)
    app.run()
    assert [frame["id"].to_list() for frame in logged(app)] == [[2]]


def test_a_failed_row_of_a_stream_that_changes_leaves_no_older_row_behind() -> None:
    flow = fk.Flow("app")
    users = flow.source("users", key="id", value=USERS, changes="upsert")
    users.sink_postgres("table", "shop", key="id", on_error=fk.Skip())
    app = MemoryApp(flow, {"users": 1})
    for name in (b"ann", b"a\\u0000b"):
        app.append("users", b"a", b'{"id":"a","name":"%s"}' % name)
        app.run()
    (rows,) = logged(app)
    assert rows[GONE].to_list() == [False, True]


def test_a_stream_with_retractions_needs_a_key_that_identifies_its_rows() -> None:
    _, bids = source()
    counts = bids.group_by("auction").agg(n=fk.len())
    with pytest.raises(DefinitionError, match="can be taken back") as caught:
        counts.sink_postgres("table", "shop")
    assert "test_postgres.py:" in caught.value.where
    with pytest.raises(DefinitionError, match="does not identify a row"):
        counts.sink_postgres("table", "shop", key="n")
    counts.sink_postgres("table", "shop", key=["auction", "n"])


def test_rows_of_one_key_must_be_in_one_task() -> None:
    _, bids = source()
    with pytest.raises(DefinitionError, match="can be in several tasks") as caught:
        bids.sink_postgres("table", "shop", key="price")
    assert ".repartition(['price'])" in caught.value.hint
    bids.repartition(["price"]).sink_postgres("table", "shop", key="price")


def test_what_cannot_be_written_is_refused() -> None:
    _, bids = source()
    with pytest.raises(DefinitionError, match="not a valid name") as caught:
        bids.sink_postgres("table", "postgresql://app:hush@host")
    assert "hush" not in str(caught.value)
    for table in ("", "a.b.c", "a.", "x" * 64):
        with pytest.raises(DefinitionError, match="is not a valid name"):
            bids.sink_postgres("table", "shop", table=table)
    with pytest.raises(DefinitionError, match="every='soon' is not a duration"):
        bids.sink_postgres("table", "shop", every="soon")
    with pytest.raises(DefinitionError, match="there is no column 'id'"):
        bids.sink_postgres("table", "shop", key="id")
    with pytest.raises(DefinitionError, match="'xmin' cannot be a column of PostgreSQL"):
        bids.with_columns(xmin=fk.col("price")).sink_postgres("table", "shop")
    with pytest.raises(DefinitionError, match="batch part"):
        bids.with_regime(fk.Batch()).sink_postgres("table", "shop")
    timed = bids.with_columns(at=fk.lit(0).cast(fk.Datetime))
    spans = timed.with_columns(took=fk.col("at") - fk.col("at"))
    with pytest.raises(DefinitionError, match="PostgreSQL has no type for column 'took'"):
        spans.sink_postgres("table", "shop")


def test_explain_says_which_table_is_written() -> None:
    flow, bids = source()
    bids.sink_postgres("prices", "shop", table="own.prices", key="auction")
    assert "  write   rows prices: table own.prices of database shop, by auction" in explain(flow)


def test_a_plan_holds_no_address() -> None:
    flow, bids = source()
    bids.sink_postgres("table", "shop", key="auction")
    (output,) = [o for stage in flow.plan().stages for o in stage.outputs if o.outlet is not None]
    assert isinstance(output.outlet, TablePlan)
    assert (output.outlet.database, output.outlet.table, output.outlet.key) == ("shop", "table", ("auction",))
