"""Sinks that write the last row of each key, of rows that nothing known identifies: two rows may have a key at a time."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random
from typing import Any

import polars as pl
import pytest
from tests.stream.sinks.logs import logged

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.definition.outlets import GONE
from falkirk.stream.flow.explain import explain
from falkirk.testing.memory import MemoryApp

WEIGHED = fk.Json({"k": fk.Int64, "v": fk.String, "weight": fk.Int64})
ORDERS, PAID = fk.Json({"order": fk.Int64, "usd": fk.Int64}), fk.Json({"order": fk.Int64, "at": fk.Int64})


def weighed(changes: str) -> list[dict[str, Any]]:
    """+a+b−a: three records of key 1."""
    return [
        {"k": 1, "v": v, "weight": 1 if sign == "+" else -1}
        for sign, v in zip(changes[::2], changes[1::2], strict=True)
    ]


@pytest.mark.parametrize("key", ["k", ["k", "v"]], ids=str)
@pytest.mark.parametrize("step_rows", [1, 100])
@pytest.mark.parametrize(
    ("changes", "left"), [("+a+b-a", "b"), ("+a+b-b", "a"), ("+b+a-b", "a"), ("+a+a-a", "a"), ("+a+b-a-b", "")]
)
def test_a_row_that_goes_leaves_the_other_of_its_key(changes: str, left: str, step_rows: int, key: Any) -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=WEIGHED, changes="weights")
    rows.sink("last", key=key, value=fk.Json())
    rows.sink("log", key=key, value=fk.Json(), changes="debezium")
    crashes = "everywhere" if (changes, step_rows) == ("+a+b-a", 1) else ()
    app = fk.testing.run(flow, {"rows": weighed(changes)}, step_rows=step_rows, crash_at=crashes)
    assert [row["v"] for row in app.sinks["last"].table.values()] == [*left]
    summed = Counter[str]()
    for row in app.sinks["log"].rows:
        summed.update({each["v"]: weight for each, weight in ((row["before"], -1), (row["after"], 1)) if each})
    assert {v: n for v, n in summed.items() if n} == dict.fromkeys(left, 1)


def test_of_several_rows_the_sink_has_the_greatest_however_they_come() -> None:
    for order in permutations("abc"):
        flow = fk.Flow("f")
        flow.source("rows", value=WEIGHED, changes="weights").sink("last", key="k", value=fk.Json())
        rows = weighed("".join(f"+{v}" for v in order))
        assert fk.testing.run(flow, {"rows": rows}, step_rows=1).sinks["last"].table == {1: {"k": 1, "v": "c"}}


def test_tasks_that_read_rows_of_one_key_do_not_write_it_in_any_order() -> None:
    for seed in range(8):
        rng, there, rows = Random(seed), list[tuple[int, str]](), list[fk.testing.Record]()
        for _ in range(60):
            weight = -1 if there and rng.random() < 0.5 else 1
            row = there.pop(rng.randrange(len(there))) if weight < 0 else (rng.randrange(3), rng.choice("abcd"))
            there += [row] if weight > 0 else []
            # A row comes and goes in one partition, and the rows of a key are in several.
            value = {"k": row[0], "v": row[1], "weight": weight}
            rows.append(fk.testing.Record(key=f"{row}", value=value))
        flow = fk.Flow("f")
        flow.source("rows", value=WEIGHED, changes="weights").sink("last", key="k", value=fk.Json())
        app = fk.testing.run(flow, {"rows": rows}, partitions=3, step_rows=rng.randrange(1, 9))
        due = {k: max(v for key, v in there if key == k) for k, _ in there}
        assert {k: row["v"] for k, row in app.sinks["last"].table.items()} == due, seed


def test_a_table_is_told_of_the_row_that_is_left() -> None:
    flow = fk.Flow("app")
    rows = flow.source("rows", value=WEIGHED, changes="weights").repartition("k")
    rows.sink_postgres("table", "shop", key="k")
    app = MemoryApp(flow, {"rows": 1})
    for row in weighed("+a+b-b"):
        app.append("rows", None, fk.Json().encode(pl.DataFrame([row]))[0] or b"")
        app.run()
    assert [frame.select("v", GONE).rows() for frame in logged(app)] == [[("a", False), ("b", False), ("a", False)]]


def test_a_sink_that_is_added_later_follows_the_rows_from_before() -> None:
    def written(*sinks: str) -> fk.Flow:
        flow = fk.Flow("f")
        rows = flow.source("rows", value=WEIGHED, changes="weights")
        for name in sinks:
            rows.sink(name, key="k", value=fk.Json())
            rows.sink(f"{name}-log", key="k", value=fk.Json(), changes="debezium")
        return flow

    app = fk.testing.App(written("first"))
    app.send("rows", weighed("+a"))
    app.run()
    app.change(written("first", "second"))
    app.send("rows", weighed("-a"))
    app.run()
    assert [record.value for record in app.sinks["second"].records] == [None]
    assert [row["before"]["v"] for row in app.sinks["second-log"].rows] == ["a"]
    app.send("rows", weighed("+b+c-b"))
    app.run()
    left = [row["v"] for row in app.sinks["second"].table.values() if row]
    assert left == [row["v"] for row in app.sinks["first"].table.values() if row] == ["c"]


def joined(flow: fk.Flow) -> fk.Stream:
    orders, paid = flow.source("orders", key="order", value=ORDERS), flow.source("paid", key="order", value=PAID)
    return orders.join(paid, on="order", how="left", id="both")


def test_an_order_that_is_paid_twice_has_one_row_until_none_is_left() -> None:
    flow = fk.Flow("f")
    joined(flow).sink("orders-paid", key="order", value=fk.Json())
    rows = {"orders": [{"order": 1, "usd": 5}], "paid": [{"order": 1, "at": at} for at in (7, 9, 8)]}
    for step_rows in (1, 100):
        app = fk.testing.run(flow, rows, step_rows=step_rows)
        assert app.sinks["orders-paid"].table == {1: {"order": 1, "usd": 5, "at": 9}}


def test_what_is_kept_is_shown_and_what_is_known_keeps_nothing() -> None:
    flow = fk.Flow("f")
    joined(flow).sink("orders-paid", key="order", value=fk.Json())
    assert "top_k orders-paid.rows: 1 row of each order, greatest usd, greatest at first" in explain(flow)
    flow = fk.Flow("f")
    orders = flow.source("orders", key="order", value=ORDERS)
    orders.group_by("order", id="last").top_k(1, by="usd").sink("last", key="order", value=fk.Json())
    totals = orders.group_by("usd", id="totals").agg(n=fk.len())
    totals.select(fk.col("usd").alias("price"), "n").sink("prices", key="price", value=fk.Json())
    totals.map(lambda row: row).sink("made", key="usd", value=fk.Json())
    asked, given = (
        flow.source(name, key="order", value=PAID, time="at", late="1s").select("order", "at")
        for name in ("asked", "given")
    )
    asked.join(given, on="order", within=("-1m", "1m"), how="left").sink("near", key="order", value=fk.Json())
    assert ".rows" not in explain(flow)


def test_behind_a_function_that_gives_another_row_each_time_the_key_counts() -> None:
    times = iter(range(100))
    flow = fk.Flow("f")
    counts = flow.source("orders", key="order", value=ORDERS).group_by("order", id="counts").agg(n=fk.len())
    stamped = counts.map(lambda row: {**row, "at": next(times)}, returns={"order": int, "n": int, "at": int})
    stamped.sink("counts", key="order", value=fk.Json())
    app = fk.testing.run(flow, {"orders": [{"order": 1, "usd": 1}] * 3}, step_rows=1)
    assert app.sinks["counts"].table[1]["n"] == 3


def test_what_state_cannot_hold_is_refused_in_the_words_of_the_sink() -> None:
    flow = fk.Flow("f")
    listed = fk.Json({"k": fk.Int64, "v": fk.List(fk.Int64), "weight": fk.Int64})
    rows = flow.source("rows", value=listed, changes="weights")
    with pytest.raises(DefinitionError, match="nothing known says that a key has one row at a time") as caught:
        rows.sink("last", key="k", value=fk.Json())
    assert caught.value.where.startswith("sink 'last' (tests/stream/sinks/test_identified.py:")
    assert "column 'v'" in caught.value.where


def placed(declare: bool) -> fk.Flow:
    """Orders with the time of their payment, by left join of plain streams: nothing known identifies a row."""
    flow = fk.Flow("f")
    orders, paid = flow.source("orders", value=ORDERS), flow.source("paid", value=PAID)
    rows = orders.join(paid, on="order", how="left")
    (rows.filter(fk.col("usd") > 0).assume_unique("order") if declare else rows).sink(
        "placed", key="order", value=fk.Json()
    )
    return flow


def test_what_is_assumed_to_be_unique_needs_no_state() -> None:
    assert "placed.rows" in explain(placed(declare=False))
    flow = placed(declare=True)
    assert "placed.rows" not in explain(flow)
    assert "assume_unique: order" in explain(flow)
    sent = {"orders": [{"order": n, "usd": n} for n in range(4)], "paid": [{"order": n, "at": n} for n in (1, 2)]}
    app = fk.testing.run(flow, sent, step_rows=1, partitions=2)
    assert {n: row["at"] for n, row in app.sinks["placed"].table.items()} == {1: 1, 2: 2, 3: None}


def test_what_is_known_to_be_unique_is_not_assumed() -> None:
    flow = fk.Flow("f")
    rows = flow.source("orders", value=ORDERS).group_by("order").agg(n=fk.len()).assume_unique("order", "n")
    rows.sink("counts", key="order", value=fk.Json())
    assert "assume_unique" not in explain(flow)


def test_rows_that_are_assumed_to_be_unique_must_be_together() -> None:
    for moved in (False, True):
        flow = fk.Flow("f")
        rows = flow.source("rows", value=WEIGHED, changes="weights")
        # Two tasks may send the row that comes before the row that goes, so that an exchange does not help.
        rows = (rows.repartition("k") if moved else rows).assume_unique("k")
        with pytest.raises(DefinitionError, match="may be in several tasks") as caught:
            rows.filter(fk.col("v") != "z").sink("last", key="k", value=fk.Json())
        assert "leave out .assume_unique" in str(caught.value)


def test_a_sink_must_have_the_columns_that_are_assumed_to_be_unique() -> None:
    flow = fk.Flow("f")
    orders, paid = flow.source("orders", value=ORDERS), flow.source("paid", value=PAID)
    rows = orders.join(paid, on="order", how="left")
    with pytest.raises(DefinitionError, match="does not identify a row"):
        rows.assume_unique("order", "usd").sink("last", key="order", value=fk.Json())
    with pytest.raises(DefinitionError, match="there is no column 'ordr'"):
        rows.assume_unique("ordr")


def test_the_key_that_an_error_names_is_accepted_behind_a_join() -> None:
    flow = fk.Flow("shop")
    stock = flow.source("stock", key="sku", value=fk.Json({"sku": str, "shop": str}), changes="upsert")
    plans = flow.source("plans", key="plan", value=fk.Json({"plan": str, "shop": str}), changes="upsert")
    joined = stock.join(plans, on="shop", id="joined")
    with pytest.raises(DefinitionError, match="one row for each plan, shop, sku here"):
        joined.sink("out", key=["shop", "plan"], value=fk.Json())
    joined.sink("out", key=["plan", "shop", "sku"], value=fk.Json())
    flow.plan()
