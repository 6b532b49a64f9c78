"""A backfill is what the stream would have left behind: the same state of each task, the same table or records in sinks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.backfill.in_memory import Backfill, backfill

import falkirk as fk
from falkirk.stream.access.producing import sources_of
from falkirk.stream.backfill import History
from falkirk.stream.backfill import job as jobs
from falkirk.stream.backfill.past import columns_read
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.memory import MemoryApp

FORMAT = fk.Json({"k": fk.String, "g": fk.Int64, "x": fk.Int64})
JSON = fk.Json()

rows = st.lists(
    st.fixed_dictionaries(
        {"k": st.sampled_from(["a", "b", "c", "ü"]), "g": st.integers(0, 2), "x": st.integers(-1000, 1000)}
    )
    | st.just({"k": "bad", "g": "no number", "x": 1}),
    max_size=30,
)


def is_good(row: dict[str, Any]) -> bool:
    """It decodes: a dead letter would tell where it was."""
    return isinstance(row["g"], int)


class Running(fk.Process):
    """A running total of each key; a timer that is long due, once rows have been seen, and one that is not."""

    state = {"total": int}  # noqa: RUF012
    returns = {"k": str, "x": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        total = (key.get() or {"total": 0})["total"] + row["x"]
        key.put({"total": total})
        key.set_timer(datetime(2200, 1, 1, tzinfo=UTC), "later")
        yield {"k": row["k"], "x": total}


def counted(s: fk.Stream) -> fk.Stream:
    return s.group_by("k", id="by-k").agg(n=fk.len(), lo=fk.min("x"), hi=fk.max("x"))


FLOWS: dict[str, Callable[[fk.Stream, fk.Stream], list[tuple[Any, Any]]]] = {
    "count": lambda s, t: [(counted(s), "k"), (counted2(t), "g")],
    "append-only": lambda s, t: [(s.filter(fk.col("x") > 0), "k"), (t.select("g", "x"), None)],
    "group of group": lambda s, t: [
        (
            s.group_by("k", id="in").agg(g=fk.max("g"), x=fk.sum("x")).filter(fk.col("g") < 2)
            .group_by("g", id="out").agg(n=fk.len(), x=fk.sum("x"), hi=fk.max("x")),
            "g",
        ),
        (t, "k"),
    ],
    "process": lambda s, t: [
        (s.key_by("k").process(Running(), id="running"), "k"),
        (t.key_by("g").process(Running2(), id="again"), "g"),
    ],
    "count windows": lambda s, t: [
        (s.group_by("k", fk.count_window(3, every=2), id="w").agg(n=fk.len(), x=fk.sum("x")), ["k", "window_start"]),
        (t, "k"),
    ],
    "repartition": lambda s, t: [(s.repartition("g").select("g", "x"), "g"), (counted2(t.repartition("g")), "g")],
    "two sources in one stage": lambda s, t: [(counted(s.concat(t)), "k")],
    "source and edge in one stage": lambda s, t: [
        (s.concat(t.map(lambda row: {**row, "k": row["k"] * 2}).repartition("k")).select("k", "x"), "k"),
    ],
    "one topic, two stages": lambda s, t: [
        (counted(s), "k"), (counted2(s), "g"), (t, "k"),
    ],
    "three levels": lambda s, t: [
        (
            s.group_by("g", id="1").agg(x=fk.sum("x"), n=fk.len()).group_by("n", id="2").agg(x=fk.max("x"), m=fk.len())
            .group_by("m", id="3").agg(x=fk.max("x")),
            "m",
        ),
        (t, "k"),
    ],
    "two regimes": lambda s, t: [
        (counted(s.with_regime(fk.LazyCheckpoint())), "k"),
        (counted2(t), "g"),
    ],
}  # fmt: skip


class Running2(Running):
    returns = {"g": int, "x": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        for out in super().on_row(row, key):
            yield {"g": row["g"], "x": out["x"]}


def counted2(s: fk.Stream) -> fk.Stream:
    return s.group_by("g", id="by-g").agg(n=fk.len(), lo=fk.min("x"), last=fk.max("k"))


def app_of(name: str, given: list[dict[str, Any]], more: list[dict[str, Any]], **source: Any) -> MemoryApp:
    flow = fk.Flow("f")
    source |= {"key": "k", "value": FORMAT}
    outs = FLOWS[name](flow.source("in", **source), flow.source("also", **source))
    for i, (out, key) in enumerate(outs):
        out.sink(f"out{i}", key=key, value=JSON)
    app = MemoryApp(flow, {"in": 3, "also": 3, "out0": 2, "out1": 2}, tasks=2)
    for topic, those in (("in", given), ("also", more)):
        for i, row in enumerate(those):
            app.append(topic, row["k"].encode(), msgspec.json.encode(row), timestamp=i)
    return app


def check(app: MemoryApp, made: Backfill) -> None:
    """`app` has streamed what `made` is of."""
    tasks = {f"{stage.id}/{p}" for stage, p in app.tasks() if stage.stateful}
    assert made.bases.keys() == tasks, "each task with state has a base, though nothing came"
    for stage, p in app.tasks():
        if stage.stateful:
            assert made.states[f"{stage.id}/{p}"] == app.states[stage.id, p].data, f"{stage.id}/{p}"
    for output in made.job.stage.outputs:
        found = [(r.key(), r.value()) for r in made.written[output.id]]
        sink = next((s for s in made.job.stage.sinks if s.id == output.id), None)
        if sink is not None and sink.changes:
            assert dict(found) == app.latest(output.topic), output.id
            assert len(dict(found)) == len(found)
        else:
            assert Counter(found) == Counter((r.key(), r.value()) for r in app.records(output.topic)), output.id
            for key in {key for key, _ in found} if sink is not None and sink.key is not None else ():
                mine = [v for k, v in found if k == key]
                if len(made.job.stage.sinks) == len(app.plan.stages):  # one sender: its order is the sink's
                    assert sorted(mine) == sorted(r.value() for r in app.records(output.topic) if r.key() == key)


@pytest.mark.parametrize("cut", [2, 250_000])
@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=3)
@given(given=rows, more=rows, rng=st.randoms(use_true_random=False))
def test_state_and_sinks_are_those_of_the_stream(
    name: str, cut: int, given: list[dict[str, Any]], more: list[dict[str, Any]], rng: random.Random
) -> None:
    app = app_of(name, given, more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "ROWS", cut)
        patch.setattr(jobs, "HELD", cut)
        patch.setattr(jobs, "SIZE", 300 if cut == 2 else jobs.SIZE)
        made = backfill(app, rng)
    app.run()
    check(app, made)


@pytest.mark.parametrize("name", ["count", "group of group", "process", "two sources in one stage"])
@given(given=rows, more=rows, rng=st.randoms(use_true_random=False))
@settings(max_examples=3)
def test_streaming_goes_on_from_a_base_as_if_it_had_streamed_all_along(
    name: str, given: list[dict[str, Any]], more: list[dict[str, Any]], rng: random.Random
) -> None:
    """A base, then the rest in steps = everything in steps."""
    streamed, resumed = app_of(name, given + more, more), app_of(name, given, more)
    made = backfill(resumed)
    for stage, p in resumed.tasks():
        if stage.stateful:
            resumed.states[stage.id, p].data |= made.states[f"{stage.id}/{p}"]
        for i in stage.inputs:
            if i.kind == "source":
                resumed.places[stage.id, p, i.id] = len(resumed.topics[i.topic][p])
    for output in made.job.stage.outputs:
        for r in made.written[output.id]:
            resumed.append(output.topic, r.key(), r.value(), timestamp=r.millis)
    for i, row in enumerate(more):
        resumed.append("in", row["k"].encode(), msgspec.json.encode(row), timestamp=len(given) + i)
    streamed.run()
    resumed.run(rng)
    for stage, p in streamed.tasks():
        assert resumed.states[stage.id, p].data == streamed.states[stage.id, p].data
    for sink in made.job.stage.sinks:
        if sink.changes:
            assert resumed.latest(sink.topic) == streamed.latest(sink.topic)


@pytest.mark.parametrize("by", [{"metadata": ["timestamp"]}, {"time": "x"}])
@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=3)
@given(given=rows, more=rows, rng=st.randoms(use_true_random=False))
def test_a_table_stands_for_the_beginnings_of_sources(
    name: str, by: dict[str, Any], given: list[dict[str, Any]], more: list[dict[str, Any]], rng: random.Random
) -> None:
    """A table, and the records that follow = all records, in the order of their times."""
    first = int("time" in by)  # 0 is no time
    given = [{**row, "x": i} for i, row in enumerate(filter(is_good, given), first)]
    more = [{**row, "x": i} for i, row in enumerate(filter(is_good, more), first + len(given))]
    streamed, resumed = app_of(name, given + more, more, **by), app_of(name, [], more, **by)
    for i, row in enumerate(more, len(given)):
        resumed.append("in", row["k"].encode(), msgspec.json.encode(row), timestamp=i)
    table = pl.DataFrame(given, schema={"k": pl.String, "g": pl.Int64, "x": pl.Int64})
    table = table.with_columns(timestamp=pl.from_epoch("x", "ms").dt.replace_time_zone("UTC"), beside=pl.lit(7))
    table = table.sample(fraction=1.0, shuffle=True, seed=rng.randrange(100))
    there = columns_read(sources_of(resumed.plan)["in"], table.columns, "here")
    made = backfill(resumed, rng, histories={"in": table.select(there)})
    streamed.run()
    check(streamed, made)


def test_rows_of_one_time_are_read_in_one_order_however_they_come() -> None:
    class Listed(fk.Process):
        state = {"seen": str}  # noqa: RUF012
        returns = {"k": str, "seen": str}  # noqa: RUF012

        def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> dict[str, Any]:
            seen = (key.get() or {"seen": ""})["seen"] + f" {row['x']}"
            key.put({"seen": seen})
            return {"k": row["k"], "seen": seen}

    def seen(rows: pl.DataFrame) -> bytes | None:
        flow = fk.Flow("f")
        keyed = flow.source("in", key="k", value=FORMAT).key_by("k")
        keyed.process(Listed(), id="listed").sink("out", key="k", value=JSON)
        return backfill(MemoryApp(flow), histories={"in": rows}).written["out"][-1].value()

    rows = pl.DataFrame({"k": "a", "g": 1, "x": [1, 2, 3, 4, 4]})
    assert len({seen(rows.sample(fraction=1.0, shuffle=True, seed=seed)) for seed in range(10)}) == 1


@pytest.mark.parametrize("exchanged", [False, True])
def test_tables_are_read_before_what_is_looked_up_in_them(exchanged: bool) -> None:
    flow = fk.Flow("f")
    rows = flow.source("in", key="k", value=FORMAT)
    if exchanged:
        grouped = rows.group_by("g", id="of-g").agg(n=fk.len())
        looked, key = rows.repartition("g").lookup(flow.table(grouped, key="g"), on="g", id="found"), "k"
    else:
        names = flow.table("names", key="k", value=fk.Json({"k": fk.String, "name": fk.String}))
        looked, key = rows.lookup(names, id="found").select("k", n="name"), "k"
    looked.sink("out", key=key, value=JSON)
    app = MemoryApp(flow, {"in": 3, "names": 3}, tasks=2)
    for k in ("a", "b", "c"):
        app.append("in", k.encode(), msgspec.json.encode({"k": k, "g": 1, "x": 0}))
        if not exchanged:
            app.append("names", k.encode(), msgspec.json.encode({"k": k, "name": k * 2}))
    found = [msgspec.json.decode(r.value() or b"")["n"] for r in backfill(app).written["out"]]
    assert sorted(found) == ([3, 3, 3] if exchanged else ["aa", "bb", "cc"])


def test_timers_that_are_due_fire_and_others_wait() -> None:
    class Late(fk.Process):
        state = {"n": int}  # noqa: RUF012
        returns = {"k": str, "x": int}  # noqa: RUF012

        def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
            key.put({"n": row["x"]})
            key.set_timer(timedelta(seconds=row["x"]), "due")

        def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> dict[str, Any]:
            state = key.get()
            assert state is not None
            key.delete()
            return {"k": key.key[0], "x": state["n"]}

    flow = fk.Flow("f")
    flow.source("in", key="k", value=FORMAT).key_by("k").process(Late(), id="late").sink("out", key="k", value=JSON)
    app = MemoryApp(flow)
    for k, x in (("a", -5), ("b", 5)):
        app.append("in", k.encode(), msgspec.json.encode({"k": k, "g": 0, "x": x}))
    made = backfill(app, clock=1_000)
    assert [r.key() for r in made.written["out"]] == [b"a"]
    assert len(made.states["late/0"]) >= 2, "the key that waits, and its timer"


def test_a_table_goes_to_the_tasks_that_share_the_partitions_of_its_source() -> None:
    flow = fk.Flow("f")
    few, many = flow.source("few", key="k", value=FORMAT), flow.source("many", value=FORMAT)
    few.concat(many).sink("out", value=JSON)
    stage = backfill_stage(flow.plan(), [History("many", "memory", "many")])
    job = jobs.BackfillJob(stage, Layout({"few": 2, "many": 7}), {(0, 0): [], (0, 1): []}, 0, 0, 1)
    rows = pl.DataFrame(
        {"k": ["a"] * 50, "g": range(50), "x": [0] * 50}, schema_overrides={"g": pl.Int64, "x": pl.Int64}
    )
    assert {task for frame in job.past("many", rows) for task in frame["bucket"]} == {0, 1}
