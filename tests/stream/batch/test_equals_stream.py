"""A batch over the topics is what the stream leaves behind: for each operator, however either is cut."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.operators.registered import registered

import falkirk as fk
from falkirk.stream import operators as op
from falkirk.stream.definition.regimes import Regime
from falkirk.testing.batch import epoch
from falkirk.testing.memory import MemoryApp

EXAMPLES = Path(__file__).parents[3] / "examples"
FORMAT = fk.Json({"k": fk.String, "g": fk.Int64, "x": fk.Int64, "f": fk.Float64})
JSON = fk.Json()

Rng = st.randoms(use_true_random=False)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "c", "", "ü"]),
            "g": st.none() | st.integers(0, 2),
            "x": st.none() | st.integers(-(2**40), 2**40),
            # Eighths add up exactly in any order.
            "f": st.none() | st.integers(-1000, 1000).map(lambda n: n / 8),
        }
    ),
    max_size=25,
)


class Seen(fk.Aggregate):
    """All values, sorted, as text."""

    state = {"seen": str}  # noqa: RUF012
    returns = str

    def add(self, state: dict[str, Any] | None, values: list[Any]) -> dict[str, Any]:
        before = msgspec.json.decode(state["seen"]) if state else []
        return {"seen": msgspec.json.encode(sorted(before + [str(v) for v in values])).decode()}

    def retract(self, state: dict[str, Any] | None, values: list[Any]) -> dict[str, Any]:
        left = msgspec.json.decode(state["seen"]) if state else []
        for value in values:
            left.remove(str(value))
        return {"seen": msgspec.json.encode(left).decode()}

    def result(self, state: dict[str, Any]) -> str:
        return str(state["seen"])


class Running(fk.Process):
    """A running total of each key, in the order of its rows, and a timer long past that is due once they have been seen."""

    state = {"total": int}  # noqa: RUF012
    returns = {"k": str, "total": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        total = (key.get() or {"total": 0})["total"] + (row["x"] or 0)
        key.put({"total": total})
        key.set_timer(timedelta(days=1), "later")
        yield {"k": row["k"], "total": total}


def grouped(s: fk.Stream) -> fk.Stream:
    return s.group_by("g", id="by-g").agg(
        n=fk.len(), sx=fk.sum("x"), mx=fk.mean("x"), sf=fk.sum("f"), lo=fk.min("x"), hi=fk.max("f"), last=fk.max("k"),
        twice=fk.sum(fk.col("x") * 2),
    )  # fmt: skip


def branched(s: fk.Stream) -> fk.Stream:
    high, low = s.branch(fk.col("x") >= 0, fk.col("x") < 0)
    return high.select("k", "g").concat(low.select("k", "g"), id="both")


async def lengthened(row: dict[str, Any]) -> dict[str, Any]:
    """Later rows may be answered first."""
    await asyncio.sleep(0.001 * (row["g"] or 0))
    return {"length": len(row["k"])}


def reached(links: fk.Stream) -> fk.Stream:
    both = links.with_columns(x=fk.col("x") % 3)
    return both.iterate(
        lambda near: near.join(both, left_on="x", right_on="g", suffix="2").select("g", x="x2").concat(both).unique()
    )


def timed(s: fk.Stream, name: str) -> fk.Stream:
    """Different rows, with an event time that can be null."""
    rows = s.with_columns(at=fk.col("x") % 8).group_by("g", "k", "at", id=name).agg(n=fk.len())
    s._graph.add_hidden(operator := replace(rows.select("g", "k", "at", "n")._op, time="at"))
    return fk.Stream(s._graph, operator)


Built = tuple[fk.Stream, Any] | tuple[fk.Stream, Any, dict[str, Any]]
"""A stream, its sink's key, and what else its sink is told."""

