"""Streams that look tables up: what a row is joined with, in which step, wherever the two sides lie."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.errors import DefinitionError, SourceError
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.batch import epoch
from falkirk.testing.memory import DictState, MemoryApp, Record

FLIGHT = {"carrier": fk.String, "route": fk.String, "delay": fk.Int64}
FLIGHTS, NAMES = fk.Json(FLIGHT), fk.Json({"name": fk.String, "fleet": fk.Int64})


def flights(flow: fk.Flow) -> fk.Stream:
    return flow.source("flights", key="carrier", value=FLIGHTS)


def named(flow: fk.Flow, **more: Any) -> fk.Stream:
    """Flights with their carriers' names; both topics are cut by carrier."""
    return flights(flow).lookup(flow.table("carriers", key="carrier", value=NAMES), **more)


def routed(flow: fk.Flow, **more: Any) -> fk.Stream:
    """Flights with what is known of their routes, which lie in other partitions."""
    routes = flow.table("routes", key="name", value=fk.Json({"miles": fk.Int64, "name": fk.String}))
    return flights(flow).lookup(routes, on="route", **more)


def broadcast(flow: fk.Flow, **more: Any) -> fk.Stream:
    """Flights with what is known of their routes, which is at hand everywhere."""
    schema = fk.Json({"miles": fk.Int64, "name": fk.String})
    return flights(flow).lookup(flow.table("routes", key="name", value=schema, broadcast=True), on="route", **more)


def app_of(flow: fk.Flow, stream: fk.Stream, **more: Any) -> MemoryApp:
    stream.sink("out", key="carrier", value=fk.Json())
    return MemoryApp(flow, {"flights": 3, "carriers": 3, "routes": 3, "out": 3}, **more)


def put(app: MemoryApp, topic: str, key: str, value: Any) -> None:
    app.append(topic, key.encode(), None if value is None else msgspec.json.encode(value))


def fly(app: MemoryApp, carrier: str | None, route: str | None = None, delay: int = 0) -> None:
    key = None if carrier is None else carrier.encode()
    app.append("flights", key, msgspec.json.encode({"carrier": carrier, "route": route, "delay": delay}))


def values(records: list[Record]) -> list[Any]:
    return [msgspec.json.decode(r.value() or b"null") for r in records]


def column(app: MemoryApp, name: str) -> list[Any]:
    return [row[name] for row in values(app.records("out"))]


def test_both_sides_in_one_task_need_no_exchange() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow))
    (stage,) = app.plan.stages
    assert [i.topic for i in stage.inputs] == ["flights", "carriers"]


def test_a_row_is_joined_with_the_table_as_of_its_step() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow))
    for carrier in ("AA", None, "UA"):
        put(app, "carriers", "AA", carrier and {"name": carrier, "fleet": 1})
        fly(app, "AA")
        app.run()
    assert column(app, "name") == ["AA", None, "UA"]
    assert column(app, "fleet") == [1, None, 1]


def test_of_a_key_the_last_row_of_a_step_counts() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow))
    fly(app, "AA")
    for name in ("old", None, "new"):
        put(app, "carriers", "AA", name and {"name": name, "fleet": None})
    app.run()
    assert column(app, "name") == ["new"]


def test_an_inner_lookup_drops_what_it_does_not_find() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow, how="inner", columns={"name": "called"}))
    put(app, "carriers", "AA", {"name": "American", "fleet": 1})
    for carrier in ("AA", "UA", "AA"):
        fly(app, carrier)
    app.run()
    assert [(r["carrier"], r["called"]) for r in values(app.records("out"))] == [("AA", "American")] * 2
    assert "fleet" not in values(app.records("out"))[0]


def test_a_lookup_may_only_choose_rows() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow, how="inner", columns=[]))
    put(app, "carriers", "AA", {"name": None, "fleet": None})
    for carrier in ("AA", "UA"):
        fly(app, carrier)
    app.run()
    assert [r["carrier"] for r in values(app.records("out"))] == ["AA"]


def test_sides_that_are_cut_otherwise_meet_through_exchanges() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, routed(flow), tasks=3)
    assert len(app.plan.stages) == 3
    for route, miles in (("a-b", 1), ("b-c", 2), ("c-d", 3)):
        put(app, "routes", route, {"miles": miles})
    put(app, "routes", "b-c", None)
    app.run()
    for route in ("a-b", "b-c", "c-d", None):
        fly(app, "AA", route)
    app.run()
    assert {r["route"]: r["miles"] for r in values(app.records("out"))} == {"a-b": 1, "b-c": None, "c-d": 3, None: None}


