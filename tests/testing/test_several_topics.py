"""Sources of several topics: which task reads what, and how a topic joins that a pattern matches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import falkirk as fk
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import ends
from falkirk.errors import ConfigError, DefinitionError, SourceError, StateError
from falkirk.runtime.app.starts import joining_offsets
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending

ORDER = fk.Json({"id": fk.Int64, "n": fk.Int64})
BOTH = ["orders-eu", "orders-us"]
TIME = datetime.fromtimestamp(1_790_000_000, UTC)
PATTERN = fk.Pattern("orders-[a-z]+")


def sales(topic: Any, regime: Any = None) -> fk.Flow:
    """How much comes from each topic, whatever lies where."""
    flow = fk.Flow("sales", regime=regime)
    orders = flow.source("orders", topic=topic, value=ORDER, metadata=["topic"])
    counts = orders.group_by("topic", id="sales").agg(sum=fk.sum("n"))
    counts.sink("sold", key="topic", value=fk.Json())
    return flow


def rows(n: int, of: int = 1) -> list[dict[str, int]]:
    return [{"id": i, "n": of} for i in range(n)]


def sold(app: fk.testing.App) -> dict[str, int]:
    return {topic: row["sum"] for topic, row in app.sinks["sold"].table.items()}


def lasts(app: fk.testing.App) -> list[StepRecord]:
    """The last step of each task of the stage that reads the sources."""
    owned = [task.owned.last for task in app._worker().tasks if task.bound.stage.id == "orders"]
    return [last for last in owned if last is not None]


def read(record: StepRecord) -> dict[tuple[str, int], tuple[int, int]]:
    return {(r.partition.topic, r.partition.partition): (r.start, r.end) for r in record.division}


def test_topics_without_a_key_may_differ_in_partitions_which_go_round_the_tasks() -> None:
    app = fk.testing.App(sales(BOTH), partitions={"orders-eu": 3, "orders-us": 1})
    app.send("orders-eu", rows(7))
    app.send("orders-us", rows(4, of=10))
    app.run()
    assert [sorted(read(last)) for last in lasts(app)] == [
        [("orders-eu", 0), ("orders-us", 0)],
        [("orders-eu", 1)],
        [("orders-eu", 2)],
    ]
    assert sold(app) == {"orders-eu": 7, "orders-us": 40}


def test_they_give_the_same_through_every_crash() -> None:
    inputs = {"orders-us": rows(3), "orders-eu": rows(5, of=2)}
    app = fk.testing.run(sales(BOTH), inputs, crash_at="everywhere", step_rows=2)
    assert sold(app) == {"orders-eu": 10, "orders-us": 3}


def test_topics_that_are_keyed_alike_need_no_exchange_and_equal_keys_meet() -> None:
    flow = fk.Flow("per-id")
    orders = flow.source("orders", topic=BOTH, key="id", value=ORDER)
    orders.group_by("id", id="ids").agg(n=fk.len()).sink("per-id", key="id", value=fk.Json())
    assert len(flow.plan().stages) == 1
    app = fk.testing.run(flow, {name: rows(9) for name in BOTH}, partitions=3)
    assert {row["id"]: row["n"] for row in app.sinks["per-id"].table.values()} == dict.fromkeys(range(9), 2)
    with pytest.raises(SourceError, match="different numbers of partitions, so equal keys do not meet") as raised:
        fk.testing.App(flow, partitions={"orders-eu": 3, "orders-us": 2})
    assert "repartition=True" in raised.value.hint


def test_with_repartition_keyed_topics_may_differ() -> None:
    flow = fk.Flow("per-id")
    orders = flow.source("orders", topic=BOTH, key="id", value=ORDER, repartition=True)
    orders.group_by("id", id="ids").agg(n=fk.len()).sink("per-id", key="id", value=fk.Json())
    app = fk.testing.run(flow, {name: rows(9) for name in BOTH}, partitions={"orders-eu": 3, "orders-us": 2})
    assert {row["id"]: row["n"] for row in app.sinks["per-id"].table.values()} == dict.fromkeys(range(9), 2)


def test_a_topic_joins_at_a_steps_boundary_which_says_where_it_begins() -> None:
    app = fk.testing.App(sales(PATTERN), partitions={"orders-eu": 2})
    app.send("orders-eu", rows(4))
    app.run()
    app.join("orders-asia", 3)
    app.send("orders-asia", rows(6, of=10))
    assert app.step()
    joining = lasts(app)
    assert all(start == end for last in joining for (topic, _), (start, end) in read(last).items() if "asia" in topic)
    assert all(last.rows == sum(end - start for start, end in read(last).values()) for last in joining)
    # There were two tasks, and there are: the third partition goes round.
    assert [sorted(p for t, p in read(last) if t == "orders-asia") for last in joining] == [[0, 2], [1]]
    app.run()
    assert sold(app) == {"orders-eu": 4, "orders-asia": 60}
    assert {layout for last in lasts(app) for layout in [last.layout]} == {2}


@pytest.mark.parametrize(("start", "at"), [("latest", "earliest"), ("earliest", "earliest"), (TIME, 1_790_000_000_000)])
def test_of_a_topic_that_joins_nothing_is_passed_over_but_what_is_before_a_time(start: Any, at: str | int) -> None:
    flow = fk.Flow("x")
    flow.source("orders", topic=PATTERN, value=ORDER, start=start).sink("out", value=fk.Json())
    app = fk.testing.App(flow, partitions={"orders-eu": 1})
    app.join("orders-us")
    (last,), (task,), asked = lasts(app), app._cluster.tasks, []

    class Request:
        def offsets(self, places: list[TopicPartition], at: str | int) -> dict[TopicPartition, Offset]:
            asked.append(at)
            return dict.fromkeys(places, Offset(7))

    found = joining_offsets(task, ends(last), Request())  # type: ignore[arg-type]
    assert {(p.topic, p.partition): offset for p, offset in found.items()} == {("orders-us", 0): 7}
    assert asked == [at]


@pytest.mark.parametrize("ending", Ending)
def test_the_worker_may_die_in_any_way_at_the_step_that_a_topic_joins_at(ending: Ending) -> None:
    app = fk.testing.App(sales(PATTERN), partitions={"orders-eu": 1})
    app.send("orders-eu", rows(4))
    app.run()
    app.send("orders-us", rows(3, of=10))
    assert step_dying(app, ending, before=True)
    app.run()
    assert sold(app) == {"orders-eu": 4, "orders-us": 30}
    assert all(sum(r.end - r.start for r in last.division) <= 7 for last in lasts(app))


class Late(fk.Process):
    """Says how often an id came, an hour after it came first."""

    state = {"n": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> list[Any]:
        known = key.get()
        key.put({"n": 1 if known is None else known["n"] + 1})
        if known is None:
            key.set_timer(timedelta(hours=1))
        return []

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> list[dict[str, Any]]:
        known = key.get()
        return [{"id": key.key[0], "n": known["n"] if known else 0}]


def test_lazy_steps_are_run_again_as_they_were_recorded_whatever_matches_by_then() -> None:
    flow = fk.Flow("late", regime=fk.LazyCheckpoint(every="1h"))
    orders = flow.source("orders", topic=PATTERN, key="id", value=ORDER, metadata=["topic"])
    orders.key_by("id").process(Late(), id="late", returns={"id": int, "n": int}).sink("late", value=fk.Json())
    app = fk.testing.App(flow, partitions={"orders-eu": 1}, step_rows=2)
    app.send("orders-eu", rows(3))
    app.run()
    app.advance("2h")  # a timer is due just when the topic joins: the joining step fires it, and so must its replay
    app.send("orders-asia", rows(2))
    app.run()
    app.join("orders-antarctica")  # matches now, and is in no record
    app.crash(host=True)
    app.send("orders-eu", rows(3))
    app.advance("2h")
    app.run()
    app.crash(host=True)
    assert [(row["id"], row["n"]) for row in app.sinks["late"].rows] == [(0, 1), (1, 1), (2, 1)]


def test_lazy_steps_that_are_run_again_do_not_wait_for_the_watermark_of_a_topic_that_joined_later() -> None:
    flow = fk.Flow("windows", regime=fk.LazyCheckpoint(every="1h"))
    value = fk.Json({"id": fk.Int64, "at": fk.Int64})
    orders = flow.source("orders", topic=PATTERN, key="id", value=value, time="at", late="1s")
    counts = orders.group_by("id", fk.tumbling("at", "1s"), id="counts").agg(n=fk.len())
    counts.final().sink("ended", value=fk.Json())
    app = fk.testing.App(flow, partitions={"orders-eu": 1}, step_rows=2)
    begin = int(app.now.timestamp() * 1000)
    rows = [{"id": 1, "at": begin + 1000 * i} for i in range(14)]
    app.send("orders-eu", rows[:10])
    app.run()
    before = len(app.sinks["ended"].rows)
    app.join("orders-asia")
    app.send("orders-asia", rows[10:])
    app.send("orders-eu", rows[10:])
    app.crash(host=True)
    app.run()
    assert before > 0
    assert [row["n"] for row in app.sinks["ended"].rows] == [1] * 10 + [2] * 2


def test_what_joins_while_tables_are_read_begins_with_the_other_inputs() -> None:
    flow = fk.Flow("named")
    names = flow.table("names", key="id", value=fk.Json({"id": fk.Int64, "name": fk.String}))
    orders = flow.source("orders", topic=PATTERN, key="id", value=ORDER)
    orders.lookup(names).sink("named", value=fk.Json())
    app = fk.testing.App(flow, partitions={"orders-eu": 1})
    app.run()
    app.join("orders-us")
    worker = app._worker()
    [task] = worker.tasks
    table, begins = TopicPartition("names", 0), TopicPartition("orders-us", 0)
    task.tables, task.intake = {table}, Intake.LOADING
    task.close_step(
        worker.core.pipeline, worker.log.owner, app._cluster.now(), worker.inputs.tables, worker.inputs.again
    )
    assert task.joined() == {}
    assert not task.due(app._cluster.now())
    assert task.advance() == {TopicPartition("orders-eu", 0): 0, begins: 0}


def test_what_has_joined_is_not_forgotten_by_a_step_that_closes_before_it_is_asked() -> None:
    app = fk.testing.App(sales(PATTERN), partitions={"orders-eu": 1})
    app.run()
    app.join("orders-us")
    worker = app._worker()
    task = worker.tasks[0]
    for _ in range(2):
        task.close_step(
            worker.core.pipeline, worker.log.owner, app._cluster.now(), worker.inputs.tables, worker.inputs.again
        )
    assert task.joined() == {TopicPartition("orders-us", 0): 0}
    assert task.joined() == {}


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint(every="1h")])
def test_partitions_that_are_added_go_round_the_tasks_through_a_lost_host(regime: Any) -> None:
    flow = fk.Flow("sums", regime=regime)
    orders = flow.source("orders", value=ORDER, start="latest")
    orders.group_by("id", id="sums").agg(n=fk.sum("n")).sink("sums", key="id", value=fk.Json())
    app = fk.testing.App(flow, partitions={"orders": 2})
    app.send("orders", rows(4))
    app.run()
    app.grow("orders", 5)
    app.send("orders", rows(50, of=10))
    assert app.step()
    joining = lasts(app)
    assert [sorted(p for _, p in read(last)) for last in joining] == [[0, 2, 4], [1, 3]]
    assert all(start == end for last in joining for (_, p), (start, end) in read(last).items() if p > 1)
    app.crash(host=True)
    app.run()
    app.grow("orders", 6)
    app.crash(host=True)
    app.run()
    sums = {row["id"]: row["n"] for row in app.sinks["sums"].table.values()}
    assert sums == {i: 10 + (i < 4) for i in range(50)}


def test_a_source_whose_keys_count_from_now_on_cannot_have_got_more_partitions() -> None:
    def flow(**options: Any) -> fk.Flow:
        flow = fk.Flow("copy")
        flow.source("orders", value=ORDER, **options).sink("copies", value=fk.Json())
        return flow

    app = fk.testing.App(flow(), partitions=2)
    app.run()
    app.change(flow(key="id"))
    app.change(flow())
    app.grow("orders", 3)
    with pytest.raises(StateError, match="stage 'orders' has 2 tasks and would have 3"):
        app.change(flow(key="id"))


def test_a_topic_whose_keys_must_stay_where_they_are_gets_no_more_partitions() -> None:
    flow = fk.Flow("copy")
    flow.source("orders", key="id", value=ORDER).sink("copies", value=fk.Json())
    app = fk.testing.App(flow, partitions=2)
    with pytest.raises(ConfigError, match="topic 'orders' cannot have 3 partitions"):
        app.grow("orders", 3)


def test_sources_without_a_key_may_differ_in_partitions() -> None:
    flow = fk.Flow("both")
    streams = [flow.source(name, value=ORDER) for name in BOTH]
    streams[0].concat(streams[1]).sink("all", value=fk.Json())
    app = fk.testing.run(flow, {name: rows(9) for name in BOTH}, partitions={"orders-eu": 3, "orders-us": 2})
    assert len(app.sinks["all"].rows) == 18


def test_where_a_letter_comes_from_is_told_by_topic() -> None:
    app = fk.testing.run(sales(BOTH), {"orders-us": [(None, b"no")], "orders-eu": rows(1)})
    assert [(letter["source"], letter["topic"]) for letter in app.dead_letters] == [("orders", "orders-us")]


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    with pytest.raises(DefinitionError, match="is not a regular expression"):
        fk.Pattern("orders-(")
    with pytest.raises(DefinitionError, match="topic 'a' is listed twice"):
        sales(["a", "a"])
    with pytest.raises(DefinitionError, match="is not a topic"):
        sales([])
    flow = fk.Flow("x")
    with pytest.raises(DefinitionError, match="those of one topic mean nothing in another"):
        flow.source("orders", topic=BOTH, value=ORDER, start={0: 5})
    flow = sales(fk.Pattern("s.*"))
    with pytest.raises(DefinitionError, match="sink 'sold' writes one, 'sold'"):
        flow.plan()
    flow = fk.Flow("x", regime=fk.Batch())
    flow.source("orders", topic=PATTERN, value=ORDER).sink("out", value=fk.Json())
    with pytest.raises(DefinitionError, match="a batch part reads topics that are named"):
        flow.plan()


def test_a_test_names_the_topics_that_there_are() -> None:
    with pytest.raises(ConfigError, match="no topic matches /orders"):
        fk.testing.App(sales(PATTERN))
    app = fk.testing.App(sales(BOTH))
    with pytest.raises(ConfigError, match="source 'orders' reads several topics: orders-eu, orders-us"):
        app.send("orders", rows(1))