FLOWS: dict[str, Callable[[fk.Stream], Built]] = {
    "source": lambda s: (s, "k"),
    "no key": lambda s: (s, None),
    "filter": lambda s: (s.filter(fk.col("x") > 0), "k"),
    "select": lambda s: (s.select("k", y=fk.col("x") + 1), "k"),
    "assume_unique": lambda s: (s.assume_unique("k", "x"), "k"),
    "with_columns": lambda s: (s.with_columns(y=fk.col("x") * fk.col("g")), ["k", "g"]),
    "map": lambda s: (s.map(lambda row: {**row, "k": row["k"] + "!"}), "k"),
    "enrich": lambda s: (s.enrich(lengthened, returns={"length": int}, concurrency=3), "k"),
    "flat_map": lambda s: (s.flat_map(lambda row: [row] * (row["g"] or 0)), "k"),
    "map_batches": lambda s: (s.map_batches(lambda frame: frame.drop_nulls("x")), "k"),
    "branch, concat": lambda s: (branched(s), "k"),
    "repartition": lambda s: (s.repartition("g"), "g"),
    "sink by column": lambda s: (
        s.with_columns(to=fk.when(fk.col("x") > 0).then(fk.lit("out")).otherwise(fk.lit("nowhere"))), "k",
        {"topic": ["out"], "topic_by": "to", "on_error": fk.Skip()},
    ),
    "with_regime": lambda s: (s.with_regime(s._op.regime), "k"),
    "group_by": lambda s: (grouped(s), "g"),
    "more aggregates": lambda s: (
        s.group_by("g").agg(
            kinds=fk.n_unique("x"), words=fk.n_unique("k"), var=fk.var("x"), std=fk.std("f", ddof=0),
            any=fk.any(fk.col("x") > 0), all=fk.all(fk.col("x") > 0), first=fk.first("k", by="x"),
            last=fk.last("x", by="f"), values=fk.collect("f", by="k"),
        ),
        "g",
    ),
    "group_by several": lambda s: (s.group_by("k", "g").agg(n=fk.len()), ["k", "g"]),
    "group_by, own aggregate": lambda s: (s.group_by("g").agg(seen=Seen("x"), n=fk.len(), y=Seen(fk.col("f") * 2)), "g"),
    "group_by of group_by": lambda s: (
        s.group_by("k", id="in").agg(g=fk.max("g"), f=fk.mean("x"), x=fk.max("x"), h=fk.sum("f"))
        .filter(fk.col("g") < 2).group_by("g", id="out")
        .agg(n=fk.len(), lo=fk.min("x"), h=fk.sum("h"), seen=Seen("k"), mx=fk.mean("x")),
        "g",
    ),
    "group_by, then map": lambda s: (grouped(s).map(lambda row: {**row, "last": "?"}), "g"),
    "group_by twice, concat": lambda s: (
        s.group_by("k", id="1").agg(n=fk.len()).select(name="k", n="n")
        .concat(s.group_by("g", id="2").agg(n=fk.len()).select(name=fk.col("g").cast(fk.String), n="n")),
        "name",
    ),
    "group_by with windows": lambda s: (
        s.group_by("g", fk.hopping("x", "5h", every="2h")).agg(n=fk.len(), h=fk.sum("f")), ["g", "window_start"],
    ),
    "deduplicate": lambda s: (s.deduplicate("k"), "k"),
    "group_by with sessions": lambda s: (
        s.group_by("g", fk.session("x", gap="1d")).agg(
            n=fk.len(), h=fk.sum("f"), twice=fk.max(fk.col("x") * 2), kinds=fk.n_unique("k"), values=fk.collect("k"),
            seen=Seen("k"),
        ),
        ["g", "window_start"],
    ),
    "group_by with count windows": lambda s: (
        s.group_by("k", fk.count_window(5, every=2)).agg(
            n=fk.len(), h=fk.sum("f"), twice=fk.max(fk.col("x") * 2), kinds=fk.n_unique("g"), values=fk.collect("x"),
            seen=Seen("x"),
        ),
        ["k", "window_start"],
    ),
    "agg": lambda s: (
        s.agg(n=fk.len(), top=fk.max(fk.col("x") + 1), f=fk.sum("f"), var=fk.var("x"), last=fk.last("k", by="x")), None,
    ),
    "agg of group_by": lambda s: (
        s.group_by("k").agg(x=fk.sum("x"), g=fk.max("g")).agg(n=fk.len(), low=fk.min("x"), high=fk.max("g")), None,
    ),
    "agg of rows": lambda s: (s.agg(kinds=fk.n_unique("x"), seen=Seen("g")), None),
    "over": lambda s: (
        s.group_by("k").agg(x=fk.sum("x"), g=fk.max("g")).over("g", order_by="x")
        .agg(total=fk.sum("x"), low=fk.min("x"), n=fk.row_number(), r=fk.rank(), before=fk.lag("k"), after=fk.lead("x", 2)),
        ["g", "k"],
    ),
    "over frames": lambda s: (
        s.group_by("k").agg(x=fk.sum("x"), g=fk.max("g")).over("g", order_by="x", rows=1).agg(last=fk.max("x"))
        .over("g", order_by="x", range=3, id="near").agg(near=fk.len())
        .over("g", order_by="x", rows=(-1, 1), id="around").agg(around=fk.sum("x"))
        .over("g", id="all").agg(all=fk.sum("x")), ["g", "k"],
    ),
    "unique": lambda s: (s.select("g", "k").unique(), ["g", "k"]),
    "unique of group_by": lambda s: (s.group_by("k", "g").agg(n=fk.len()).select("g", "n").unique(id="kinds"), ["g", "n"]),
    "iterate": lambda s: (reached(s.select("g", "x")), ["g", "x"]),
    "explode": lambda s: (
        s.map(lambda row: {"k": row["k"], "l": [row["x"]] * (row["g"] or 0)}, returns={"k": str, "l": fk.List(fk.Int64)})
        .explode("l"), "k",
    ),
    "subtract": lambda s: (s.select("g", "k").subtract(s.filter(fk.col("x") > 0).select("g", "k")), ["g", "k"]),
    "top_k": lambda s: (s.group_by("g").top_k(2, by="x", rank="rank"), ["g", "rank"]),
    "top_k with ties": lambda s: (
        s.group_by("k", id="1").agg(g=fk.max("g"), n=fk.len()).group_by("g").top_k(1, by="n", rank="rank", ties=True),
        ["g", "k"],
    ),
    "top_k of group_by": lambda s: (
        s.group_by("k", id="1").agg(g=fk.max("g"), h=fk.sum("f")).group_by("g").top_k(2, by=["h"], reverse=True),
        ["g", "k"],
    ),
    "inner join": lambda s: (s.join(s.filter(fk.col("x") > 0), on="g"), "k"),
    "join by an expression": lambda s: (s.join(s.select("g", "x"), on=fk.col("g") + 1, how="inner"), "k"),
    **{
        f"{how} interval join": lambda s, how=how: (  # type: ignore[misc]
            (near := timed(s, "1").join(timed(s, "2"), on="g", how=how, within=("-1ms", "2ms"))), list(near.schema)
        )
        for how in ("inner", "left", "right", "full", "semi", "anti")
    },
    **{
        f"{way} as-of join": lambda s, way=way: (  # type: ignore[misc]
            (near := timed(s, "1").join_asof(timed(s, "2"), by="g", strategy=way, tolerance="2ms")), list(near.schema)
        )
        for way in ("backward", "forward", "nearest")
    },
    "full join of group_by": lambda s: (
        s.group_by("k", id="1").agg(n=fk.len(), g=fk.max("g")).join(
            s.filter(fk.col("x") > 0).group_by("k", id="2").agg(f=fk.sum("f"), g=fk.min("g")), on="k", how="full"),
        "k",
    ),
    "left join of group_by": lambda s: (
        s.group_by("k", id="1").agg(g=fk.max("g")).join(s.group_by("g", id="2").agg(n=fk.len()), on="g", how="left"),
        ["g", "k"],
    ),
    "right join of group_by": lambda s: (
        s.group_by("g", id="2").agg(n=fk.len()).join(s.group_by("k", id="1").agg(g=fk.max("g")), on="g", how="right"),
        ["g", "k"],
    ),
    "semi join of group_by": lambda s: (
        s.group_by("k", id="1").agg(g=fk.max("g"))
        .join(s.filter(fk.col("x") > 0).group_by("g", id="2").agg(n=fk.len()), on="g", how="semi"), ["g", "k"],
    ),
    "anti join of group_by": lambda s: (
        s.group_by("k", id="1").agg(g=fk.max("g"))
        .join(s.filter(fk.col("x") > 0).group_by("g", id="2").agg(n=fk.len()), on="g", how="anti"), ["g", "k"],
    ),
    "process": lambda s: (s.key_by("k").process(Running(), id="running"), "k"),
    "process of process": lambda s: (
        s.key_by("k").process(Running(), id="running").select("k", x="total").key_by("k").process(
            lambda row, key: {"k": row["k"], "total": row["x"]}, id="again", returns={"k": str, "total": int}),
        "k",
    ),
    "process, then group_by": lambda s: (
        s.key_by("k").process(Running(), id="running").group_by("k", id="top").agg(top=fk.max("total"), n=fk.len()), "k",
    ),
}  # fmt: skip