def test_a_grouped_result_is_a_table() -> None:
    flow = fk.Flow("f")
    stream = flights(flow)
    usual = stream.group_by("route", id="usual").agg(usual=fk.max("delay"))
    app = app_of(flow, stream.lookup(flow.table(usual, key="route"), "route"), tasks=2)
    for delay in (3, 9, 4):
        fly(app, "AA", "a-b", delay)
        app.run()
    found = column(app, "usual")
    # The row itself may arrive before or after what it adds to its group.
    assert len(found) == 3
    assert all(usual in (None, 3, 9) for usual in found)
    fly(app, "AA", "a-b", 0)
    app.run()
    assert column(app, "usual")[-1] == 9


def test_a_group_that_is_gone_is_found_no_more() -> None:
    flow = fk.Flow("f")
    stream = flights(flow)
    by_carrier = stream.group_by("carrier", id="of-carrier").agg(late=fk.max("delay"))
    carriers_by_delay = by_carrier.group_by("late", id="by-delay").agg(n=fk.len())
    table = flow.table(carriers_by_delay, key="late")
    app = app_of(flow, stream.lookup(table, "delay"))
    for carrier, delay in (("AA", 1), ("AA", 2), ("UA", 0), ("UA", 1), ("UA", 1)):
        fly(app, carrier, delay=delay)
        app.run()
    # AA's greatest delay was 1 and is 2. When the last of UA's came, its own was 1, and had been 0.
    for delay, carriers in ((1, 1), (0, None)):
        fly(app, "UA", delay=delay)
        app.run()
        assert [row["n"] for row in values(app.records("out")) if row["carrier"] == "UA"][-1] == carriers


@pytest.mark.parametrize("how", ["inner", "left"])
@given(seed=st.integers(0, 1000))
@settings(max_examples=5)
def test_a_table_of_changes_in_any_order_has_the_row_that_they_add_up_to(how: Any, seed: int) -> None:
    """A join sends the new row of a key before the old one leaves, if both sides change in one step."""
    flow, value = fk.Flow("f"), fk.Json({"id": str, "k": str, "x": int})
    one, two = (flow.source(name, key="id", value=value, changes="upsert") for name in ("one", "two"))
    sums = [stream.group_by("k", id=f"sum-{n}").agg(**{f"x{n}": fk.sum("x")}) for n, stream in enumerate((one, two))]
    both = sums[0].join(sums[1], on="k", how=how, id="both")
    both.sink("both", key="k", value=fk.Json())
    asked = flow.source("asked", key="k", value=fk.Json({"k": str}))
    asked.lookup(flow.table(both, key="k"), id="found").sink("out", key="k", value=fk.Json())
    app, choice = fk.testing.App(flow), random.Random(seed)
    for _ in range(6):
        for name in ("one", "two"):
            for id_ in choice.sample("pqr", 2):
                row = {"id": id_, "k": choice.choice("AB"), "x": choice.randrange(5)}
                app.send(name, [row if choice.random() < 0.8 else fk.testing.Record(key=id_)])
        app.run()
        app.send("asked", [{"k": "A"}, {"k": "B"}])
        app.run()
        found = app.sinks["out"].rows[-2:]
        assert found == [app.sinks["both"].table.get(k, {"k": k, "x0": None, "x1": None}) for k in "AB"]


