"""What an app under test reads."""

from __future__ import annotations

from typing import Any

import pytest

import falkirk as fk
from falkirk.testing.simulator.cluster.partition import Partition


def test_reading_costs_by_what_is_read_and_not_by_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, each = 1_000, 10
    seen = 0
    between = Partition._between

    def counting(self: Partition, start: int, end: int) -> Any:
        nonlocal seen
        found = between(self, start, end)
        seen += len(found)
        return found

    monkeypatch.setattr(Partition, "_between", counting)
    flow = fk.Flow("copy")
    flow.source("numbers", value=fk.Json({"n": int})).sink("copies", value=fk.Json())
    app = fk.testing.App(flow, step_rows=each)
    app.send("numbers", [{"n": n} for n in range(rows)])
    app.run()
    assert app.steps == rows // each
    assert len(app.sinks["copies"].rows) == rows
    assert seen < 10 * rows


@pytest.mark.parametrize("sources", [["people"], ["people", "orders"]], ids=["alone", "beside a stream"])
def test_a_step_reads_so_many_records_of_a_source_of_changes_too(sources: list[str]) -> None:
    flow = fk.Flow("shop")
    people = flow.source("people", key="id", value=fk.Json({"id": int, "city": str}), changes="upsert")
    if "orders" in sources:
        orders = flow.source("orders", key="id", value=fk.Json({"id": int, "usd": int}))
        people = orders.join(people, on="id", id="join")
    people.sink("out", key=["id", "city"], value=fk.Json(), changes="weights")
    rows = {
        "people": [{"id": 1, "city": city} for city in ("Oslo", "Rome", "Paris")],
        "orders": [{"id": 1, "usd": 2}] * 2,
    }
    app = fk.testing.run(flow, {name: rows[name] for name in sources}, step_rows=1, crash_at="everywhere")
    assert app.steps == sum(len(rows[name]) for name in sources)
    given = [(row["city"], row["weight"]) for row in app.sinks["out"].rows]
    changes = [("Oslo", 1), ("Oslo", -1), ("Rome", 1), ("Rome", -1), ("Paris", 1)]
    assert given == (changes if sources == ["people"] else [("Paris", 1)] * 2)


@pytest.mark.parametrize("exchange", [False, True])
def test_a_table_that_is_looked_up_is_read_to_its_end_first(exchange: bool) -> None:
    flow = fk.Flow("shop")
    city = fk.Json({"id": int, "city": str})
    people = flow.source("people", key="id", value=city, changes="upsert")
    others = flow.table("others", key="id", value=city)
    orders = flow.source("orders", key="id", value=fk.Json({"id": int, "usd": int}))
    orders = orders.repartition("usd").repartition("id") if exchange else orders
    found = orders.lookup(flow.table(people, key="id")).lookup(others, columns={"city": "other"})
    found.sink("out", key="id", value=fk.Json())
    app = fk.testing.App(flow, step_rows=1)
    for town in ("Oslo", "Rome", "Paris"):
        app.send("people", [{"id": 1, "city": town}])
        app.send("others", [{"id": 1, "city": town}])
        app.send("orders", [{"id": 1, "usd": 5}])
    app.run()
    assert [(row["city"], row["other"]) for row in app.sinks["out"].rows] == [("Paris", "Paris")] * 3


def test_an_envelope_of_debezium_can_be_sent_as_it_is() -> None:
    flow = fk.Flow("shop")
    people = flow.source("people", key="id", value=fk.Json({"id": int, "city": str}), changes="debezium")
    people.sink("out", key="id", value=fk.Json(), changes="debezium")
    copied = fk.Flow("copy")
    copy = copied.source("out", key="id", value=fk.Json({"id": int, "city": str}), changes="debezium")
    copy.sink("copy", key="id", value=fk.Json())
    about = {"source": {"table": "people"}, "transaction": None, "ts_ms": 1}
    rows: list[dict[str, Any]] = [
        {"before": None, "after": {"id": 1, "city": "Oslo"}, "op": "c", **about},
        {"before": {"id": 1, "city": "Oslo"}, "after": {"id": 1, "city": "Rome"}, "op": "u", **about},
    ]
    app = fk.testing.run(flow, {"people": rows}, step_rows=1)
    frame = app.sinks["out"].frame
    assert frame.rows(named=True) == app.sinks["out"].rows
    for given in (app.sinks["out"].rows, frame):
        assert fk.testing.run(copied, {"out": given}).sinks["copy"].table == {1: {"id": 1, "city": "Rome"}}
    with pytest.raises(fk.FalkirkError, match="has no column 'afer'"):
        fk.testing.run(flow, {"people": [{"afer": None}]})


def test_the_frame_of_a_sink_has_the_weights_of_its_changes() -> None:
    flow = fk.Flow("shop")
    people = flow.source("people", key="id", value=fk.Json({"id": int}), changes="upsert")
    people.sink("out", key="id", value=fk.Json(), changes="weights")
    sink = fk.testing.run(flow, {"people": [{"id": 1}, fk.testing.Record(key=1)]}, step_rows=1).sinks["out"]
    assert sink.frame.rows() == [(1, 1), (1, -1)]