def app_of(build: Callable[[fk.Stream], Built], regime: Any, given: list[dict[str, Any]]) -> MemoryApp:
    flow = fk.Flow("f", regime=regime)
    out, key, *more = build(flow.source("in", key="k", value=FORMAT))
    out.sink("out", key=key, value=JSON, **(more[0] if more else {}))
    app = MemoryApp(flow, {"in": 3, "out": 2}, tasks=2)
    for i, row in enumerate(given):
        app.append("in", row["k"].encode(), msgspec.json.encode(row), timestamp=i)
    return app


def test_each_operator_is_tried() -> None:
    tried = set()
    for build in FLOWS.values():
        tried |= {type(o) for o in app_of(build, fk.Batch(), []).plan.batches[0].operators}
    # Lookups have tests of their own, for what they give depends on when the table's rows come.
    # What is late or complete depends on a watermark, which a batch does not have.
    timed = {op.Late, op.WindowGroup, op.Final}
    # Requests are answered by streams only.
    # Second halves of sources, whose rows are changes: tests/stream/operators/test_changes.py.
    # A loop's variable is inside a loop only.
    changing = {op.Changed, op.Latest, op.LoopVariable}
    assert tried == registered() - timed - changing - {
        op.Source, op.TableSource, op.Errors, op.Lookup, op.SharedLookup, op.ParquetSink, op.PostgresSink,
        op.DeltaSink, op.HttpSource, op.AnswerSink,
    }  # fmt: skip


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=3)
@given(given=rows, rng=Rng)
def test_each_operator_gives_what_the_stream_gives(name: str, given: list[dict[str, Any]], rng: random.Random) -> None:
    streamed = app_of(FLOWS[name], fk.EagerCheckpoint(), given)
    streamed.run(rng)
    app = app_of(FLOWS[name], fk.Batch(), given)
    batch, again = epoch(app, rng, buckets=rng.randint(1, 40)), epoch(app, rng)
    assert not batch["dead letters"]
    (*_, sink) = app.plan.batches[0].operators
    if sink.changes:
        assert len({r.key() for r in batch["out"]}) == len(batch["out"])
        assert {r.key(): r.value() for r in batch["out"]} == streamed.latest("out")
        assert contents(again["out"]) == contents(batch["out"])
        return
    assert contents(batch["out"]) == contents(streamed.records("out"))
    # Rows of one key that keep their partition keep their order.
    if name not in ("branch, concat", "repartition", "inner join", "join by an expression"):
        for other in (again["out"], streamed.records("out")):
            assert by_key(batch["out"]) == by_key(other)