def test_an_old_row_that_leaves_in_a_later_step_than_the_new_one_came_takes_nothing_along() -> None:
    """Many rows pass an edge in several records, and these may be read in several steps."""
    flow = fk.Flow("f")
    asked, changed = (flow.source(name, key="k", value=fk.Json({"k": str, "x": int})) for name in ("asked", "changed"))
    table = flow.table(changed.group_by("k", id="tops").agg(top=fk.max("x")), key="k")
    found = asked.lookup(table, id="found")
    found.sink("out", key="k", value=fk.Json())
    (stage,) = [s for s in flow.plan().stages if found._op in s.operators]  # type: ignore[attr-defined]
    circuit = stage.circuit(0, Layout({t.topic: 1 for t in (*stage.inputs, *stage.outputs)}))
    assert isinstance(circuit, StageCircuit)
    runner, state = circuit.runners[found._op], Overlay(DictState())

    def step(*changes: tuple[str, int, int], asks: str = "") -> list[Any]:
        """What is found for these keys, once the table has changed: keys, rows and weights."""
        weights = pl.DataFrame({TS: [5] * len(changes), WEIGHT: [w for _, _, w in changes]})
        rows = pl.DataFrame([c[:2] for c in changes], {"k": pl.String, "top": pl.Int64}, orient="row")
        asking = pl.DataFrame({"k": [*asks], "x": [0] * len(asks)}, {"k": pl.String, "x": pl.Int64})
        batches = Batch(asking, pl.DataFrame({TS: [5] * len(asks)})), Batch(rows, weights)
        given = runner.step(StepRun(StepInput(1, []), state, circuit.failures), *batches)
        assert isinstance(given, Batch)
        return given.rows["top"].to_list()

    assert step(("a", 1, 1), ("b", 1, 1), asks="ab") == [1, 1]
    assert step(("a", 2, 1), ("b", 2, 1), asks="ab") == [2, 2]
    assert step(("a", 1, -1), asks="ab") == [2, 2]
    assert step(("b", 1, -1), ("b", 2, -1), asks="ab") == [2, None]
    assert step(("a", 2, -1), asks="ab") == [None, None]


def test_what_does_not_decode_leaves_the_tables_row_as_it_was() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow))
    put(app, "carriers", "AA", {"name": "American", "fleet": 1})
    app.append("carriers", b"AA", b"{", partition=0)
    app.append("carriers", None, b"{}", partition=0)
    app.run()
    fly(app, "AA")
    app.run()
    letters = values(app.records("falkirk.f.dead-letters"))
    assert [(x["source"], x["reason"].split(":")[0]) for x in letters] == [
        ("carriers", "not JSON"),
        ("carriers", "null key"),
    ]
    assert column(app, "name") == ["American"]


def test_keys_may_have_formats_and_several_columns() -> None:
    flow = fk.Flow("f")
    stream = flow.source("flights", key=fk.Key("id", fk.Int64BE), value=fk.Json({"id": fk.Int64, "g": fk.String}))
    by_id = flow.table("ids", key=fk.Key("number", fk.Int64BE), value=fk.Text("word"))
    both = flow.table("both", key=["g", "id"], value=fk.Json({"id": fk.Int64, "both": fk.String}))
    stream.lookup(by_id, "id").lookup(both).sink("out", key="id", value=fk.Json())
    app = MemoryApp(flow)
    app.append("ids", (7).to_bytes(8, "big"), b"seven")
    app.append("both", b'["x",7]', b'{"both":"x7"}')
    app.run()
    app.append("flights", (7).to_bytes(8, "big"), b'{"id":7,"g":"x"}')
    app.run()
    assert values(app.records("out")) == [{"id": 7, "g": "x", "word": "seven", "both": "x7"}]


def test_a_key_in_another_partition_than_its_rows_is_refused() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, named(flow))
    for n in range(20):
        app.append("carriers", f"c{n}".encode(), b'{"name":"x"}', partition=n % 3)
    with pytest.raises(SourceError, match="neither Java's"):
        app.run()


Rng = st.randoms(use_true_random=False)
keys = st.sampled_from(["a", "b", "c", "ü"])


@pytest.mark.parametrize("build", [named, routed, broadcast])
@pytest.mark.parametrize("how", ["left", "inner"])
@settings(max_examples=10, deadline=None)
@given(
    table=st.lists(st.tuples(keys, st.none() | st.integers(0, 9)), max_size=12),
    rows=st.lists(st.tuples(keys, st.none() | keys), max_size=20),
    rng=Rng,
)
def test_a_batch_looks_up_what_a_stream_does_whose_table_was_there_first(
    build: Any, how: str, table: list[tuple[str, int | None]], rows: list[tuple[str, str | None]], rng: random.Random
) -> None:
    def of(regime: Any) -> MemoryApp:
        flow = fk.Flow("f", regime=regime)
        app = app_of(flow, build(flow, how=how), tasks=2)
        for key, n in table:
            topic = "carriers" if build is named else "routes"
            put(
                app, topic, key, None if n is None else {"name": str(n), "fleet": n} if build is named else {"miles": n}
            )
        return app

    streamed, batched = of(fk.EagerCheckpoint()), of(fk.Batch())
    streamed.run(rng)
    for app in (streamed, batched):
        for carrier, route in rows:
            fly(app, carrier, route)
    streamed.run(rng)
    batch = epoch(batched, rng, buckets=rng.randint(1, 20))
    spelt = [sorted((r.key(), r.value()) for r in records) for records in (batch["out"], streamed.records("out"))]
    assert spelt[0] == spelt[1]
    assert batch["dead letters"] == []


