"""Sinks that write each row to the topic that it names."""

from __future__ import annotations

from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError

ORDER = fk.Json({"id": fk.Int64, "target": fk.String})
TARGETS = ["to-eu", "to-us"]
ROWS = [{"id": 1, "target": "to-eu"}, {"id": 2, "target": "to-us"}, {"id": 3, "target": "to-eu"}]


def routed(*, flow: fk.Flow | None = None, **options: Any) -> fk.Flow:
    flow = flow or fk.Flow("routed")
    flow.source("orders", value=ORDER).sink("routed", topic=TARGETS, topic_by="target", value=fk.Json(), **options)
    return flow


def written(app: fk.testing.App) -> dict[str, list[int]]:
    return {topic: [row["id"] for row in app.sinks[topic].rows] for topic in TARGETS}


def test_each_row_goes_to_the_topic_that_it_names_through_every_crash() -> None:
    app = fk.testing.run(routed(key="id"), {"orders": ROWS}, crash_at="everywhere", step_rows=2)
    assert written(app) == {"to-eu": [1, 3], "to-us": [2]}


def test_each_topic_is_an_output_of_its_own_numbered_and_recorded_by_itself() -> None:
    app = fk.testing.App(routed())
    app.send("orders", ROWS)
    app.run()
    [task] = app._worker().tasks
    assert task.owned.last is not None
    assert {(o.output, o.end) for o in task.owned.last.outputs} == {("to-eu", 2), ("to-us", 1)}
    assert [record.maker.sequence for record in app.sinks["to-eu"].records if record.maker] == [0, 1]
    assert [record.maker.sequence for record in app.sinks["to-us"].records if record.maker] == [0]


@pytest.mark.parametrize(("target", "shown"), [("to-eh", "'to-eh'"), (None, "None")])
def test_a_topic_that_is_not_listed_stops_the_app_with_the_records_address(target: str | None, shown: str) -> None:
    app = fk.testing.App(routed())
    app.send("orders", [*ROWS, {"id": 4, "target": target}])
    with pytest.raises(UserCodeError, match=f"column 'target' names topic {shown}, and the sink has to-eu") as raised:
        app.run()
    assert "topic orders, partition 0, offset 3" in raised.value.where
    assert written(app) == {"to-eu": [], "to-us": []}


@pytest.mark.parametrize("everywhere", [False, True])
def test_or_goes_where_on_error_says(everywhere: bool) -> None:
    chosen = fk.DeadLetter()
    flow = routed(flow=fk.Flow("routed", on_error=chosen)) if everywhere else routed(on_error=chosen)
    app = fk.testing.run(flow, {"orders": [{"id": 0, "target": "to-eh"}, *ROWS]}, crash_at=[1])
    assert written(app) == {"to-eu": [1, 3], "to-us": [2]}
    assert [(x["operator"], x["topic"], x["offset"]) for x in app.dead_letters] == [("sink routed", "orders", 0)]


@pytest.mark.parametrize("key", ["id", ["target", "id"]])
def test_a_row_of_a_table_that_names_another_topic_leaves_a_tombstone_in_the_one_before(key: Any) -> None:
    flow = fk.Flow("moved")
    orders = flow.source("orders", key="id", value=fk.Json({"id": fk.Int64, "n": fk.Int64}))
    sums = orders.group_by("id", id="sums").agg(n=fk.sum("n"))
    large = fk.when(fk.col("n") > 10).then(fk.lit("to-eu")).otherwise(fk.lit("to-us")).alias("target")
    sums.with_columns(large).sink("moved", topic=TARGETS, topic_by="target", key=key, value=fk.Json())
    rows = [{"id": 7, "n": 8}, {"id": 8, "n": 1}, {"id": 7, "n": 9}]
    app = fk.testing.run(flow, {"orders": rows}, step_rows=1, crash_at="everywhere")
    assert [row["id"] for row in app.sinks["to-us"].table.values()] == [8]
    assert [(row["id"], row["n"]) for row in app.sinks["to-eu"].table.values()] == [(7, 17)]


def test_what_tells_rows_apart_within_a_topic_is_enough_for_a_key() -> None:
    flow = fk.Flow("counts")
    counts = flow.source("orders", value=ORDER).group_by("target", "id", id="counts").agg(n=fk.len())
    counts.sink("counts", topic=TARGETS, topic_by="target", key="id", value=fk.Json())
    app = fk.testing.run(flow, {"orders": ROWS * 2})
    assert {k: row["n"] for k, row in app.sinks["to-eu"].table.items()} == {1: 2, 3: 2}


def test_a_batch_part_writes_several_topics_too() -> None:
    app = fk.testing.run(routed(flow=fk.Flow("routed", regime=fk.Batch())), {"orders": ROWS})
    assert {topic: sorted(ids) for topic, ids in written(app).items()} == {"to-eu": [1, 3], "to-us": [2]}


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    orders = fk.Flow("x").source("orders", value=ORDER)
    with pytest.raises(DefinitionError, match="does not list the topics that it may name"):
        orders.sink("out", topic_by="target", value=fk.Json())
    with pytest.raises(DefinitionError, match="column 'id' is to name topics, and is Int64"):
        orders.sink("out", topic=TARGETS, topic_by="id", value=fk.Json())
    with pytest.raises(DefinitionError, match="is not there") as raised:
        orders.sink("out", topic=TARGETS, topic_by="tarket", value=fk.Json())
    assert "did you mean 'target'" in raised.value.hint
    with pytest.raises(DefinitionError) as raised:
        orders.sink("out", topic=TARGETS, value=fk.Json())  # type: ignore[arg-type]
    assert "topic_by=" in raised.value.hint