def contents(records: list[Any]) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((r.key(), r.value()) for r in records)


def by_key(records: list[Any]) -> dict[bytes, list[bytes | None]]:
    found: dict[bytes, list[bytes | None]] = {}
    for record in records:
        if record.key() is not None:
            found.setdefault(record.key(), []).append(record.value())
    return found


VALUES: dict[str, st.SearchStrategy[tuple[Any, Any]]] = {
    "bids": st.tuples(st.integers(0, 5), st.integers(0, 300)).map(lambda b: (b[0], {"auction": b[0], "price": b[1]})),
    "doors": st.tuples(st.sampled_from("abc"), st.booleans()).map(lambda d: (d[0], {"door": d[0], "open": d[1]})),
    "lines": st.lists(st.sampled_from(["to", "be", "or"]), max_size=4).map(lambda words: (None, " ".join(words))),
    # Within the hour that they may come late: in a batch no row is.
    "flights": st.tuples(
        st.sampled_from(["AA", "KL"]),
        st.sampled_from("xyz"),
        st.none() | st.integers(-9, 200),
        st.integers(1, 3_600_000),
    ).map(lambda f: (f[0], {"id": 1, "carrier": f[0], "origin": "o", "dest": f[1], "delay": f[2], "at": f[3]})),
}


def example(path: str) -> fk.Flow:
    """A flow of its own: it is changed below."""
    spec = importlib.util.spec_from_file_location("example", EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: fk.Flow = module.flow
    return found


def all_in(flow: fk.Flow, regime: Regime) -> fk.Flow:
    for operator in flow.graph.operators:
        object.__setattr__(operator, "regime", regime)
    return flow


@pytest.mark.parametrize("path", ["auction_stats.py", "door_alarm.py", "word_count.py", "flights/flow.py"])
@settings(max_examples=3)
@given(data=st.data(), rng=Rng)
def test_each_example_as_a_batch_gives_what_it_gives_as_a_stream(
    path: str, data: st.DataObject, rng: random.Random
) -> None:
    streamed, flow = all_in(example(path), fk.EagerCheckpoint()), all_in(example(path), fk.Batch())
    (topic,) = {o.topic for o in flow.graph.operators if type(o) is op.Source}
    given = data.draw(st.lists(VALUES[topic], max_size=25))
    apps = [MemoryApp(f, {topic: 2}, tasks=2) for f in (streamed, flow)]
    for key, value in given:
        for app in apps:
            spelt = value.encode() if topic == "lines" else msgspec.json.encode(value)
            app.append(topic, None if key is None else str(key).encode(), spelt)
    apps[0].run(rng)
    written: dict[str, list[Any]] = {}
    for stage in apps[1].plan.batches:
        written |= epoch(apps[1], rng, stage=stage.id)
    for sink in (o for o in flow.graph.operators if isinstance(o, op.Sink)):
        if any(isinstance(o, op.Lookup) for o in flow.graph.upstream([sink])):
            continue  # what is found depends on when the table's rows come: tests/stream/operators/test_lookups.py
        if sink.changes:
            assert {r.key(): r.value() for r in written[sink.id]} == apps[0].latest(sink.topic)
        else:
            assert contents(written[sink.id]) == contents(apps[0].records(sink.topic))