def test_lookups_that_cannot_be_are_refused_where_they_are_defined() -> None:
    flow, other = fk.Flow("f"), fk.Flow("g")
    stream = flights(flow)
    carriers = flow.table("carriers", key="carrier", value=NAMES)
    grouped = stream.group_by("carrier", id="n").agg(n=fk.len())
    for words, wrong in {
        "is not a table": lambda: stream.lookup(stream),  # type: ignore[arg-type]
        "different flows": lambda: flights(other).lookup(carriers),
        "is not supported": lambda: stream.lookup(carriers, how="outer"),  # type: ignore[arg-type]
        "can be taken back": lambda: grouped.lookup(carriers),
        "they never match": lambda: stream.lookup(carriers, "delay"),
        "no column 'nmae'": lambda: stream.lookup(carriers, columns=["nmae"]),
        "there is already a column 'delay'": lambda: stream.lookup(carriers, columns={"name": "delay"}),
        "one column, and on= names 2": lambda: stream.lookup(carriers, ["carrier", "route"]),
        "there is no column 'flag'": lambda: stream.lookup(carriers, "flag"),
        "does not identify the rows": lambda: flow.table(grouped, key="n"),
        "nothing is known": lambda: flow.table(stream, key="carrier"),
        "format needs a schema": lambda: flow.table("x", key="k", value=fk.Json()),
    }.items():
        with pytest.raises(DefinitionError, match=words):
            wrong()


def test_a_table_that_nobody_looks_up_is_refused() -> None:
    flow = fk.Flow("f")
    flow.table("carriers", key="carrier", value=NAMES)
    flights(flow).sink("out", key="carrier", value=fk.Json())
    with pytest.raises(DefinitionError, match="nothing uses the source"):
        flow.plan()


def test_a_broadcast_table_needs_no_exchange_and_no_state() -> None:
    flow = fk.Flow("f")
    app = app_of(flow, broadcast(flow))
    (stage,) = app.plan.stages
    assert [i.topic for i in stage.inputs] == ["flights"]
    assert not stage.stateful
    for route, miles in (("a-b", 1), ("b-c", 2), ("c-d", 3), ("b-c", None), ("c-d", 4)):
        put(app, "routes", route, None if miles is None else {"miles": miles})
    for route in ("a-b", "b-c", "c-d", None):
        fly(app, "AA", route)
    app.run()
    put(app, "routes", "a-b", {"miles": 9})
    fly(app, "UA", "a-b")
    app.run()
    found = {(r["carrier"], r["route"]): r["miles"] for r in values(app.records("out"))}
    assert found == {("AA", "a-b"): 1, ("AA", "b-c"): None, ("AA", "c-d"): 4, ("AA", None): None, ("UA", "a-b"): 9}


def test_a_broadcast_table_is_not_looked_up_by_what_may_be_run_again() -> None:
    with pytest.raises(DefinitionError, match="is further by then"):
        broadcast(fk.Flow("f", regime=fk.LazyCheckpoint()))


def test_a_tables_key_may_be_an_object_whose_field_the_stream_calls_otherwise() -> None:
    """Rows and what they look up meet in one task, though an object's bytes hold a column's name."""
    flow = fk.Flow("debezium")
    routes = flow.table("routes", key=fk.Key("name", fk.Json), value=fk.Json({"miles": fk.Int64, "name": fk.String}))
    app = app_of(flow, flights(flow).lookup(routes, on="route"))
    names = [f"r{i}" for i in range(20)]
    for i, name in enumerate(names):
        put(app, "routes", f'{{"name":"{name}"}}', {"miles": i, "name": name})
    app.run()
    for name in names:
        fly(app, "KL", name)
    app.run()
    assert {row["route"]: row["miles"] for row in values(app.records("out"))} == {n: i for i, n in enumerate(names)}
