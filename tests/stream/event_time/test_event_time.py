"""Watermarks of sources, and rows that are late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.event_time import BEGINNING, times_in
from falkirk.stream.flow.explain import explain
from falkirk.stream.stages.stage import PhysicalStage

Sent = list[tuple[int, int]]
"""Partition and event time of each record, in the order in which they are sent."""


def split(
    late: str = "10ms", idle: str | None = None, *, topics: Any = None, regime: fk.EagerCheckpoint | None = None
) -> fk.Flow:
    """Rows in time, and rows that are late."""
    flow = fk.Flow("split", regime=regime)
    value = fk.Json({"id": fk.Int64, "at": fk.Int64})
    rows = flow.source("rows", value=value, topic=topics, time="at", late=late, idle=idle)
    rows.sink("in-time", value=fk.Json())
    rows.late.sink("late", value=fk.Json())
    return flow


def expected(sent: Sent, late: int) -> list[int]:
    """The ids of the late rows, by definition: one partition after another, record by record."""
    greatest: dict[int, int] = {}
    found = []
    for i, (partition, at) in enumerate(sent):
        if at < greatest.get(partition, 0) - late:
            found.append(i)
        greatest[partition] = max(greatest.get(partition, 0), at)
    return found


def record(i: int, partition: int, at: int) -> fk.testing.Record:
    return fk.testing.Record(value=b'{"id":%d,"at":%d}' % (i, at), partition=partition)


def ids(app: fk.testing.App, sink: str) -> list[int]:
    return sorted(row["id"] for row in app.sinks[sink].rows)


def watermarks(app: fk.testing.App) -> list[int]:
    """The stored watermark of each task."""
    found = []
    for task in app._worker().tasks:
        stage = task.bound.stage
        assert isinstance(stage, PhysicalStage)
        times = task.circuit.times  # type: ignore[attr-defined]
        keys = [source.key for source in times.inputs.values()]
        found += [BEGINNING if t is None else t.watermark for t in times_in(task.owned.state(), keys)]
    return found


def shown(app: fk.testing.App) -> tuple[int | None, str]:
    """What `falkirk status` shows of the one source of the one task."""
    (task,) = app._worker().tasks
    (mark,) = task.circuit.watermarks().values()
    return mark


sent = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), max_size=20)


@given(sent=sent, late=st.integers(0, 20), rows=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_late_rows_do_not_depend_on_the_cut_into_steps(sent: Sent, late: int, rows: int) -> None:
    app = fk.testing.App(split(f"{late}ms"), partitions=3, step_rows=rows)
    app.send("rows", [record(i, p, at) for i, (p, at) in enumerate(sent)])
    app.run()
    assert ids(app, "late") == expected(sent, late)
    assert ids(app, "in-time") == sorted(set(range(len(sent))) - set(expected(sent, late)))


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_late_rows_are_the_same_after_crashes_everywhere(regime: Any) -> None:
    rows = [{"id": i, "at": at} for i, at in enumerate([50, 45, 39, 70, 61, 59, 60])]
    app = fk.testing.run(split(regime=regime), {"rows": rows}, crash_at="everywhere", step_rows=2)
    assert ids(app, "late") == [2, 5]


def test_a_record_that_does_not_decode_moves_no_watermark() -> None:
    app = fk.testing.App(split())
    app.send("rows", [(None, b"no JSON"), (None, b'{"id":0,"at":50}'), (None, b"x"), (None, b'{"id":1,"at":39}')])
    app.run()
    assert ids(app, "late") == [1]
    assert len(app.dead_letters) == 2


def test_the_slowest_partition_of_a_task_holds_back_its_watermark_until_it_is_idle() -> None:
    app = fk.testing.App(split(idle="1m", topics=["a", "b"]))
    app.send("a", [record(0, 0, 1_000)])
    app.run()
    assert watermarks(app) == [BEGINNING]
    app.send("b", [record(1, 0, 500)])
    app.run()
    assert watermarks(app) == [490]
    app.advance("40s")
    app.send("a", [record(2, 0, 2_000)])
    app.run()
    assert watermarks(app) == [490]
    assert shown(app) == (490, "b[0]")
    app.advance("20s")
    app.run()
    assert watermarks(app) == [1_990]
    assert shown(app) == (1_990, "a[0]")
    app.advance("60s")
    app.run()
    assert shown(app) == (1_990, "")


def test_rows_of_a_partition_that_was_idle_are_late_below_the_watermark_of_the_task() -> None:
    app = fk.testing.App(split(idle="1m", topics=["a", "b"]))
    app.send("b", [record(0, 0, 500)])
    app.run()
    app.advance("1m")
    app.send("a", [record(1, 0, 2_000)])
    app.run()
    app.send("b", [record(2, 0, 600), record(3, 0, 1_990)])
    app.crash()
    app.run()
    assert ids(app, "late") == [2]
    assert watermarks(app) == [1_990]


def test_without_idle_a_silent_partition_holds_back_the_watermark_for_ever() -> None:
    app = fk.testing.App(split(topics=["a", "b"]))
    app.send("a", [record(0, 0, 2_000)])
    app.run()
    app.advance("10d")
    app.run()
    assert watermarks(app) == [BEGINNING]


def test_when_all_partitions_are_idle_the_watermark_stays() -> None:
    app = fk.testing.App(split(idle="1m", topics=["a", "b"]))
    app.send("a", [record(0, 0, 2_000)])
    app.send("b", [record(1, 0, 1_000)])
    app.run()
    app.advance("1h")
    app.run()
    assert watermarks(app) == [990]


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    value = fk.Json({"at": fk.Int64})
    with pytest.raises(DefinitionError, match="late= is about event time"):
        fk.Flow("x").source("rows", value=value, late="1s")
    with pytest.raises(DefinitionError, match="idle= is about the watermark"):
        fk.Flow("x").source("rows", value=value, time="at", idle="1s")
    with pytest.raises(DefinitionError, match="late='soon'"):
        fk.Flow("x").source("rows", value=value, time="at", late="soon")
    with pytest.raises(DefinitionError, match="only a source with late= has late rows"):
        fk.Flow("x").source("rows", value=value, time="at").late  # noqa: B018
    flow = fk.Flow("x", regime=fk.Batch())
    flow.source("rows", value=value, time="at", late="1s").late.sink("out", value=fk.Json())
    with pytest.raises(DefinitionError, match="no row is late"):
        flow.plan()


def test_the_time_column_is_known_as_long_as_it_is_the_same() -> None:
    rows = fk.Flow("x").source("rows", value=fk.Json({"id": fk.Int64, "at": fk.Int64}), time="at", late="0s")
    same = [rows, rows.filter(fk.col("id") > 1), rows.select("at"), rows.with_columns(b=fk.lit(1)), rows.unique()]
    assert [stream._op.time for stream in same] == ["at"] * 5
    other = [rows.select("id"), rows.with_columns(at=fk.col("at") + 1), rows.map(lambda row: row)]
    assert [stream._op.time for stream in other] == [None] * 3
    assert all(stream._op.watermarked for stream in [*same, *other])


def test_explain_says_how_late_rows_may_be() -> None:
    flow = fk.Flow("x")
    rows = flow.source("rows", value=fk.Json({"at": fk.Int64}), time="at", late="90s", idle="1m")
    rows.group_by(fk.tumbling("at", "1h", offset="5m"), id="w").agg(n=fk.len()).sink(
        "out", key="window_start", value=fk.Json()
    )
    rows.with_columns(at=fk.col("at") + 1).group_by(fk.hopping("at", "1h", "5m"), id="v").agg(n=fk.len()).sink(
        "kept", key="window_start", value=fk.Json()
    )
    text = explain(flow)
    assert "dated by at, up to 1m30s late, idle after 1m" in text
    assert "windows: tumbling 1h of at, offset 5m  (" in text
    assert "until the watermark is past window_end" in text
    assert "windows: hopping 1h every 5m of at; never complete, so their state is kept for ever" in text
