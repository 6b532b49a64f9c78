"""Sources whose records say when they happened."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import ConfigError, DefinitionError, SourceError

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
TYPES = [fk.Datetime, fk.DatetimeMicros, fk.Int64, fk.UInt64]


def passed_on(dtype: Any, **options: Any) -> fk.Flow:
    """Hands on the ids, which alone are decoded but for the time."""
    flow = fk.Flow("timed")
    rows = flow.source("rows", value=fk.Json({"id": fk.Int64, "at": dtype}), time="at", **options)
    rows.select("id").sink("out", value=fk.Json())
    return flow


def said(dtype: Any, at: datetime) -> Any:
    return int(at.timestamp() * 1000) if dtype in (fk.Int64, fk.UInt64) else at


@pytest.mark.parametrize("dtype", TYPES)
def test_outputs_are_dated_by_the_column_and_those_of_groups_by_the_greatest(dtype: Any) -> None:
    times = [NOON, NOON - timedelta(days=3), NOON + timedelta(milliseconds=1)]
    rows = [{"id": i, "at": said(dtype, at)} for i, at in enumerate(times)]
    app = fk.testing.run(passed_on(dtype), {"rows": rows}, crash_at="everywhere")
    assert [record.timestamp for record in app.sinks["out"].records] == times
    flow = fk.Flow("grouped")
    source = flow.source("rows", value=fk.Json({"id": fk.Int64, "at": dtype}), time="at")
    counts = source.with_columns(one=fk.lit(1)).group_by("one", id="n").agg(n=fk.len())
    counts.sink("out", key="one", value=fk.Json())
    app = fk.testing.run(flow, {"rows": rows}, step_rows=10)
    assert [record.timestamp for record in app.sinks["out"].records] == [max(times)]


@pytest.mark.parametrize("dtype", TYPES)
def test_a_time_that_no_record_can_have_is_the_records_fault(dtype: Any) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)  # when every test begins
    good = [NOON, now + timedelta(minutes=50), datetime.fromtimestamp(0.001, UTC)]
    bad = [None, datetime.fromtimestamp(0, UTC), now + timedelta(minutes=50, milliseconds=1)]
    times = [good[0], bad[0], good[1], bad[1], bad[2], good[2]]
    rows: list[Any] = [{"id": i, "at": None if at is None else said(dtype, at)} for i, at in enumerate(times)]
    rows.insert(2, (None, b"no JSON"))
    app = fk.testing.App(passed_on(dtype, metadata=["offset"]))
    app.send("rows", rows)
    with pytest.warns(
        UserWarning, match=r"1 row became dead letters: .*which stands at 2026-01-01 00:00 UTC in this test"
    ):
        app.run()
    assert [row["id"] for row in app.sinks["out"].rows] == [0, 2, 5]
    assert [record.timestamp for record in app.sinks["out"].records] == good
    letters = {letter["offset"]: letter["reason"] for letter in app.dead_letters}
    assert list(letters) == [1, 2, 4, 5]
    assert letters[1] == "column 'at', its time, is null"
    assert "before 1970-01-01 00:00:00.001" in letters[4]
    assert "more than 50 minutes after the step's clock" in letters[5]


def test_metadata_stays_with_its_record_where_another_has_no_time() -> None:
    flow = fk.Flow("timed")
    rows = flow.source("rows", value=fk.Json({"id": int, "at": int}), time="at", metadata=["offset", "timestamp"])
    rows.sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"rows": [{"id": 0, "at": None}, {"id": 1, "at": 5}]})
    [record] = app.sinks["out"].records
    assert (record.value["offset"], record.value["timestamp"], record.timestamp) == (
        1,
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime.fromtimestamp(0.005, UTC),
    )


def test_an_integer_that_is_no_time_at_all_fails_too_and_stops_the_app_where_that_is_said() -> None:
    app = fk.testing.App(passed_on(fk.UInt64, on_error=fk.Stop()))
    app.send("rows", [{"id": 1, "at": 2**64 - 1}])
    with pytest.raises(SourceError, match="more than 50 minutes after") as raised:
        app.run()
    assert "topic rows, partition 0, offset 0" in raised.value.where


def test_a_batch_part_dates_its_results_alike() -> None:
    flow = fk.Flow("timed", regime=fk.Batch())
    rows = flow.source("rows", value=fk.Json({"id": int, "at": fk.Datetime}), time="at")
    rows.select("id").sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"rows": [{"id": 1, "at": NOON}, {"id": 2, "at": None}]})
    assert [(r.value, r.timestamp) for r in app.sinks["out"].records] == [({"id": 1}, NOON)]


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    with pytest.raises(DefinitionError, match="there is no column 'att'"):
        fk.Flow("x").source("rows", value=fk.Json({"at": fk.Int64}), time="att")
    with pytest.raises(DefinitionError, match="column 'at' is String"):
        fk.Flow("x").source("rows", value=fk.Json({"at": str}), time="at")


def test_the_clock_begins_where_the_test_says() -> None:
    today = datetime(2026, 11, 27, 12, tzinfo=timezone(timedelta(hours=2)))
    result = fk.testing.run(
        passed_on(fk.Datetime), {"rows": [{"id": 1, "at": today}]}, now=today, crash_at="everywhere"
    )
    assert result.now == today
    assert not result.dead_letters
    assert [record.timestamp for record in result.sinks["out"].records] == [today]


def test_rows_that_are_dated_after_the_clock_are_warned_of_once() -> None:
    app = fk.testing.App(passed_on(fk.Datetime))
    app.send("rows", [{"id": i, "at": datetime(2026, 11, 27, tzinfo=UTC)} for i in range(3)])
    app.step_rows = 2
    with pytest.warns(UserWarning, match=r"2 rows became dead letters: .*now=datetime\(…\)") as found:
        app.run()
    assert [warning.filename for warning in found] == [os.path.relpath(__file__)]
    assert len(app.dead_letters) == 3


def test_a_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no zone"):
        fk.testing.App(passed_on(fk.Datetime), now=datetime(2026, 1, 1))  # noqa: DTZ001


def test_times_in_seconds_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for unit, warnings in ((1_000, 0), (1, 1)):
        flow = fk.Flow("seconds")
        rows = flow.source("rows", value=fk.Json({"at": int}), time="at")
        rows.sink("out", value=fk.Json())
        now = 1_767_225_600
        fk.testing.run(flow, {"rows": [{"at": (now + n) * unit} for n in range(3)]}, step_rows=1)
        assert [record.getMessage().count("it seems to have seconds") for record in caplog.records] == [1] * warnings


def test_rows_that_come_too_late_are_counted() -> None:
    flow = fk.Flow("late")
    rows = flow.source("rows", key="id", value=fk.Json({"id": int, "at": int}), time="at", late="1s")
    counts = rows.group_by("id", fk.tumbling("at", "1s"), id="n").agg(n=fk.len())
    counts.sink("out", key=["id", "window_start"], value=fk.Json())
    sent = [{"id": 1, "at": at} for at in (1_000, 9_000, 2_000, 3_000, 9_500)]
    for crash_at in ((), "everywhere"):
        result = fk.testing.run(flow, {"rows": sent}, step_rows=1, crash_at=crash_at)
        assert result.late == 2
