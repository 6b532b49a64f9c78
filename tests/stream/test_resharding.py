"""State divided among another number of tasks: the results go on as if there had been as many from the start."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.batch.test_equals_stream import FLOWS, FORMAT, JSON, Rng, contents, rows
from tests.stream.operators.registered import registered

import falkirk as fk
from falkirk.state.codec import decode_key, encode_key
from falkirk.state.entries import FARTHEST
from falkirk.state.shards import SHARDS, shard_range
from falkirk.stream import operators as op
from falkirk.stream.dataflow.event_time import Part, Times
from falkirk.stream.dataflow.task_tables import ShardSets, TimedEntries, keyed_by
from falkirk.stream.evolution.resharding import Resharding, source_times
from falkirk.stream.operators.groups.over import OLD_ENTRIES, ROWS
from falkirk.stream.operators.joins.interval_expiry import Buckets
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.memory import DictState, MemoryApp

KEYS = ("a", "b", "f")
"""One for each of three partitions."""
END = 1_200_000
"""A time after all others; also twice as late, it is not too far ahead of the clock."""


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
        s.group_by("g", fk.tumbling("at", "2s"), id="first").agg(x=fk.sum("x"), k=fk.max("k")).final()
        .select("k", "x", at="window_end").group_by("k", fk.tumbling("at", "4s"), id="second").agg(n=fk.len(), x=fk.sum("x"))
        .final(),
        ["k", "window_start"],
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
    "count windows": lambda s: (
        s.group_by("g", fk.count_window(3, every=2)).agg(n=fk.len(), x=fk.sum("x"), v=fk.collect("k")), ["g", "window_start"],
    ),
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


def flow_of(
    build: Callable[[fk.Stream], Any], regime: fk.Regime | None = None, *, timed: bool = False, exchange: bool = False
) -> fk.Flow:
    flow = fk.Flow("f", regime=regime)
    if timed:
        value = fk.Json({"k": fk.String, "g": fk.Int64, "x": fk.Int64, "at": fk.Int64, "i": fk.Int64})
        source = flow.source("in", key="k", value=value, time="at", late="500ms", repartition=exchange)
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
            "k": st.sampled_from(KEYS), "g": st.integers(0, 6), "x": st.integers(0, 9),
            "at": st.integers(0, 900),
        }
    ),
    max_size=25,
)  # fmt: skip


@pytest.mark.parametrize("name", TIMED)
@settings(max_examples=3)
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
        if name != "final windows of windows":  # its watermark stays until all new tasks before it have sent theirs
            compare(one, other, changes=changes)
        other = rescaled(other, flow, numbers[n % 4])
    end = [{"k": k, "g": 7, "x": 0, "at": END} for k in KEYS]
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


def test_the_last_row_of_each_key_goes_along() -> None:
    value = fk.Json({"g": fk.Int64, "x": fk.Int64})

    def flow() -> fk.Flow:
        made = fk.Flow("f")
        rows = made.source("in", key="g", value=value, changes="debezium")
        rows.sink("out", key="g", value=JSON)
        return made

    def changed(app: MemoryApp, numbers: range, x: int) -> None:
        for g in numbers:
            after = {"g": g, "x": x}
            app.append("in", str(g).encode(), msgspec.json.encode({"before": None, "after": after, "op": "c"}))
        app.run()

    assert any(isinstance(o, op.Latest) for s in moving(flow()) for o in s.keeping)
    one, other = steps(flow(), 2), steps(flow(), 2)
    for app in (one, other):
        changed(app, range(9), 1)
    other = rescaled(other, flow(), 5)
    for app in (one, other):
        changed(app, range(5), 2)
    assert one.latest("out") == other.latest("out")
    assert len(other.latest("out")) == 9


KEYED: dict[str, Callable[[fk.Stream], tuple[fk.Stream, Any]]] = {
    "windows": lambda s: (
        s.group_by("k", fk.hopping("at", "4s", every="2s")).agg(n=fk.len(), v=fk.n_unique("x")).final(),
        ["k", "window_start"],
    ),
    "sessions": lambda s: (s.group_by("k", fk.session("at", gap="1s")).agg(v=fk.collect("x")).final(), ["k", "window_start"]),
    "deduplicate within": lambda s: (s.deduplicate("k", within="2s", id="first"), None),
    "interval join": lambda s: (
        s.join(s.select("k", "at", y="x", j="i"), on="k", within=("-1s", "1s")).select("i", "j", "x", "y", "at"), None,
    ),
    "over a range": lambda s: (s.over("k", order_by="at", range="2s").agg(n=fk.len(), total=fk.sum("x")), "i"),
    "timers": lambda s: (s.key_by("k").process(Reminder(), id="reminder"), None),
}  # fmt: skip
"""What is done where the source is read."""


def exchanged(app: MemoryApp, flow: fk.Flow, tasks: int) -> MemoryApp:
    """The same app with all of it behind an exchange."""
    now = steps(flow, tasks)
    (was,) = app.plan.planned
    reading, made = (next(s for s in now.plan.planned if bool(s.sources) is reads) for reads in (True, False))
    behind = made.with_recorded_schema(was.id, was.state_schema)
    now.plan = replace(now.plan, stages=(reading, behind))
    assert made.id == was.id
    before = [app.states[was.id, t] for t in range(3)]
    resharding = Resharding(behind, before, tasks, by_topic=True)
    for id_, pairs in [((behind.id, t), resharding.pairs(t)) for t in range(tasks)] + [
        ((reading.id, t), source_times(reading, before[t], was.time_table)) for t in range(3)
    ]:
        found = list(pairs)
        assert len(dict(found)) == len(found)
        now.states[id_].put([k for k, _ in found], [v for _, v in found])
    now.places.update({(reading.id, t, "in"): app.places[was.id, t, "in"] for t in range(3)})
    for topic in ("in", "out"):
        now.topics[topic] = app.topics[topic]
    now.clock = app.clock
    return now


@pytest.mark.parametrize("name", KEYED)
@settings(max_examples=4)
@given(parts=st.lists(moments, min_size=2, max_size=3), tasks=st.integers(1, 6))
def test_what_is_done_where_a_source_is_read_goes_on_behind_an_exchange(
    name: str, parts: list[list[dict[str, Any]]], tasks: int
) -> None:
    flow = flow_of(KEYED[name], timed=True)
    one, other = steps(flow, 3), steps(flow, 3)
    end = [{"k": k, "g": 7, "x": 0, "at": END} for k in KEYS]
    for n, part in enumerate([*parts, end]):
        later = [{**row, "at": row["at"] * 2 + 1_000 * (n - 1)} for row in part]
        for app in (one, other):
            sent(app, later, 100 * n)
            app.run()
            settle(app)
            settle(app)
        if n == 0:
            other = exchanged(other, flow_of(KEYED[name], timed=True, exchange=True), tasks)
    (sink,) = [o for s in flow.plan().planned for o in s.operators if o.role == "sink"]
    compare(one, other, changes=sink.inputs[0].changes)


def settle(app: MemoryApp) -> None:
    """Let timers fire, and what is complete go."""
    app.clock += 100
    for stage, task in app.tasks():
        app.step(stage, task, {})
    app.run()


def named_flow(name: str) -> fk.Flow:
    return flow_of(TIMED[name], timed=True) if name in TIMED else flow_of(FLOWS[name])


def moving(flow: fk.Flow) -> list[PhysicalStage]:
    """The stages with state that can have other tasks."""
    return [s for s in flow.plan().planned if s.scales and s.keeping and all(o.divides for o in s.keeping)]


def test_every_operator_with_state_is_among_these_flows() -> None:
    tried = {type(o) for name in (*FLOWS, *TIMED) for s in moving(named_flow(name)) for o in s.keeping}
    with_state = {kind for kind in registered() if kind.stateful and kind.divides}
    assert with_state - tried == {op.Lookup, op.Latest}, "these have tests of their own here"


@pytest.mark.parametrize("name", [*FLOWS, *TIMED])
def test_a_task_has_what_its_shards_have(name: str) -> None:
    """What `Resharding` relies on: all but entries of task tables is under a shard of the task. And after the way back, what
    was divided is what it was."""
    flow = named_flow(name)
    app = steps(flow, 3)
    sent(app, [{"k": "abcdefgh"[i % 8], "g": i % 11, "x": i % 5, "f": 0.5, "at": 100 * i} for i in range(200)])
    app.run()
    for stage in moving(flow):
        named = {stage.tables[o.id, t] for o in stage.keeping for t in o.task_tables()}
        before = [app.states[stage.id, task] for task in range(3)]
        for task, state in enumerate(before):
            own = shard_range(task, 3)
            for key in state.data:
                if key[2] in named or (stage.watermarked and key[2] == stage.time_table):
                    assert key.startswith(encode_key(key[2], own.start, []))
                else:
                    assert int.from_bytes(key[:2]) in own, (stage.id, task, key)
        for tasks in (1, 2, 5):
            back = divided(stage, divided(stage, before, tasks), 3)
            assert [without_times(stage, state) for state in back] == [without_times(stage, state) for state in before]


def divided(
    stage: PhysicalStage, before: Sequence[DictState], tasks: int, others: Collection[str] = ()
) -> list[DictState]:
    """The states of so many tasks."""
    resharding, after = Resharding(stage, before, tasks, others), [DictState() for _ in range(tasks)]
    for task, state in enumerate(after):
        state.data = dict(resharding.pairs(task))
    return after


def without_times(stage: PhysicalStage, state: DictState) -> dict[bytes, bytes]:
    return {key: value for key, value in state.data.items() if not stage.watermarked or key[2] != stage.time_table}


@pytest.fixture
def middle() -> PhysicalStage:
    """A stage between two edges that tell event time."""
    return moving(named_flow("final windows of windows"))[0]


def with_times(stage: PhysicalStage, *found: Mapping[str, Times]) -> list[DictState]:
    """The states of tasks that know no more than this of their edge ("from"), and have said this ("to")."""
    edges = {"from": stage.edges_in[0].id, "to": stage.edges_out[0].id}
    states = [DictState() for _ in found]
    for task, (state, times) in enumerate(zip(states, found, strict=True)):
        first = shard_range(task, len(found)).start
        keys = [encode_key(stage.time_table, first, [kind, edges[kind]]) for kind in times]
        state.put(keys, [msgspec.msgpack.encode(one) for one in times.values()])
    return states


def times_in(stage: PhysicalStage, states: Sequence[DictState]) -> list[dict[str, Times]]:
    """What `with_times` was given."""
    found: list[dict[str, Times]] = []
    for task, state in enumerate(states):
        assert all(key[:2] == shard_range(task, len(states)).start.to_bytes(2) for key in state.data)
        decoded = {str(decode_key(key)[2][0]): value for key, value in state.data.items()}
        found.append({kind: msgspec.msgpack.decode(value, type=Times) for kind, value in decoded.items()})
    return found


def test_the_greatest_watermark_counts(middle: PhysicalStage) -> None:
    """What was complete in any of the tasks that are now one stays so. Of what they have heard from each task before them,
    the least counts. What one has not heard, is not known."""
    one = Times(
        7, [Part("", 0, 9, 1), Part("", 1, 8, 4, idle=True), Part("", 2, 9, 1, idle=True), Part("", 3, 9, 1)], 4, 20
    )
    other = Times(8, [Part("", 0, 8, 3), Part("", 1, 9, 2), Part("", 2, 9, 1, idle=True)], 3, 10)
    said = Times(6, [Part("", 0, 6, 1)])
    before = with_times(middle, {"from": one, "to": said}, {"from": other, "to": said})
    both = Times(8, [Part("", 0, 8, 3), Part("", 1, 8, 4), Part("", 2, 9, 1, idle=True)], 3, 20)
    assert times_in(middle, divided(middle, before, 1)) == [{"from": both}]
    assert times_in(middle, divided(middle, before, 3)) == [{"from": one}, {"from": both}, {"from": other}]
    (edge,) = middle.edges_in
    assert times_in(middle, divided(middle, before, 1, [edge.id])) == [{"from": Times(8, greatest=20)}]
    before = with_times(middle, {"from": one}, {})
    assert times_in(middle, divided(middle, before, 1)) == [{"from": Times(7, greatest=20)}]


def test_a_stage_that_keeps_its_tasks_keeps_its_times(middle: PhysicalStage) -> None:
    """Only what other tasks have said before is not known of those that send now."""
    known = {"from": Times(7, [Part("", 0, 9, 1)], 1, 20), "to": Times(6, [Part("", 0, 6, 1)])}
    before = with_times(middle, known, known)
    assert times_in(middle, divided(middle, before, 2)) == [known, known]
    (edge,) = middle.edges_in
    cleared = {**known, "from": Times(7, greatest=20)}
    assert times_in(middle, divided(middle, before, 2, [edge.id])) == [cleared, cleared]


def test_a_stage_that_reads_sources_stays_as_it_is() -> None:
    flow = named_flow("windows")
    app = steps(flow, 3)
    sent(app, [{"k": "abcdefgh"[i % 8], "g": i, "x": i, "at": 100 * i} for i in range(30)])
    app.run()
    (source,) = [s for s in flow.plan().planned if s.sources]
    before = [app.states[source.id, task] for task in range(3)]
    assert all(state.data for state in before)
    assert [state.data for state in divided(source, before, 3)] == [state.data for state in before]


def test_a_set_without_a_shard_of_the_task_is_left_out() -> None:
    bits = np.packbits(np.isin(np.arange(SHARDS), [3])).tobytes()
    assert ShardSets().within([(b"", bits)], range(512)) == [bits]
    assert ShardSets().within([(b"", bits)], range(512, SHARDS)) == [None]


def test_what_was_due_and_left_is_still_due() -> None:
    some = TimedEntries(OLD_ENTRIES, keyed_by(ROWS))
    assert [some.mark(marks) for marks in ([None, None], [None, b""], [b"", None])] == [None, b"", b""]


@pytest.mark.parametrize(
    ("marks", "wanted"),
    [
        ([None, None], None), ([(3, False), (5, False)], (3, False)), ([(5, False), (3, False)], (3, False)),
        ([(3, True), (5, False)], (3, True)), ([(5, False), (3, True)], (3, True)), ([None, (5, False)], None),
        ([(5, True), None], (-FARTHEST, True)),
    ],
)  # fmt: skip
def test_buckets_begin_with_the_first_that_any_task_has(
    marks: list[tuple[int, bool] | None], wanted: tuple[int, bool] | None
) -> None:
    found = Buckets().mark([None if mark is None else struct.pack("<q?", *mark) for mark in marks])
    assert found == (None if wanted is None else struct.pack("<q?", *wanted))


def test_that_a_migration_is_done_is_known_in_each_task(middle: PhysicalStage) -> None:
    stage = replace(middle, state_schema=f">90: a v1\n{middle.state_schema}")
    before = [DictState(), DictState()]
    for task, state in enumerate(before):
        state.put([encode_key(90, shard_range(task, 2).start, [])], [b""])
    for tasks in (1, 2, 3):
        keys = [[*state.data] for state in divided(stage, before, tasks)]
        assert keys == [[encode_key(90, shard_range(task, tasks).start, [])] for task in range(tasks)]
