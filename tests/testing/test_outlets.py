"""Sinks of tables and files in a test: what would be written is in `app.sinks`, and crashes change nothing of it."""

from __future__ import annotations

import pytest

import falkirk as fk

USERS = fk.Json({"id": str, "name": str})


@pytest.mark.parametrize(
    "sink", [("sink_postgres", "shop"), ("sink_delta", "/nowhere")], ids=["PostgreSQL", "Delta Lake"]
)
def test_a_table_with_a_key_has_the_last_row_of_each_key(sink: tuple[str, str]) -> None:
    flow = fk.Flow("users")
    users = flow.source("users", key="id", value=USERS, changes="upsert")
    getattr(users, sink[0])("table", sink[1], key="id")
    app = fk.testing.App(flow)
    app.send("users", [{"id": "a", "name": "ann"}, {"id": "b", "name": "bob"}])
    app.run()
    app.send("users", [fk.testing.Record(key="a"), {"id": "b", "name": "bert"}])
    app.run()
    table = app.sinks["table"]
    assert [(record.key, record.value) for record in table.records[:2]] == [
        ("a", {"id": "a", "name": "ann"}), ("b", {"id": "b", "name": "bob"})
    ]  # fmt: skip
    assert table.table == {"b": {"id": "b", "name": "bert"}}
    assert table.frame.columns == ["id", "name"]
    assert [record.maker.step for record in table.records if record.maker] == [1, 1, 2, 2]


def test_a_table_without_a_key_has_every_row_through_crashes() -> None:
    flow = fk.Flow("users")
    flow.source("users", value=USERS).sink_postgres("table", "shop")
    rows = [{"id": str(n), "name": "ann"} for n in range(20)]
    app = fk.testing.run(flow, {"users": rows}, partitions=2, crash_at=[2])
    assert sorted(app.sinks["table"].rows, key=lambda row: int(row["id"])) == rows
    assert app.sinks["table"].frame.shape == (20, 2)
    assert {record.key for record in app.sinks["table"].records} == {None}


def test_a_key_of_several_columns_is_a_tuple() -> None:
    flow = fk.Flow("users")
    counts = flow.source("users", key="id", value=USERS).group_by("id", "name", id="counts").agg(n=fk.len())
    counts.sink_postgres("table", "shop", key=["id", "name"])
    app = fk.testing.run(flow, {"users": [{"id": "a", "name": "ann"}] * 3})
    assert app.sinks["table"].table == {("a", "ann"): {"id": "a", "name": "ann", "n": 3}}


def test_files_have_the_weight_of_each_change() -> None:
    flow = fk.Flow("users")
    counts = flow.source("users", key="id", value=USERS).group_by("id", id="counts").agg(n=fk.len())
    counts.sink_parquet("files", "/nowhere", changes=True)
    app = fk.testing.run(flow, {"users": [{"id": "a", "name": "ann"}] * 2}, step_rows=1)
    assert app.sinks["files"].rows == [
        {"id": "a", "n": 1, "weight": 1}, {"id": "a", "n": 1, "weight": -1}, {"id": "a", "n": 2, "weight": 1}
    ]  # fmt: skip
    assert app.sinks["files"].frame.columns == ["id", "n", "weight"]


def test_a_difference_after_a_crash_is_found_in_a_table() -> None:
    flow, seen = fk.Flow("users"), iter(range(10_000))
    users = flow.source("users", value=USERS).map(lambda row: {**row, "name": str(next(seen))})
    users.sink_postgres("table", "shop")
    with pytest.raises(AssertionError, match="sink 'table' holds something else after crashes"):
        fk.testing.run(flow, {"users": [{"id": "a", "name": "ann"}] * 9}, crash_at=[2])
