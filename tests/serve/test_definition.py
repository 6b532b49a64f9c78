"""`flow.http` and `stream.answer`: what is computed, what is answered, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import ConfigError, DefinitionError, UserCodeError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.peek import enough_rows
from falkirk.runtime.layout.wanted_topics import room_for, topics_to_make
from falkirk.stream.access.endpoints import views_of
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.dataflow.topics import Made, Output
from falkirk.stream.flow.explain import explain
from falkirk.testing import App

BODY = {"item": str, "usd": int}


def asked(request: str, usd: int = 1, digest: str | None = "d") -> dict[str, Any]:
    return {"request": request, "request_digest": digest, "item": "lamp", "usd": usd}


def answers(app: App, sink: str = "orders.answers") -> list[tuple[str, Any]]:
    """Key and value of the records of the topic of answers, in their order, as a gateway reads them."""
    return [(record.key, record.value) for record in app.sinks[sink].records]


def test_a_step_answers_each_of_its_requests_with_digest_and_rows() -> None:
    flow = fk.Flow("shop")
    orders = flow.http("orders", value=fk.Json(BODY))
    orders.filter(fk.col("usd") > 0).flat_map(twice).select("request", "usd").answer("orders")
    app = fk.testing.run(
        flow, {"orders": [asked("a", 7), asked("b", -1), asked("c", 2, digest="")]}, crash_at="everywhere"
    )
    assert answers(app) == [
        ("a", {"digest": "d", "rows": [{"usd": 7}, {"usd": 8}]}),
        ("b", {"digest": "d", "rows": []}),
        ("c", {"digest": "", "rows": [{"usd": 2}, {"usd": 3}]}),
    ]


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, {**row, "usd": row["usd"] + 1}]


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint(every="1m")])
def test_a_repeated_request_is_computed_and_answered_once(regime: Any) -> None:
    flow = fk.Flow("shop", regime=regime)
    orders = flow.http("orders", value=fk.Json(BODY))
    orders.sink("all", value=fk.Json())
    orders.select("request", "usd").answer("orders")
    rows = [asked("a", 1), asked("b", 2), asked("a", 3, digest="other"), asked("a", 1)]
    for step_rows in (1, 2, 10):
        app = fk.testing.run(flow, {"orders": rows}, step_rows=step_rows, crash_at="everywhere")
        assert [row["usd"] for row in app.sinks["all"].rows] == [1, 2]
        assert [(key, value["digest"]) for key, value in answers(app)] == [("a", "d"), ("b", "d")]


def test_a_copy_is_dropped_however_long_the_app_is_down_before_it_is_read() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY), keep="1h").select("request", "usd").answer("orders")
    app = App(flow, step_rows=1)
    app.send("orders", [asked("a"), asked("b"), asked("a")])
    app.step()
    app.advance("3h")
    app.crash(host=True)
    app.run()
    assert [key for key, _ in answers(app)] == ["a", "b"]


def test_state_goes_when_later_requests_have_come() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY), keep="1h").select("request", "usd").answer("orders")
    app = App(flow)
    app.send("orders", [asked("a")])
    app.run()
    app.advance("71m")
    app.send("orders", [asked("b")])
    app.run()
    assert [row[0] for row in app.state("orders.once").rows()] == ["b"]


def test_after_keep_a_key_is_free_again_by_the_time_of_records() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY), keep="1h").select("request", "usd").answer("orders")
    app = App(flow)
    for pause in ("1s", "59m", "2m"):
        app.advance(pause)
        app.send("orders", [asked("a")])
        app.run()
    assert len(answers(app)) == 2


def test_no_state_is_kept_of_requests_without_a_key() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY)).select("request").answer("orders")
    app = fk.testing.run(flow, {"orders": [asked("a"), asked("~1", digest=""), asked("~2", digest="")]})
    assert [row[0] for row in app.state("orders.once").rows()] == ["a"]
    assert [key for key, _ in answers(app)] == ["a", "~1", "~2"]


def test_rows_of_another_task_come_after_a_receipt() -> None:
    flow = fk.Flow("shop")
    orders = flow.http("orders", value=fk.Json(BODY))
    orders.repartition("item").select("request", "usd").answer("orders")
    app = fk.testing.run(flow, {"orders": [asked("a", 7)]}, crash_at="everywhere")
    # Both sinks write one topic, and each shows its own records.
    assert answers(app, "orders.receipts") == [("a", {"digest": "d"})]
    assert answers(app) == [("a", {"rows": [{"usd": 7}]})]


def test_a_row_of_an_answer_that_json_cannot_hold_fails_as_one_of_a_sink() -> None:
    def flow_of(on_error: Any) -> fk.Flow:
        flow = fk.Flow("shop", on_error=on_error)
        orders = flow.http("orders", value=fk.Json({"ms": int}))
        orders.select("request", at=fk.col("ms").cast(fk.Datetime)).answer("orders")
        return flow

    made = [{"request": name, "request_digest": "d", "ms": ms} for name, ms in (("a", 0), ("b", 9 * 10**15))]
    with pytest.raises(UserCodeError, match="the format cannot write it") as raised:
        fk.testing.run(flow_of(None), {"orders": made})
    assert raised.value.where.endswith("topic orders, partition 0, offset 1")
    app = fk.testing.run(flow_of(fk.DeadLetter()), {"orders": made})
    assert [(key, len(value["rows"])) for key, value in answers(app)] == [("a", 1), ("b", 0)]
    assert [letter["operator"] for letter in app.dead_letters] == ["answer orders.answers"]


def test_the_last_answers_are_shown_though_many_receipts_come_after_them() -> None:
    flow = fk.Flow("shop")
    orders = flow.http("orders", value=fk.Json(BODY))
    orders.repartition("item").filter(fk.col("usd") > 0).select("request", "usd").answer("orders")
    app = fk.testing.run(flow, {"orders": [asked(f"r{n}", 9 - n) for n in range(40)]})
    written = app._written["orders-answers"]
    [view] = [view for view in views_of(flow.plan()) if view.name == "orders.answers"]
    reads: list[int] = []

    def last(count: int) -> list[Any]:
        reads.append(count)
        return written[-count:]

    written.sort(key=lambda message: b"rows" not in (message.value() or b""))
    assert [row.key for row in enough_rows(view, 3, last)][-3:] == ["r6", "r7", "r8"]
    assert reads == [3, 12, 48]
    assert len(enough_rows(view, 1000, last)) == 9


@pytest.mark.parametrize("held_back", [True, False])
def test_rows_that_may_be_held_back_are_not_taken_for_none(held_back: bool) -> None:
    flow = fk.Flow("shop")
    orders = flow.http("orders", value=fk.Json(BODY))
    rows = orders.key_by("request").process(Later(), id="later") if held_back else orders.filter(fk.col("usd") > 0)
    rows.select("request", "usd").answer("orders")
    [stage] = flow.plan().stages
    sinks = {output.id for output in stage.outputs if output.kind == "sink"}
    assert sinks == ({"orders.receipts", "orders.answers"} if held_back else {"orders.answers"})


class Later(fk.Process):
    """Answers a minute later."""

    state = {"usd": int}  # noqa: RUF012

    def on_row(self, row: Any, key: Any) -> None:
        key.put({"usd": row["usd"]})
        key.set_timer(timedelta(minutes=1))

    def on_timer(self, timer: Any, key: Any) -> Any:
        yield {"request": key.key["request"], "item": "", "usd": key.get()["usd"]}


def test_lookups_are_in_the_step_too() -> None:
    flow = fk.Flow("shop")
    names = flow.table("names", key="item", value=fk.Json({"name": str}), broadcast=True)
    flow.http("orders", value=fk.Json(BODY)).lookup(names, on="item", how="inner").select("request", "name").answer(
        "orders"
    )
    found = {output.id for stage in flow.plan().stages for output in stage.outputs if output.topic == "orders-answers"}
    assert found == {"orders.answers"}


def test_without_an_answer_a_receipt_is_written() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY)).select("usd").sink("all", value=fk.Json())
    app = fk.testing.run(flow, {"orders": [asked("a"), asked("a")]}, crash_at="everywhere")
    assert answers(app, "orders.receipts") == [("a", {"digest": "d"})]


def test_requests_alone_are_a_flow() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY))
    assert len(flow.plan().stages) == 1


def test_rows_without_a_request_answer_nobody() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY)).map(without_request).answer("orders")
    app = fk.testing.run(flow, {"orders": [asked("a")]})
    assert answers(app) == [("a", {"digest": "d", "rows": []})]


def without_request(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "request": None}


def test_answers_are_spread_by_the_request_as_javas_producers_would() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY)).select("request").answer("orders")
    app = fk.testing.run(flow, {"orders": [asked(f"r{n}") for n in range(40)]}, partitions=3)
    assert len({record.partition for record in app.sinks["orders.answers"].records}) == 3


def test_the_app_makes_both_topics_and_answers_outlive_what_is_dropped() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY), keep="2h", partitions=8, answers="told").select("request").answer("orders")
    [stage] = flow.plan().stages
    [requests] = stage.inputs
    assert isinstance(requests.made, Made)
    assert (requests.topic, requests.made.partitions) == ("orders", 8)
    [told] = [output for output in stage.outputs if output.topic == "told"]
    assert isinstance(told, Output)
    assert told.answers is not None
    assert int(told.answers["retention.ms"]) > 2 * 3_600_000
    assert int(told.answers["segment.ms"]) < 3_600_000


def test_a_request_fits_into_its_answer() -> None:
    flow = fk.Flow("shop")
    rows_of(flow).answer("orders")
    room = room_for({})
    _, made = topics_to_make(
        flow.plan(), Settings("nobody:1", ""), {}, room, {}, {"message.timestamp.before.max.ms": "1"}
    )
    requests, answers = (made[topic][1] for topic in ("orders", "orders-answers"))
    assert requests["max.message.bytes"] == answers["max.message.bytes"] == "2097176"
    assert answers["message.timestamp.type"] == "LogAppendTime"


def rows_of(flow: fk.Flow, name: str = "orders", **topics: Any) -> fk.Stream:
    return flow.http(name, value=fk.Json(BODY), **topics)


REFUSED: list[tuple[str, Callable[[fk.Flow], Any]]] = [
    ("is not the format of a body", lambda flow: flow.http("orders", value=fk.Text())),
    ("is not the format of a body", lambda flow: flow.http("orders", value=fk.Json())),
    ("column 'request' is added by Falkirk", lambda flow: flow.http("orders", value=fk.Json({"request": str}))),
    ("is out of range", lambda flow: flow.http("orders", value=fk.Json(BODY), keep="90d")),
    ("is not a number of partitions", lambda flow: flow.http("orders", value=fk.Json(BODY), partitions=0)),
    ("would be in one topic", lambda flow: flow.http("orders", value=fk.Json(BODY), answers="orders")),
    ("topic 'all' is that of HTTP source", lambda flow: [rows_of(flow, name, topic="all") for name in ("a", "b")]),
    ("topic 'a-answers' is that of HTTP", lambda flow: (rows_of(flow, "a"), rows_of(flow, "b", answers="a-answers"))),
    ("topic 'a' is that of HTTP", lambda flow: (rows_of(flow, "a"), rows_of(flow, "b", answers="a"))),
    ("two operators are named 'orders'", lambda flow: (rows_of(flow), rows_of(flow))),
    ("no HTTP source 'order'", lambda flow: rows_of(flow).answer("order")),
    ("no column 'request'", lambda flow: rows_of(flow).select("usd").answer("orders")),
    ("can be taken back", lambda flow: rows_of(flow).group_by("request").agg(n=fk.len()).answer("orders")),
    ("is answered twice", lambda flow: [rows.answer("orders") for rows in [rows_of(flow)] * 2]),
]


def reduced(reduce: Any) -> Callable[[fk.Flow], Any]:
    return lambda flow: flow.http("orders", value=fk.Json(BODY), reduce=reduce)


REFUSED += [
    ("cannot run map: .*\n.*map '<lambda>' .*test_definition.py:", reduced(lambda rows: rows.map(lambda row: row))),
    ("cannot run group_by", reduced(lambda rows: rows.group_by("item").agg(n=fk.len()))),
    ("cannot run over", reduced(lambda rows: rows.with_columns(total=fk.sum("usd").over("item")))),
    ("cannot run sink", reduced(lambda rows: [rows, rows.sink("all", value=fk.Json())][0])),
    ("cannot run repartition", reduced(lambda rows: rows.repartition("item").select("usd"))),
    ("cannot run with_regime", reduced(lambda rows: rows.with_regime(fk.LazyCheckpoint()))),
    ("cannot run errors", reduced(lambda rows: rows.errors)),
    ("cannot run concat", reduced(lambda rows: rows.concat(rows))),
    ("gives 3, and not a stream", reduced(lambda rows: 3)),
    ("not a stream of the rows", lambda flow: reduced(lambda rows: flow.source("x", value=fk.Json(BODY)))(flow)),
    ("is not a function", reduced("filter")),
    ("column 'request' is added by Falkirk", reduced(lambda rows: rows.select(request="item"))),
    ("Duration.* is not a type", reduced(lambda rows: rows.select(d=fk.lit(timedelta(1)), i="item"))),
]


@pytest.mark.parametrize(("words", "define"), REFUSED)
def test_what_makes_no_sense_is_refused_where_it_is_written(words: str, define: Callable[[fk.Flow], Any]) -> None:
    with pytest.raises(DefinitionError, match=words):
        define(fk.Flow("shop"))


def test_a_batch_flow_answers_nobody() -> None:
    with pytest.raises(DefinitionError, match="a batch part cannot answer requests"):
        rows_of(fk.Flow("shop", regime=fk.Batch(every="1h")))


def test_a_backfill_answers_nobody() -> None:
    flow = fk.Flow("shop")
    rows_of(flow)
    with pytest.raises(DefinitionError, match="a backfill answers no requests"):
        backfill_stage(flow.plan())


def test_an_answer_is_json_that_a_client_reads() -> None:
    flow = fk.Flow("shop")
    schema = {"text": str, "share": float, "at": fk.Datetime, "tags": fk.List(fk.String)}
    flow.http("orders", value=fk.Json(schema)).answer("orders")
    row = {"request": 'a"b', "text": 'say "é"\n', "share": 0.1, "at": None, "tags": ["x", None]}
    app = App(flow)
    app.send("orders", [row])
    app.run()
    [record] = app._written["orders-answers"]
    assert record.key() == b'a"b'
    assert json.loads(record.value() or b"") == {
        "digest": "", "rows": [{"text": 'say "é"\n', "share": 0.1, "at": None, "tags": ["x", None]}]
    }  # fmt: skip


def reducing(minimum: int, *columns: str) -> fk.Flow:
    """A flow that writes what is left of the rows of requests."""
    flow = fk.Flow("shop", regime=fk.LazyCheckpoint(every="1m"))
    kept = columns or ("item", "usd")
    rows = flow.http(
        "orders", value=fk.Json(BODY), reduce=lambda rows: rows.filter(fk.col("usd") > minimum).select(*kept)
    )
    rows.sink("all", key="request", value=fk.Json())
    rows.select("request", "usd").answer("orders")
    return flow


def of_rows(request: str, *usd: int, digest: str = "d") -> dict[str, Any]:
    return {"request": request, "request_digest": digest, "rows": [{"item": "lamp", "usd": each} for each in usd]}


def test_rows_of_a_request_are_reduced_logged_together_and_answered_once() -> None:
    asked = [of_rows("a", 5, 15, 25), of_rows("b", 1, 2), of_rows("a", 30, digest="other"), of_rows("c", 12)]
    for step_rows in (1, 10):
        app = fk.testing.run(reducing(10), {"orders": asked}, step_rows=step_rows, crash_at="everywhere")
        found = [(row["request"], row["item"], row["usd"]) for row in app.sinks["all"].rows]
        assert found == [("a", "lamp", 15), ("a", "lamp", 25), ("c", "lamp", 12)]
        # Nothing was logged of "b": it is the gateway that answers it.
        assert answers(app) == [
            ("a", {"digest": "d", "rows": [{"usd": 15}, {"usd": 25}]}), ("c", {"digest": "d", "rows": [{"usd": 12}]})
        ]  # fmt: skip


def test_a_row_that_a_gateway_refuses_cannot_be_sent_in_a_test_either() -> None:
    flow = fk.Flow("shop")
    flow.http("orders", value=fk.Json(BODY), reduce=lambda rows: rows.select(n=fk.col("item").cast(fk.Int64)))
    with pytest.raises(ConfigError, match="a gateway refuses row 1 of request 'a': select 'select' raised"):
        App(flow).send("orders", [{"request": "a", "rows": [{"item": "7"}, {"item": "lamp"}]}])


def test_a_flow_with_another_reduction_goes_on_and_reads_what_was_logged_before() -> None:
    app = App(reducing(10), step_rows=1)
    app.send("orders", [of_rows("a", 5, 15), of_rows("b", 20)])
    app.step()
    # The host is lost too, so that the steps since the last version run again, and are compared.
    app.change(reducing(1), host=True)
    app.send("orders", [of_rows("c", 5)])
    app.run()
    assert [row["usd"] for row in app.sinks["all"].rows] == [15, 20, 5]
    app.change(reducing(1, "usd"))
    app.send("orders", [of_rows("d", 6)])
    app.run()
    assert app.sinks["all"].rows[-1] == {"request": "d", "usd": 6}


def test_a_plan_says_what_gateways_do() -> None:
    said = explain(reducing(10))
    assert "          in the gateway, before it is logged: filter: usd > 10  (" in said
    assert "          in the gateway, before it is logged: select: item, usd  (" in said
