"""Exchanges, regimes and concat: how a flow is cut into stages, and that the cut changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from io import BytesIO
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.checkpoint.ids import TopicPartition
from falkirk.stream.access.endpoints import views_of
from falkirk.stream.dataflow import packing
from falkirk.stream.dataflow.batch import TS
from falkirk.stream.dataflow.provenance import provenances
from falkirk.testing.memory import MemoryApp

ROW = fk.Json({"k": fk.Int64, "g": fk.String, "x": fk.Int64})
Rng = st.randoms(use_true_random=False)
rows_of = st.lists(st.tuples(st.integers(0, 4), st.none() | st.sampled_from(["a", "b", "ü"]), st.integers(0, 9)))


def run(flow: fk.Flow, rows: list[Any], rng: random.Random | None, *topics: str, tasks: int = 3) -> MemoryApp:
    app = MemoryApp(flow, {**dict.fromkeys(topics, 2), "out": 2}, tasks=tasks)
    for i, (k, g, x) in enumerate(rows):
        value = msgspec.json.encode({"k": k, "g": g, "x": x})
        app.append(topics[i % len(topics)], str(k).encode(), value, timestamp=i)
    app.run(rng)
    return app


def counted(app: MemoryApp, column: str) -> dict[Any, int]:
    rows = [msgspec.json.decode(v) for v in app.latest("out").values()]
    return {r[column]: r["n"] for r in rows}


@given(rows_of, Rng)
def test_grouping_by_another_column_than_the_key_exchanges_rows(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    flow.source("in", key="k", value=ROW).group_by("g").agg(n=fk.len(), t=fk.max("x")).sink(
        "out", key="g", value=fk.Json()
    )
    assert [s.partitioned_by for s in flow.plan().stages] == ["topic", "shards"]
    app = run(flow, rows, rng, "in")
    assert counted(app, "g") == Counter(g for _, g, _ in rows)


@given(rows_of, Rng)
def test_a_source_that_is_keyed_otherwise_can_be_repartitioned(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    flow.source("in", key="g", value=ROW, repartition=True).group_by("g").agg(n=fk.len()).sink(
        "out", key="g", value=fk.Json()
    )
    assert len(flow.plan().stages) == 2
    assert counted(run(flow, rows, rng, "in"), "g") == Counter(g for _, g, _ in rows)


@given(rows_of, Rng)
def test_sources_that_are_repartitioned_need_nothing_with_state_behind_them(
    rows: list[Any], rng: random.Random
) -> None:
    flow = fk.Flow("e")
    flow.source("in", key="g", value=ROW, repartition=True).sink("out", key="k", value=fk.Json())
    assert [stage.id for stage in flow.plan().stages] == ["in", "in.by.g"]
    app = run(flow, rows, rng, "in")
    assert Counter(r.value() for r in app.records("out")) == Counter(r.value() for r in app.records("in"))


@given(rows_of, Rng)
def test_streams_cut_alike_are_joined_without_an_exchange(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    both = flow.source("a", key="k", value=ROW).concat(flow.source("b", key="k", value=ROW))
    both.group_by("k").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    assert len(flow.plan().stages) == 1
    assert counted(run(flow, rows, rng, "a", "b"), "k") == Counter(k for k, _, _ in rows)


@given(rows_of, Rng)
def test_streams_cut_otherwise_are_joined_behind_edges(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    one = flow.source("a", key="k", value=ROW)
    other = one.repartition("g").with_columns(fk.col("x") + 1)
    one.concat(other).group_by("k", id="n").agg(n=fk.len(), s=fk.sum("x")).sink("out", key="k", value=fk.Json())
    assert [s.id for s in flow.plan().stages] == ["a", "a.by.g", "concat.a.with_columns", "n"]
    app = run(flow, rows, rng, "a")
    assert counted(app, "k") == {k: 2 * n for k, n in Counter(k for k, _, _ in rows).items()}


@given(rows_of, Rng)
def test_a_table_and_a_stream_can_be_one(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    source = flow.source("in", key="k", value=ROW)
    table = source.group_by("k", id="tops").agg(x=fk.max("x"))
    both = table.concat(source.select("k", "x"))
    both.group_by("x", id="n").agg(n=fk.len()).sink("out", key="x", value=fk.Json())
    tops = {k: max(x for k2, _, x in rows if k2 == k) for k, _, _ in rows}
    assert counted(run(flow, rows, rng, "in"), "x") == Counter([x for _, _, x in rows]) + Counter(tops.values())


@given(rows_of, Rng)
def test_another_regime_begins_another_stage(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e", regime=fk.EagerCheckpoint(step="50ms"))
    source = flow.source("in", key="k", value=ROW)
    source.group_by("k", id="eager").agg(m=fk.len()).sink("eager", key="k", value=fk.Json())
    lazy = source.with_regime(fk.LazyCheckpoint(every="5s"))
    lazy.group_by("k", id="lazy").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    stages = flow.plan().stages
    assert [(s.id, s.regime.kind, [i.kind for i in s.inputs]) for s in stages] == [
        ("eager", "eager", ["source"]),
        ("lazy", "lazy", ["source"]),
    ]
    assert counted(run(flow, rows, rng, "in"), "k") == Counter(k for k, _, _ in rows)


@given(rows_of, Rng)
def test_a_regime_in_the_middle_keeps_rows_where_their_key_is(rows: list[Any], rng: random.Random) -> None:
    flow = fk.Flow("e")
    doubled = (
        flow.source("in", key="k", value=ROW).with_columns(fk.col("x") * 2).with_regime(fk.LazyCheckpoint(), id="l")
    )
    doubled.group_by("k").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    assert [(s.id, s.regime.kind) for s in flow.plan().stages] == [("in", "eager"), ("by.k", "lazy")]
    assert counted(run(flow, rows, rng, "in"), "k") == Counter(k for k, _, _ in rows)


def test_columns_that_nobody_reads_are_neither_decoded_nor_sent() -> None:
    flow = fk.Flow("e")
    flow.source("in", key="k", value=ROW).group_by("g").agg(n=fk.len()).sink("out", key="g", value=fk.Json())
    first, second = flow.plan().stages
    assert [f.schema.names() for f in first.sources.values()] == [["k", "g"]]  # type: ignore[attr-defined]
    assert [e.columns for e in second.edges_in] == [("g",)]  # type: ignore[attr-defined]


def test_a_large_batch_goes_as_several_records_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LIMIT", 2000)
    flow = fk.Flow("e")
    flow.source("in", key="k", value=ROW).repartition("g").sink("out", value=fk.Json())
    rows = [(1, "a", x) for x in range(300)]
    app = run(flow, rows, None, "in", tasks=1)
    assert len(app.records("falkirk.e.edge.in.by.g")) > 2
    assert sorted(msgspec.json.decode(r.value() or b"")["x"] for r in app.records("out")) == list(range(300))
    assert [r.millis for r in app.topics["out"][0]] == sorted(r.millis for r in app.topics["out"][0])


def test_a_batch_of_another_version_is_refused_with_its_address() -> None:
    flow = fk.Flow("e")
    flow.source("in", key="k", value=ROW).repartition("g").sink("out", value=fk.Json())
    app = MemoryApp(flow)
    app.append("falkirk.e.edge.in.by.g", None, b"\x07garbage")
    with pytest.raises(fk.FalkirkError, match="of version 7") as caught:
        app.run()
    assert "topic falkirk.e.edge.in.by.g, partition 0, offset 0" in caught.value.where


def test_topics_of_other_sizes_cannot_be_cut_alike() -> None:
    flow = fk.Flow("e")
    both = flow.source("a", key="k", value=ROW).concat(flow.source("b", key="k", value=ROW))
    both.group_by("k").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    app = MemoryApp(flow, {"a": 2, "b": 3})
    app.append("a", b"1", b'{"k":1}')
    with pytest.raises(fk.FalkirkError, match="2 and 3 partitions") as caught:
        app.run()
    assert "repartition=True" in caught.value.hint


def test_rows_keep_the_greatest_timestamp_of_what_they_come_from_through_an_exchange() -> None:
    flow = fk.Flow("e")
    flow.source("in", key="k", value=ROW).group_by("g").agg(n=fk.len()).sink("out", key="g", value=fk.Json())
    app = MemoryApp(flow)
    for millis in (900, 1000, 700):
        app.append("in", b"1", b'{"k":1,"g":"a","x":1}', timestamp=millis)
    app.run()
    assert [r.millis for r in app.records("out")] == [1000]


def by_group(regime: fk.EagerCheckpoint | fk.LazyCheckpoint) -> fk.Flow:
    flow = fk.Flow("e", regime=regime)
    source = flow.source("in", key="k", value=ROW)
    source.group_by("g").agg(n=fk.len(), t=fk.sum("x")).sink("out", key="g", value=fk.Json())
    return flow


def test_rows_that_wait_in_an_edge_as_an_older_version_packed_them_are_read() -> None:
    app = MemoryApp(by_group(fk.EagerCheckpoint()))
    (edge,) = [topic for topic in app.topics if ".edge." in topic]
    for g, x in (("a", 1), (None, 5)):
        old = BytesIO()
        rows = pl.DataFrame({"g": [g], "x": [x], TS: [7]}, {"g": pl.String, "x": pl.Int64, TS: pl.Int64})
        rows.write_ipc_stream(old, compression="uncompressed")
        app.append(edge, None, b"\x01" + old.getvalue(), partition=0)
    app.append("in", b"1", b'{"k":1,"g":"a","x":2}')
    app.run()
    rows_of_out = [msgspec.json.decode(v) for v in app.latest("out").values()]
    assert sorted(rows_of_out, key=str) == [{"g": "a", "n": 2, "t": 3}, {"g": None, "n": 1, "t": 5}]


def test_only_tasks_that_get_rows_get_a_record() -> None:
    app = MemoryApp(by_group(fk.EagerCheckpoint()), tasks=50)
    for x in range(10):
        app.append("in", b"1", b'{"k":1,"g":"%s","x":1}' % (b"a" if x % 2 else b"b"))
    app.step(app.plan.stages[0], 0, {"in": 10})
    (edge,) = [topic for topic in app.topics if ".edge." in topic]
    assert len(app.records(edge)) == 2


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()], ids=["eager", "lazy"])
def test_tasks_that_share_records_of_an_edge_lose_and_double_nothing_wherever_they_are_killed(
    regime: fk.EagerCheckpoint | fk.LazyCheckpoint,
) -> None:
    rows = [{"k": k, "g": "ab"[k % 2], "x": k} for k in range(12)]
    app = fk.testing.run(by_group(regime), {"in": rows}, partitions=3, step_rows=2, crash_at="everywhere")
    assert app.sinks["out"].table == {"a": {"g": "a", "n": 6, "t": 30}, "b": {"g": "b", "n": 6, "t": 36}}


def test_a_record_of_an_edge_holds_what_several_tasks_sent_and_says_whose_it_is() -> None:
    app = fk.testing.App(by_group(fk.LazyCheckpoint()), partitions=4)
    app.send("in", [{"k": k, "g": "a", "x": k} for k in range(20)])
    app.run()
    (topic,) = [name for name in app._cluster.counts if ".edge." in name]
    places = [TopicPartition(topic, p) for p in range(app._cluster.counts[topic])]
    (record,) = [m for place in places for m in app._cluster.read(place, 0)]
    assert {p.task for p in provenances(record)} == {f"in/{p}" for p in range(4)}
    (view,) = [v for v in views_of(app._cluster.plan) if v.kind == "edge"]
    shown = view.rows([record])
    assert sorted(row.values["x"] for row in shown if row.values) == list(range(20))
    assert {row.maker.task for row in shown if row.maker} == {f"in/{p}" for p in range(4)}
    app.crash(host=True)
    app.run()
    assert app.sinks["out"].table == {"a": {"g": "a", "n": 20, "t": 190}}


def test_what_one_task_said_in_a_shared_record_is_corrected_and_no_other() -> None:
    def flow(least: int) -> fk.Flow:
        flow = fk.Flow("e", regime=fk.LazyCheckpoint())
        source = flow.source("in", key="k", value=ROW).filter(fk.col("x") >= least)
        tops = source.group_by("k", id="tops").agg(x=fk.max("x"), n=fk.len())
        tops.group_by("n", id="sizes").agg(keys=fk.len(), t=fk.sum("x")).sink("out", key="n", value=fk.Json())
        return flow

    rows = [{"k": k, "g": None, "x": x} for x in range(4) for k in range(12)]
    tables = []
    for least in (0, 2):
        app = fk.testing.App(flow(least), partitions=4)
        app.send("in", rows)
        app.run()
        tables.append(app.sinks["out"].table)
    app = fk.testing.App(flow(0), partitions=4, step_rows=2)
    app.send("in", rows)
    app.run()
    app.change(flow(2), host=True, on_divergence="correct")
    app.run()
    assert {n: row for n, row in app.sinks["out"].table.items() if row} == tables[1] != tables[0]
