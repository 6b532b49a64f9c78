"""A backfill of a flow with watermarks is the stream whose steps all have the backfill's clock: no partition becomes idle,
and whether a row is late follows from its own partition alone, in whatever order partitions and senders are read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.backfill.in_memory import Backfill, backfill

import falkirk as fk
from falkirk.stream.backfill import job as jobs
from falkirk.testing.memory import MemoryApp

FORMAT = fk.Json({"k": fk.String, "g": fk.Int64, "at": fk.Int64})
JSON = fk.Json()
CLOCK = 1_000_000
PARTITIONS = {"in": 3, "also": 3, "out0": 2, "out1": 2}

Row = dict[str, Any]
Outs = list[tuple[Any, Any]]

row = st.fixed_dictionaries({"k": st.sampled_from("abcü"), "g": st.integers(0, 2), "at": st.integers(1, 99)})
rows = st.lists(row, max_size=40)


def windows(s: fk.Stream, by: str, window: Any) -> Outs:
    made = s.group_by(by, window, id="w").agg(n=fk.len(), least=fk.min("at"))
    return [(made, [by, "window_start"]), (made.final(), None)]


def nested(s: fk.Stream) -> fk.Stream:
    inner = s.group_by("k", fk.tumbling("at", "5ms"), id="inner").agg(n=fk.len()).final(time="window_start")
    return (
        inner.select("k", "n", begin="window_start")
        .group_by("n", fk.tumbling("begin", "20ms"), id="outer")
        .agg(m=fk.len())
    )


def near(s: fk.Stream, t: fk.Stream, on: str, **more: Any) -> fk.Stream:
    other = t.select(on, at="at", there="k" if on == "g" else "g")
    return s.join(other, on=on, within=("-3ms", "5ms"), id="near", **more)


FLOWS: dict[str, Callable[[fk.Stream, fk.Stream], Outs]] = {
    "late rows": lambda s, t: [(s.late, None), (t.late, None)],
    "tumbling": lambda s, t: windows(s, "k", fk.tumbling("at", "10ms")),
    "hopping": lambda s, t: windows(s, "k", fk.hopping("at", "20ms", every="5ms")),
    "session": lambda s, t: windows(s, "k", fk.session("at", gap="5ms")),
    "behind an exchange": lambda s, t: windows(s, "g", fk.tumbling("at", "10ms")),
    "two sources behind an exchange": lambda s, t: windows(s.concat(t), "g", fk.tumbling("at", "10ms")),
    "windows of windows": lambda s, t: [(nested(s), ["n", "window_start"])],
    "interval join": lambda s, t: [(near(s, t, "k"), None)],
    "left interval join": lambda s, t: [
        (near(s, t, "k", how="left").group_by("k", id="c").agg(n=fk.len(), x=fk.sum("there")), "k")
    ],
    "interval join behind an exchange": lambda s, t: [(near(s, t, "g"), None)],
    "as-of join": lambda s, t: [
        (
            s.join_asof(t.select("k", "at", there="g"), by="k", tolerance="9ms", id="a")
            .group_by("k", id="c")
            .agg(n=fk.len()),
            "k",
        )
    ],
    "deduplicate": lambda s, t: [(s.deduplicate("k", within="10ms", id="d"), None)],
    "over": lambda s, t: [
        (
            s.over("k", order_by="at", range="9ms", id="o").agg(x=fk.sum("g")).group_by("k", id="c").agg(x=fk.sum("x")),
            "k",
        )
    ],
}
ORDER_OF_SENDERS = {"interval join behind an exchange"}
"""Rows of one key and time come from several senders, and lie in the state in the order in which they came. Nothing else
tells this order."""


def app_of(name: str, given: list[Row], more: list[Row], idle: str | None = None) -> MemoryApp:
    flow = fk.Flow("f")
    s, t = (flow.source(topic, key="k", value=FORMAT, time="at", late="10ms", idle=idle) for topic in ("in", "also"))
    for i, (out, key) in enumerate([*FLOWS[name](s, t), (t.select("k"), "k"), (s.select("k"), "k")]):
        out.sink(f"out{i}", key=key, value=JSON)
    app = MemoryApp(flow, PARTITIONS, tasks=2)
    app.clock = CLOCK
    send(app, "in", given)
    send(app, "also", more)
    return app


def send(app: MemoryApp, topic: str, some: list[Row]) -> None:
    for each in some:
        app.append(topic, each["k"].encode(), msgspec.json.encode(each), timestamp=1)


def assert_told(app: MemoryApp, made: Backfill, *, sinks: dict[str, list[Any]]) -> None:
    for sink in made.job.stage.sinks:
        found = sinks[sink.id]
        if sink.changes:
            assert dict(found) == app.latest(sink.topic), sink.id
        else:
            assert Counter(found) == Counter((r.key(), r.value()) for r in app.records(sink.topic)), sink.id


def assert_states(app: MemoryApp, states: dict[str, dict[bytes, bytes]]) -> None:
    for stage, p in app.tasks():
        if stage.stateful:
            assert states[f"{stage.id}/{p}"] == app.states[stage.id, p].data, f"{stage.id}/{p}"


@pytest.mark.parametrize("idle", [None, "1ms"])
@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=3)
@given(given=rows, more=rows, rng=st.randoms(use_true_random=False))
def test_state_and_sinks_are_those_of_the_stream(
    name: str, idle: str | None, given: list[Row], more: list[Row], rng: random.Random
) -> None:
    app = app_of(name, given, more, idle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "ROWS", 2)
        patch.setattr(jobs, "HELD", 2)
        patch.setattr(jobs, "SIZE", 300)
        made = backfill(app, rng, clock=CLOCK)
    app.run(rng, tick=0)
    if name not in ORDER_OF_SENDERS:
        assert_states(app, made.states)
    assert_told(app, made, sinks={o: [(r.key(), r.value()) for r in rs] for o, rs in made.written.items()})


@pytest.mark.parametrize("name", ["late rows", "tumbling", "session", "behind an exchange", "windows of windows"])
@settings(max_examples=3)
@given(given=rows, more=rows, rng=st.randoms(use_true_random=False))
def test_streaming_goes_on_from_a_base_as_if_it_had_streamed_all_along(
    name: str, given: list[Row], more: list[Row], rng: random.Random
) -> None:
    """A row behind the base is late by what the base holds of its partition, and no window is final twice, or never."""
    streamed, resumed = app_of(name, given, more), app_of(name, given, more)
    streamed.run(tick=0)
    made = backfill(resumed, clock=CLOCK)
    for stage, p in resumed.tasks():
        if stage.stateful:
            resumed.states[stage.id, p].data |= made.states[f"{stage.id}/{p}"]
        for i in stage.inputs:
            if i.kind == "source":
                resumed.places[stage.id, p, i.id] = len(resumed.topics[i.topic][p])
    for output in made.job.stage.outputs:
        for r in made.written[output.id]:
            resumed.append(output.topic, r.key(), r.value(), timestamp=r.millis)
    for app in (streamed, resumed):
        send(app, "in", more)
        send(app, "also", given)
        app.run(rng, tick=0)
    assert_states(streamed, {f"{stage.id}/{p}": resumed.states[stage.id, p].data for stage, p in resumed.tasks()})
    # How the rows are divided into steps decides whether a session was shown before another joined it.
    sinks = {
        s.id: [*resumed.latest(s.topic).items()]
        if s.changes
        else [(r.key(), r.value()) for r in resumed.records(s.topic)]
        for s in made.job.stage.sinks
    }
    assert_told(streamed, made, sinks=sinks)


def test_of_many_partitions_none_makes_rows_of_another_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is read after the other: were the first alone in the watermark, all rows of the next would be late."""
    flow = fk.Flow("f")
    s = flow.source("in", value=FORMAT, time="at", late="10ms")
    s.late.sink("late", value=JSON)
    counted = s.group_by("g", fk.tumbling("at", "100ms"), id="w").agg(n=fk.len())
    counted.final().sink("final", value=JSON)
    app = MemoryApp(flow, {"in": 4})
    for p in range(4):
        for at in (1, 50, 99, 250, 20):
            value = msgspec.json.encode({"k": "a", "g": 0, "at": at})
            app.append("in", None, value, partition=p)
    monkeypatch.setattr(jobs, "SIZE", 1)
    made = backfill(app, clock=CLOCK)
    assert len(made.written["late"]) == 4
    assert [msgspec.json.decode(r.value() or b"")["n"] for r in made.written["final"]] == [3 * 4]
