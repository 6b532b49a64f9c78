"""What is rebuilt beside the version that runs: the same state, and the same words at the switch, as if it were rebuilt in
place; and less to read there."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.stream.test_rebuilding import (
    MORE,
    PAID,
    REGIMES,
    ROWS,
    USERS,
    alarms,
    assert_the_same,
    fresh,
    steps_of,
    sums,
)

import falkirk as fk
from falkirk.checkpoint.ids import Millis, Offset, TopicPartition
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.errors import ConfigError, StateError
from falkirk.runtime.app.app import Until
from falkirk.runtime.layout.layout import ShadowRecord
from falkirk.runtime.worker.reading import second_reading
from falkirk.state import schema
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.evolution import rebuilding
from falkirk.stream.evolution.shadow import ShadowStage
from falkirk.stream.stages.plan import Plan
from falkirk.testing import cluster
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending, Process

CHANGELOG = "falkirk.app.rebuild.changelog"


def shadow_stage(app: fk.testing.App, flow: fk.Flow, rebuild: str) -> ShadowStage:
    """What would rebuild an operator beside the app."""
    return app._cluster.shadow_stage(flow.plan(), rebuild)


def shadow(app: fk.testing.App, flow: fk.Flow, rebuild: str, seed: int = 0) -> None:
    """Rebuild an operator beside the app, from what it has read so far, in steps of any size; the next change of the flow
    begins with it."""
    dice, stage = random.Random(seed), shadow_stage(app, flow, rebuild)
    tasks = [b for b in app._cluster.tasks if b.stage.id == stage.id]
    app._cluster.broker.create(CHANGELOG, len(tasks))
    for bound in tasks:
        p = bound.task.id.partition
        circuit = stage.circuit(p, Layout(app._cluster.counts))
        state: Overlay = Overlay(EmptyReader())
        log = app._cluster.broker[TopicPartition(CHANGELOG, p)]
        read = app._cluster.read(TopicPartition("paid", p), 0)
        assert not stage.evolution(circuit).moving(state)
        while read:
            some, read = read[: (n := dice.randint(1, 5))], read[n:]
            step = Overlay(state)
            out = circuit.run(StepInput(app._cluster.clock, [Slice("paid", "paid", p, Records.of(some))]), step)
            assert (out.emitted, out.wake_at) == ([], None)
            for key, value in step.changes.items():
                log.append(key, value, 0, None)
            state.put(list(step.changes), list(step.changes.values()))
    ends = tuple(app._cluster.broker[TopicPartition(CHANGELOG, p)].end for p in range(len(tasks)))
    app._cluster.shadows = {stage.id: ShadowRecord(CHANGELOG, "id", ends)}


def read_again(app: fk.testing.App) -> int:
    """How many records the steps of rebuilds have read."""
    steps = [r.move for records in steps_of(app).values() for r in records if r.move is not None]
    return sum(r.end - r.start for move in steps for r in move.again)


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "ROWS_A_STEP", 3)
    monkeypatch.setattr(second_reading, "FIRST", 4)
    monkeypatch.setattr(second_reading, "MOST_RECORDS", 4)
    monkeypatch.setattr(cluster, "CHUNK", 3)


@pytest.mark.parametrize("seed", range(5))
def test_only_what_came_since_is_read_in_place(seed: int) -> None:
    app, other = fresh(sums(1, 10), ROWS), fresh(sums(1, 10), ROWS)
    shadow(app, sums(2, 4), "sums", seed)
    for one in (app, other):
        one.send("paid", MORE)
        one.run()
    app.change(sums(2, 4), rebuild=["sums"])
    app.run()
    assert read_again(app) == len(MORE)
    other.change(sums(2, 4), rebuild=["sums"])
    other.run()
    assert read_again(other) == len(ROWS) + len(MORE)
    assert [r.value for r in app.sinks["sums"].records] == [r.value for r in other.sinks["sums"].records]
    assert app.state("sums").sort("user").equals(other.state("sums").sort("user"))
    whole = fresh(sums(2, 4), ROWS, MORE, MORE)
    app.send("paid", MORE)
    app.run()
    assert app.sinks["sums"].table == whole.sinks["sums"].table
    assert app.sinks["plain"].table == whole.sinks["plain"].table
    app.crash(host=True)
    assert app.state("sums").sort("user").equals(whole.state("sums").sort("user"))


@pytest.mark.parametrize("ending", Ending)
def test_nothing_is_taken_twice_however_the_worker_dies(ending: Ending) -> None:
    def through(step: Callable[[fk.testing.App], bool]) -> fk.testing.App:
        app = fresh(sums(1, 10), ROWS)
        shadow(app, sums(2, 4), "sums")
        app.send("paid", MORE)
        app.run()
        app.change(sums(2, 4), rebuild=["sums"])
        while step(app):
            pass
        return app

    calm = through(lambda app: app.step())
    crashed = through(lambda app: step_dying(app, ending, before=ending is Ending.UNSEEN))
    assert calm.steps > 10
    assert_the_same(calm, crashed)


def test_the_time_of_a_shadow_is_that_of_the_records() -> None:
    """Timers that were due in the app are not due again, and those that wait do."""
    app = fresh(alarms(1, 10), [{"user": "a", "euros": 1}])
    app.advance("2m")
    app.run()
    app.send("paid", [{"user": "b", "euros": 2}])
    app.run()
    shadow(app, alarms(2, 100), "alarms")
    app.change(alarms(2, 100), rebuild=["alarms"])
    app.run()
    assert [r.value for r in app.sinks["alarms"].records] == [{"user": "a", "euros": 10}]
    app.advance("2m")
    app.run()
    assert [r.value for r in app.sinks["alarms"].records[1:]] == [{"user": "b", "euros": 200}]
    assert sorted(app.state("alarms").rows()) == [("a", 100), ("b", 200)]


def test_a_shadow_of_one_rebuild_leaves_alone_what_an_earlier_one_has_made() -> None:
    def flow(one: int, two: int) -> fk.Flow:
        flow = fk.Flow("app")
        rows = flow.source("paid", key="user", value=PAID)
        for name, least in (("one", one), ("two", two)):
            group = rows.filter(fk.col("euros") >= least).group_by("user", id=name, version=1 + least)
            group.agg(total=fk.sum("euros")).sink(name, key="user", value=fk.Json())
        return flow

    app = fresh(flow(10, 10), ROWS)
    app.change(flow(4, 10), rebuild=["one"])
    app.run()
    before = app.state("one").sort("user")
    shadow(app, flow(4, 3), "two")
    made = {e.key[2] for p in range(2) for e in app._cluster.broker[TopicPartition(CHANGELOG, p)].entries if e.key}
    assert not made & set(schema.numbers(shadow_stage(app, flow(4, 3), "two").state_schema)["one"])
    app.change(flow(4, 3), rebuild=["two"])
    app.run()
    assert app.state("one").sort("user").equals(before)
    assert app.sinks["two"].table == fresh(flow(4, 3), ROWS).sinks["two"].table
    assert len(USERS) == len(app.state("two"))


def test_a_shadow_reads_no_further_than_its_app_and_its_clock_goes_no_further() -> None:
    app = fresh(sums(1, 10), ROWS)
    beside = cluster.Cluster(Plan("app.rebuild", (shadow_stage(app, sums(2, 4), "sums"),)), {"paid": 2})
    for place in (TopicPartition("paid", p) for p in range(2)):
        for entry in app._cluster.broker[place].entries:
            beside.broker[place].append(entry.key, entry.value, entry.timestamp, None)
    behind, clock = Offset(7), Millis(beside.clock + 5)
    beside.tasks = tuple(replace(b, until=Until({i.place: behind for i in b.inputs}, clock)) for b in beside.tasks)
    process = Process(beside)
    beside.clock = Millis(beside.clock + 1000)
    while process.close(3):
        process.commit()
    last = [one.owned.last for one in process.tasks]
    assert [(step.division[0].end, step.clock) for step in last if step is not None] == [(behind, clock)] * 2


def test_what_cannot_be_rebuilt_beside_the_app_says_so_and_how_it_can() -> None:
    lazy = REGIMES[1]
    app = fresh(sums(1, 10, lazy), ROWS)
    with pytest.raises(ConfigError, match="no changelog that its state could be taken from") as raised:
        shadow_stage(app, sums(2, 4, lazy), "sums")
    assert "in place, while its stage waits" in (raised.value.hint or "")

    def exchanged(version: int) -> fk.Flow:
        flow = fk.Flow("app")
        moved = flow.source("paid", key="user", value=PAID).repartition("euros")
        moved.group_by("euros", id="n", version=version).agg(n=fk.len()).sink("n", key="euros", value=fk.Json())
        return flow

    with pytest.raises(ConfigError, match="what another stage sends"):
        shadow_stage(fresh(exchanged(1), ROWS), exchanged(2), "n")


def test_a_shadow_that_was_begun_is_of_one_version() -> None:
    app = fresh(sums(1, 10), ROWS)
    stage = shadow_stage(app, sums(2, 4), "sums")
    assert stage.with_recorded_schema(stage.id, stage.state_schema) is stage
    with pytest.raises(StateError, match="another version of stage 'sums' was being rebuilt"):
        stage.with_recorded_schema(stage.id, shadow_stage(app, sums(3, 4), "sums").state_schema)
