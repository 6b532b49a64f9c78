"""State divided among another number of tasks: the results go on as if there had been as many from the start."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.batch.test_equals_stream import FLOWS, FORMAT, JSON, Rng, contents, rows

import falkirk as fk
from falkirk.state.codec import encode_key
from falkirk.state.shards import shard_range
from falkirk.stream.evolution.resharding import Resharding
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.memory import MemoryApp

HOUR = 3_600_000


class Reminder(fk.Process):
    """A timer for each row, which says how many rows its key has had."""

    state = {"k": str, "n": int}  # noqa: RUF012
    returns = {"k": str, "n": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
        key.put({"k": row["k"], "n": (key.get() or {"n": 0})["n"] + 1})
        key.set_timer(timedelta(milliseconds=40 + len(row["k"])), "soon")

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Any:
        yield key.get()


TIMED: dict[str, Callable[[fk.Stream], tuple[fk.Stream, Any]]] = {
    "windows": lambda s: (
        s.group_by("g", fk.hopping("at", "4s", every="2s")).agg(n=fk.len(), x=fk.sum("x"), v=fk.n_unique("k")),
        ["g", "window_start"],
    ),
    "final windows": lambda s: (
        s.group_by("g", fk.tumbling("at", "3s")).agg(n=fk.len(), x=fk.sum("x")).final(), ["g", "window_start"],
    ),
    "final windows of windows": lambda s: (
        s.group_by("k", fk.tumbling("at", "2s"), id="in").agg(x=fk.sum("x"), g=fk.max("g")).final()
        .select("g", "x", at="window_end").group_by("g", fk.tumbling("at", "4s"), id="out").agg(n=fk.len(), x=fk.sum("x"))
        .final(),
        ["g", "window_start"],
    ),
    "sessions": lambda s: (
        s.group_by("g", fk.session("at", gap="1s")).agg(n=fk.len(), v=fk.collect("k")), ["g", "window_start"],
    ),
    "final sessions": lambda s: (
        s.group_by("g", fk.session("at", gap="1s")).agg(n=fk.len(), x=fk.sum("x")).final(), ["g", "window_start"],
    ),
    "deduplicate within": lambda s: (s.deduplicate(["g"], within="2s"), None),
    "interval join": lambda s: (
        s.join(s.select("g", "at", y="x", j="i"), on="g", within=("-1s", "1s")).select("i", "j", "x", "y", "at"), None,
    ),
    "as-of join with a watermark": lambda s: (
        s.join_asof(s.select("g", "at", y="x"), by="g", tolerance="2s").select("g", "i", "x", "y", "at"), ["g", "i"],
    ),
    "forward as-of join with a watermark": lambda s: (
        s.join_asof(s.select("g", "at", y="x"), by="g", strategy="forward", tolerance="2s")
        .select("g", "i", "x", "y", "at"), ["g", "i"],
    ),
    "over a range": lambda s: (
        s.over("g", order_by="at", range="2s").agg(n=fk.len(), total=fk.sum("x")), "i",
    ),
    "timers": lambda s: (s.key_by("g", "k").process(Reminder(), id="reminder"), None),
}  # fmt: skip


def steps(flow: fk.Flow, tasks: int) -> MemoryApp:
    return MemoryApp(flow, {"in": 3, "out": 2}, tasks=tasks)


def rescaled(app: MemoryApp, flow: fk.Flow, tasks: int) -> MemoryApp:
    """The same app with so many tasks behind its exchanges."""
    now = steps(flow, tasks)
    for stage in now.plan.stages:
        assert isinstance(stage, PhysicalStage)
    sizes = {s.id: [t for other, t in app.tasks() if other.id == s.id] for s in app.plan.stages}
    after = {s.id: [t for other, t in now.tasks() if other.id == s.id] for s in now.plan.stages}
    writers = {o.topic: s.id for s in app.plan.stages for o in s.outputs if o.kind == "edge"}
    for stage in now.plan.planned:
        others = [e.id for e in stage.edges_in if len(sizes[writers[e.topic]]) != len(after[writers[e.topic]])]
        resharding = Resharding(stage, [app.states[stage.id, t] for t in sizes[stage.id]], len(after[stage.id]), others)
        for task in after[stage.id]:
            pairs = list(resharding.pairs(task))
            assert len(dict(pairs)) == len(pairs), "each key comes once"
            now.states[stage.id, task].put([k for k, _ in pairs], [v for _, v in pairs])
    read = {i.topic for s in app.plan.stages for i in s.inputs if i.kind == "edge"}
    for topic in app.topics.keys() - read:
        now.topics[topic] = app.topics[topic]
    now.places.update({(s, t, i): at for (s, t, i), at in app.places.items() if i in ("in", "names")})
    now.clock = app.clock
    return now


def sent(app: MemoryApp, given: list[dict[str, Any]], first: int = 0) -> None:
    for i, row in enumerate(given, first):
        app.append("in", row["k"].encode(), msgspec.json.encode({**row, "i": i}), timestamp=i)


def flow_of(build: Callable[[fk.Stream], Any], regime: fk.Regime | None = None, *, timed: bool = False) -> fk.Flow:
    flow = fk.Flow("f", regime=regime)
    if timed:
        value = fk.Json({"k": fk.String, "g": fk.Int64, "x": fk.Int64, "at": fk.Int64, "i": fk.Int64})
        source = flow.source("in", key="k", value=value, time="at", late="500ms")
    else:
        source = flow.source("in", key="k", value=FORMAT)
    out, key, *more = build(source)
    out.sink("out", key=key, value=JSON, **(more[0] if more else {}))
    return flow


def undivided(flow: fk.Flow) -> bool:
    """Whether a stage that moves keeps what belongs to its tasks."""
    return any(not o.divides for s in flow.plan().planned for o in s.keeping if not s.sources)


def compare(one: MemoryApp, other: MemoryApp, *, changes: bool) -> None:
    if changes:
        assert one.latest("out") == other.latest("out")
    else:
        assert contents(one.records("out")) == contents(other.records("out"))


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=2)
@given(given=rows, more=rows, rng=Rng, numbers=st.tuples(*[st.integers(1, 5)] * 3))
def test_each_operator_goes_on(
    name: str, given: list[dict[str, Any]], more: list[dict[str, Any]], rng: random.Random, numbers: tuple[int, ...]
) -> None:
    flow = flow_of(FLOWS[name])
    if undivided(flow):
        return
    whole = steps(flow, 2)
    parts = steps(flow, numbers[0])
    for app in (whole, parts):
        sent(app, given)
        app.run()
    parts = rescaled(rescaled(parts, flow, numbers[1]), flow, numbers[2])
    for app in (whole, parts):
        sent(app, more, len(given))
        app.run()
    (sink,) = [o for s in flow.plan().planned for o in s.operators if o.role == "sink"]
    compare(whole, parts, changes=sink.inputs[0].changes)


moments = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "c"]), "g": st.integers(0, 6), "x": st.integers(0, 9),
            "at": st.integers(0, 900),
        }
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.parametrize("name", TIMED)
@settings(max_examples=4)
@given(parts=st.lists(moments, min_size=2, max_size=4), numbers=st.lists(st.integers(1, 6), min_size=4, max_size=4))
def test_event_time_goes_on(name: str, parts: list[list[dict[str, Any]]], numbers: list[int]) -> None:
    """Each part is a second later than the one before, so that rows are late and windows complete in between."""
    flow = flow_of(TIMED[name], timed=True)
    one, other = steps(flow, 3), steps(flow, numbers[0])
    (sink,) = [o for s in flow.plan().planned for o in s.operators if o.role == "sink"]
    changes = sink.inputs[0].changes and "final" not in name
    for n, part in enumerate(parts):
        later = [{**row, "at": row["at"] * 2 + 1_000 * (n - 1)} for row in part]
        for app in (one, other):
            sent(app, later, 100 * n)
            app.run()
            settle(app)
        if (
            name != "final windows of windows"
        ):  # behind two exchanges, a watermark stays until all new tasks have sent theirs
            compare(one, other, changes=changes)
        other = rescaled(other, flow, numbers[n % 4])
    end = [{"k": k, "g": 7, "x": 0, "at": HOUR} for k in "abc"]
    for app in (one, other):
        sent(app, end, 1_000)
        app.run()
        settle(app)
    compare(one, other, changes=changes)


def test_a_table_that_is_looked_up_goes_along() -> None:
    def flow() -> fk.Flow:
        made = fk.Flow("f")
        names = made.table("names", key="g", value=fk.Json({"g": fk.Int64, "name": fk.String}))
        source = made.source("in", key="k", value=FORMAT)
        source.lookup(names, on="g").sink("out", key="k", value=JSON)
        return made

    def named(app: MemoryApp, numbers: range, word: str) -> None:
        for g in numbers:
            app.append("names", str(g).encode(), msgspec.json.encode({"g": g, "name": f"{word} {g}"}))
        app.run()

    one, other = steps(flow(), 2), steps(flow(), 2)
    for app in (one, other):
        named(app, range(9), "first")
    other = rescaled(other, flow(), 5)
    for app in (one, other):
        named(app, range(3), "second")
        sent(app, [{"k": "abc"[g % 3], "g": g, "x": g, "f": 0.5} for g in range(9)])
        app.run()
    compare(one, other, changes=False)
    assert {msgspec.json.decode(r.value())["name"].split()[0] for r in other.records("out")} == {"first", "second"}


def settle(app: MemoryApp) -> None:
    """Let timers fire, and what is complete go."""
    app.clock += 100
    for stage, task in app.tasks():
        app.step(stage, task, {})
    app.run()


@pytest.mark.parametrize("name", [*FLOWS, *TIMED])
def test_a_task_has_the_keys_of_its_shards(name: str) -> None:
    """What `Resharding` relies on: all but entries of task tables is under a shard of the task."""
    flow = flow_of(TIMED[name], timed=True) if name in TIMED else flow_of(FLOWS[name])
    app = steps(flow, 3)
    sent(app, [{"k": "abcdefgh"[i % 8], "g": i % 11, "x": i % 5, "f": 0.5, "at": 100 * i} for i in range(200)])
    app.run()
    for (id_, task), state in app.states.items():
        (stage,) = [s for s in app.plan.planned if s.id == id_]
        if stage.sources or any(e.key is None for e in stage.edges_in):
            continue
        own = shard_range(task, 3)
        named = {stage.tables[o.id, t] for o in stage.keeping for t in o.task_tables()}
        named |= {stage.time_table} if stage.watermarked else set()
        for key in state.data:
            if key[2] in named:
                assert key.startswith(encode_key(key[2], own.start, []))
            elif all(o.divides for o in stage.keeping):
                assert int.from_bytes(key[:2]) in own, (stage.id, task, key)
