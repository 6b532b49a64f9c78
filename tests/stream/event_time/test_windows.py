"""Windows of event time, against DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database
from tests.stream.event_time.test_event_time import Sent, expected

import falkirk as fk
from falkirk.errors import DefinitionError, StateError
from falkirk.stream.operators.windows import window_group
from falkirk.stream.operators.windows.window_group import check_open

VALUE = fk.Json({"id": fk.Int64, "g": fk.String, "at": fk.Int64})
COLUMNS = ["g", "window_start", "window_end", "n", "total"]
KEY = ["g", "window_start"]


def totals(
    window: Any, late: int = 10, *, idle: str | None = None, regime: Any = None, key: str | None = None
) -> fk.Flow:
    """Counts and totals of each group and window: as they change, and once at the end."""
    flow = fk.Flow("totals", regime=regime)
    rows = flow.source("rows", key=key, value=VALUE, time="at", late=f"{late}ms" if late else "0s", idle=idle)
    found = rows.group_by("g", window, id="w").agg(n=fk.len(), total=fk.sum("id"))
    found.sink("changes", key=KEY, value=fk.Json())
    found.final().sink("final", value=fk.Json())
    rows.late.sink("late", value=fk.Json())
    return flow


def sent_to(app: fk.testing.App, sent: Sent, first: int = 0) -> None:
    rows = [
        fk.testing.Record(value=b'{"id":%d,"g":"%s","at":%d}' % (i, b"ab"[i % 2 : i % 2 + 1], at), partition=p)
        for i, (p, at) in enumerate(sent, first)
    ]
    app.send("rows", rows)


def by_sql(sent: Sent, late: int, size: int, every: int, offset: int = 0) -> list[tuple[Any, ...]]:
    """What SQL says of the rows that are not late."""
    lost = set(expected(sent, late))
    frame = pl.DataFrame(
        [(i, "ab"[i % 2], t) for i, (_, t) in enumerate(sent) if i not in lost],
        {"id": pl.Int64, "g": pl.String, "t": pl.Int64},
        orient="row",
    )
    query = f"""
        with last as (select *, t - ((t - {offset}) % {every} + {every}) % {every} as s from frame),
             held as (select *, s - k * {every} as b from last, range(0, {-(-size // every)}) as r(k))
        select g, b, b + {size}, count(*), sum(id)::bigint from held where t < b + {size}
        group by all order by 3, 1, 2
    """
    with database(frame=frame) as db:
        return db.execute(query).fetchall()


def rows_of(app: fk.testing.App, sink: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in COLUMNS) for row in app.sinks[sink].rows if row is not None]


def table_of(app: fk.testing.App) -> list[tuple[Any, ...]]:
    assert None not in app.sinks["changes"].rows, "a window that is complete is not taken back"
    found = [tuple(row[c] for c in COLUMNS) for row in app.sinks["changes"].table.values()]
    return sorted(found, key=lambda row: (row[2], row[0], row[1]))


sent = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 100)), max_size=25)


@given(sent=sent, size=st.integers(1, 6), every=st.integers(1, 6), late=st.integers(0, 30), rows=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_windows_are_what_sql_says_of_the_rows_in_time(sent: Sent, size: int, every: int, late: int, rows: int) -> None:
    size, every = 5 * size, min(5 * every, 5 * size)
    window = fk.hopping("at", f"{size}ms", f"{every}ms")
    app = fk.testing.App(totals(window, late), partitions=3, step_rows=rows)
    sent_to(app, sent)
    app.run()
    due = by_sql(sent, late, size, every)
    assert table_of(app) == due
    reached = [max((at for p, at in sent if p == q), default=None) for q in range(3)]
    watermark = None if None in reached else min(at or 0 for at in reached) - late
    complete = [row for row in due if watermark is not None and row[2] <= watermark]
    assert sorted(rows_of(app, "final")) == sorted(complete)
    assert app.state("w").height == len(due) - len(complete)


@given(sent=sent, cut=st.integers(0, 25), offset=st.integers(0, 30))
@settings(max_examples=20, deadline=None)
def test_after_each_step_the_windows_are_what_sql_says_of_the_rows_so_far(sent: Sent, cut: int, offset: int) -> None:
    app = fk.testing.App(totals(fk.tumbling("at", "20ms", offset=f"{offset}ms" if offset else None)), partitions=3)
    for first, some in ((0, sent[:cut]), (cut, sent[cut:])):
        sent_to(app, some, first)
        app.run()
        assert table_of(app) == by_sql(sent[: first + len(some)], 10, 20, 20, offset)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "key"), [(fk.EagerCheckpoint(), None), (fk.LazyCheckpoint(), "g")])
def test_windows_are_the_same_after_crashes_everywhere(regime: Any, key: str | None) -> None:
    times = [5, 14, 3, 22, 35, 28, 61, 12, 90]
    rows = [{"id": i, "g": "ab"[i % 2], "at": at} for i, at in enumerate(times)]
    flow = totals(fk.tumbling("at", "10ms"), regime=regime, key=key)
    app = fk.testing.run(flow, {"rows": rows}, crash_at="everywhere", step_rows=2)
    due = by_sql([(0, at) for at in times], 10, 10, 10)
    assert table_of(app) == due
    assert rows_of(app, "final") == [row for row in due if row[2] <= 80]


def test_a_watermark_that_jumps_over_many_windows_completes_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_group, "AT_ONCE", 7)
    app = fk.testing.App(totals(fk.tumbling("at", "1ms"), 1_000))
    sent_to(app, [(0, at) for at in range(1, 101)])
    app.run()
    assert app.state("w").height == 100
    sent_to(app, [(0, 5_000)], 100)
    app.run()
    assert app.state("w").height == 1
    assert [row[1] for row in rows_of(app, "final")] == list(range(1, 101))
    assert len(table_of(app)) == 101


def windows_of_windows(inner: Any, time: Any, late: int) -> fk.Flow:
    """Of each inner window, counts; of all counts in an outer window, the sum."""
    flow = fk.Flow("outer")
    rows = flow.source("rows", value=VALUE, time="at", late=f"{late}ms")
    counts = rows.group_by("g", inner, id="in").agg(n=fk.len()).final(time=time)
    totals = counts.select("n", t=fk.col(time)).group_by(fk.tumbling("t", "20ms"), id="out")
    found = totals.agg(windows=fk.len(), n=fk.sum("n"))
    found.sink("changes", key="window_start", value=fk.Json())
    found.final().sink("final", value=fk.Json())
    return flow


@given(sent=sent, late=st.integers(1, 30), rows=st.integers(1, 6), at_once=st.sampled_from([2, 20_000]))
@pytest.mark.parametrize("time", ["window_start", "window_end"])
@settings(max_examples=15, deadline=None)
def test_windows_of_windows_are_final_when_no_inner_window_can_come(
    time: str, sent: Sent, late: int, rows: int, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(window_group, "AT_ONCE", at_once)
        app = fk.testing.App(windows_of_windows(fk.tumbling("at", "5ms"), time, late), partitions=3, step_rows=rows)
        sent_to(app, sent)
        app.run()
    reached = [max((at for p, at in sent if p == q), default=None) for q in range(3)]
    watermark = -1_000 if None in reached else min(at or 0 for at in reached) - late
    due: dict[int, list[int]] = {}
    for _, start, end, n, _ in by_sql(sent, late, 5, 5):
        if end <= watermark:
            due.setdefault((start if time == "window_start" else end) // 20 * 20, []).append(n)
    found = {start: [row["windows"], row["n"]] for start, row in app.sinks["changes"].table.items()}
    assert found == {start: [len(some), sum(some)] for start, some in due.items()}
    least = watermark - (4 if time == "window_start" else 0)
    assert sorted(row["window_start"] for row in app.sinks["final"].rows if row) == sorted(
        start for start in due if start + 20 <= least
    )
    assert len(app.sinks["final"].rows) == app.sinks["changes"].table.__len__() - app.state("out").height


@pytest.mark.parametrize("at_once", [7, 20_000])
def test_the_values_of_aggregates_go_with_their_window(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(window_group, "AT_ONCE", at_once)
    flow = fk.Flow("f")
    rows = flow.source("rows", key=None, value=VALUE, time="at", late="0s")
    found = rows.group_by("g", fk.tumbling("at", "10ms"), id="w").agg(kinds=fk.n_unique("id"))
    found.final().sink("final", value=fk.Json())
    app = fk.testing.App(flow)
    sent_to(app, [(0, at) for at in range(1, 101)])
    app.run()
    sent_to(app, [(0, 5_000)], 100)
    app.run()
    assert [row["kinds"] for row in app.sinks["final"].rows if row] == [5, 4, *[5] * 18, 1]
    (task,) = [task for task in app._worker().tasks if task.bound.stage.id == "w"]
    keys = [key for key, _ in task.owned.opened().scan(b"", b"\xff" * 8)]
    # What is left: the group, its one value and its end of the last window, and the watermark.
    assert len(keys) == 4


def test_a_sender_that_is_silent_holds_back_windows_until_it_is_idle_and_its_rows_are_late_then() -> None:
    app = fk.testing.App(totals(fk.tumbling("at", "10ms"), 0, idle="1m"), partitions=3)
    sent_to(app, [(0, 5), (1, 6), (0, 50), (1, 40)])
    app.run()
    assert rows_of(app, "final") == []
    app.advance("59s")
    sent_to(app, [(0, 51), (1, 41)], 4)
    app.run()
    assert rows_of(app, "final") == []
    app.advance("1s")
    app.run()
    assert rows_of(app, "final") == [("a", 0, 10, 1, 0), ("b", 0, 10, 1, 1)]
    app.crash(host=True)
    sent_to(app, [(2, 7), (2, 45)], 6)
    app.run()
    assert rows_of(app, "final") == [("a", 0, 10, 1, 0), ("b", 0, 10, 1, 1)]
    # The task of the silent partition has no watermark: its first row is late where it meets the others.
    assert [row[:3] for row in table_of(app)] == [
        ("a", 0, 10), ("b", 0, 10), ("b", 40, 50), ("a", 50, 60),
    ]  # fmt: skip


def test_datetimes_have_windows_of_their_own_type() -> None:
    flow = fk.Flow("daily")
    value = fk.Json({"at": fk.DatetimeMicros})
    rows = flow.source("rows", value=value, time="at", late="0s")
    daily = rows.group_by(fk.tumbling("at", "1d", offset="2h")).agg(n=fk.len())
    daily.sink("daily", key="window_start", value=fk.Json())
    daily.final().sink("final", value=fk.Json())
    day = datetime(2025, 6, 1, 2, tzinfo=UTC)
    times = [day, day + timedelta(days=1, microseconds=-1), day + timedelta(days=1)]
    app = fk.testing.run(flow, {"rows": [{"at": at} for at in times]})
    one: dict[str, Any] = {"window_start": day, "window_end": day + timedelta(days=1), "n": 2}
    assert app.sinks["final"].rows == [one]
    assert app.sinks["daily"].rows[-1] == {"window_start": times[2], "window_end": times[2] + timedelta(days=1), "n": 1}
    [record] = app.sinks["final"].records
    assert record.timestamp == one["window_end"] - timedelta(milliseconds=1)


def test_rows_with_a_null_time_are_in_no_window_and_without_a_watermark_windows_stay() -> None:
    flow = fk.Flow("n")
    rows = flow.source("rows", value=VALUE)
    rows.group_by(fk.tumbling("at", "10ms"), id="w").agg(n=fk.len()).sink("out", key="window_start", value=fk.Json())
    app = fk.testing.run(flow, {"rows": [{"at": 5}, {"at": None}, {"at": 99}]})
    assert app.sinks["out"].table.keys() == {0, 90}
    assert app.state("w").height == 2


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize(
    ("window", "count"),
    [
        (fk.tumbling("at", "1h", offset="7m"), 1),
        (fk.hopping("at", "1h", every="20m"), 3),
        (fk.session("at", gap="1h"), 1),
    ],
)
def test_a_time_at_the_bounds_of_integers_is_in_windows(window: Any, count: int, time: int) -> None:
    flow = fk.Flow("f")
    found = flow.source("rows", value=VALUE).group_by("g", window).agg(n=fk.len())
    found.sink("out", key=KEY, value=fk.Json())
    rows = fk.testing.run(flow, {"rows": [{"id": 1, "g": "a", "at": time}]}).sinks["out"].table.values()
    assert len(rows) == count
    assert all(row["window_start"] <= row["window_end"] for row in rows)


@pytest.mark.parametrize("window", [fk.tumbling("at", "10ms"), fk.session("at", "3ms"), fk.count_window(2)], ids=str)
def test_final_rows_of_a_select_are_a_select_of_final_rows(window: Any) -> None:
    def behind(totals: Any) -> Any:
        kept = totals.with_columns(twice=fk.col("n") * 2).filter(fk.col("n") > 1)
        return kept.select("twice", end="window_end", g="g")

    flow = fk.Flow("n")
    rows = flow.source("rows", value=VALUE, time="at", late="0ms")
    for name, order in (("one", lambda w: behind(w).final()), ("other", lambda w: behind(w.final()))):
        totals = rows.group_by("g", window, id=name).agg(n=fk.len())
        order(totals).sink(name, value=fk.Json())
    given = [{"g": g, "at": at} for at in range(1, 60, 2) for g in "ab" if at % 9 > 2 or g == "a"]
    app = fk.testing.run(flow, {"rows": given}, step_rows=3)
    assert app.sinks["one"].rows == app.sinks["other"].rows != []


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    def rows(**more: Any) -> Any:
        return fk.Flow("x").source("rows", value=VALUE, **more)

    tumbling = fk.tumbling("at", "1h")
    with pytest.raises(DefinitionError, match="no watermark") as raised:
        rows(time="at").group_by(tumbling).agg(n=fk.len()).final()
    assert 'late="30s"' in str(raised.value)
    timed = rows(time="at", late="1s")
    changed = rows(time="at", late="1s").with_columns(at=fk.col("at") + 1)
    with pytest.raises(DefinitionError, match="the watermark is about at, and the windows are of id"):
        timed.group_by(fk.tumbling("id", "1h")).agg(n=fk.len()).final()
    with pytest.raises(DefinitionError, match="column that has since changed"):
        changed.group_by(tumbling).agg(n=fk.len()).final()
    with pytest.raises(DefinitionError, match="only windows have final rows"):
        timed.group_by("g").agg(n=fk.len()).final()
    with pytest.raises(DefinitionError, match="one kind of windows"):
        timed.group_by(tumbling, fk.tumbling("at", "1d"))
    with pytest.raises(DefinitionError, match="column 'g' is String"):
        timed.group_by(fk.tumbling("g", "1h"))
    with pytest.raises(DefinitionError, match="there is already a column 'window_end'"):
        timed.with_columns(window_end=fk.lit(1)).group_by(tumbling)
    with pytest.raises(DefinitionError, match="longer than size"):
        fk.hopping("at", "1s", "2s")


def test_a_row_for_a_complete_window_would_stop_the_app() -> None:
    check_open(pl.Series([11, 20]), 10, "")
    with pytest.raises(StateError, match="a row came for a window that ended at 10"):
        check_open(pl.Series([20, 10]), 10, "")


def test_a_row_is_in_so_many_windows_only() -> None:
    fk.hopping("at", "20s", every="1ms")
    with pytest.raises(DefinitionError, match="each row would be in 86,400,000 windows") as refused:
        fk.hopping("at", "1d", every="1ms")
    assert "over(\"id\", order_by='at', range='1d')" in refused.value.hint
