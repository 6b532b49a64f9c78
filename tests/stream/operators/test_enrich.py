"""Columns that an async function gives: order, time-outs, retries, failures, and that no committed row is asked for again."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.checkpoint.regimes import Eager, Stateless
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.flow.explain import explain
from falkirk.stream.flow.flow import Flow
from falkirk.stream.flow.streams import Stream
from falkirk.stream.stages.plan import recovery_of

BID = {"id": int, "auction": int}


def bids_of(flow: Flow, **more: Any) -> Stream:
    return flow.source("bids", key="auction", value=fk.Json(BID), **more)


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "auction": i % 3} for i in range(count)]


class Service:
    """Answers with the number of the call, so that no two answers are the same."""

    def __init__(self, slow: bool = False) -> None:
        self.calls: Counter[int] = Counter()
        self.at_once = self.most = 0
        self._slow = slow

    async def ask(self, row: dict[str, Any]) -> dict[str, Any]:
        self.calls[row["id"]] += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        answer = sum(self.calls.values())
        # Later rows are answered first.
        await asyncio.sleep(0.002 * (5 - row["id"] % 5) if self._slow else 0)
        self.at_once -= 1
        return {"answer": answer}


def answered(service: Service, regime: Any = None, **more: Any) -> Flow:
    flow = fk.Flow("f", regime=regime or fk.EagerCheckpoint())
    bids_of(flow).enrich(service.ask, returns={"answer": int}, **more).sink("out", value=fk.Json())
    return flow


# -- what comes out ----------------------------------------------------------------------------------------------------


def test_rows_keep_their_order_and_columns_however_long_each_answer_takes() -> None:
    service = Service(slow=True)
    app = fk.testing.run(answered(service, concurrency=7), {"bids": rows(40)}, step_rows=20)
    assert [(r["id"], r["auction"]) for r in app.sinks["out"].rows] == [(i, i % 3) for i in range(40)]
    assert app.calls["ask"] == 40
    assert service.most == 7


def test_an_answer_may_replace_a_column() -> None:
    async def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {"auction": str(2 * row["auction"])}

    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(doubled, returns={"auction": str})
    stream.sink("out", value=fk.Json())
    assert list(stream.schema) == ["id", "auction"]
    assert fk.testing.run(flow, {"bids": rows(2)}).sinks["out"].rows == [
        {"id": 0, "auction": "0"},
        {"id": 1, "auction": "2"},
    ]


def test_a_step_takes_no_more_rows_than_its_calls_can_answer_soon() -> None:
    app = fk.testing.App(answered(Service(), concurrency=2))
    app.send("bids", rows(50))
    app.step()
    assert len(app.sinks["out"].rows) == 20
    app.run()
    assert [r["id"] for r in app.sinks["out"].rows] == list(range(50))


class Client:
    """Opened and closed once for each task, in the loop in which it is called."""

    told: ClassVar[list[str]] = []

    def __init__(self, factor: int) -> None:
        self.factor = factor

    async def __aenter__(self) -> Client:
        self.loop = asyncio.get_running_loop()
        self.told.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.told.append("closed")

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        assert asyncio.get_running_loop() is self.loop
        return {"answer": self.factor * row["id"]}


def test_each_task_opens_its_own_object_once_and_closes_it_when_it_ends() -> None:
    Client.told.clear()
    flow = fk.Flow("f")
    bids_of(flow).enrich(partial(Client, 3), returns={"answer": int}).sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(12)}, partitions=2, step_rows=2)
    assert sorted(r["answer"] for r in app.sinks["out"].rows) == [3 * i for i in range(12)]
    assert Client.told == ["opened", "opened"]
    app.crash()
    assert Client.told[2:] == ["closed", "closed"]


def test_an_object_that_cannot_be_opened_stops_the_app_after_as_many_attempts() -> None:
    tried = []

    class Away(Client):
        async def __aenter__(self) -> Client:
            tried.append(self)
            raise ConnectionError("refused")

    flow = fk.Flow("f", on_error=fk.Skip())
    bids_of(flow).enrich(partial(Away, 1), returns={"answer": int}, retries=2, backoff="1ms").sink(
        "out", value=fk.Json()
    )
    with pytest.raises(UserCodeError, match="opening of enrich 'Away' raised ConnectionError: refused"):
        fk.testing.run(flow, {"bids": rows(1)})
    assert len(tried) == 3


def test_an_object_whose_opening_is_cancelled_from_within_stops_the_app() -> None:
    class Cancelled(Client):
        async def __aenter__(self) -> Client:
            raise asyncio.CancelledError

    flow = fk.Flow("f")
    bids_of(flow).enrich(partial(Cancelled, 1), returns={"answer": int}).sink("out", value=fk.Json())
    with pytest.raises(UserCodeError, match="opening of enrich 'Cancelled' raised CancelledError"):
        fk.testing.run(flow, {"bids": rows(1)})


# -- what fails --------------------------------------------------------------------------------------------------------


def failing(error: Exception, times: int, asked: list[int]) -> Any:
    """Of row 1, the first calls fail."""

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        asked.append(row["id"])
        if row["id"] == 1 and asked.count(1) <= times:
            raise error
        return {"answer": row["id"]}

    return ask


def run_failing(error: Exception, times: int, on_error: Any = None, **more: Any) -> tuple[Any, list[int]]:
    asked: list[int] = []
    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(
        failing(error, times, asked), returns={"answer": int}, backoff="1ms", on_error=on_error, **more
    )
    stream.sink("out", value=fk.Json())
    return fk.testing.run(flow, {"bids": rows(3)}), asked


def test_a_call_that_fails_is_tried_again() -> None:
    app, asked = run_failing(ConnectionError("reset"), times=2, retries=2)
    assert [r["answer"] for r in app.sinks["out"].rows] == [0, 1, 2]
    assert Counter(asked) == {0: 1, 1: 3, 2: 1}
    assert app.calls["ask"] == 5


def test_after_the_last_attempt_the_row_is_a_dead_letter_and_the_others_are_not() -> None:
    app, asked = run_failing(ConnectionError("reset"), times=9, retries=1, on_error=fk.DeadLetter())
    assert [r["id"] for r in app.sinks["out"].rows] == [0, 2]
    (letter,) = app.dead_letters
    assert (letter["operator"], letter["offset"], letter["reason"]) == ("enrich ask", 1, "ConnectionError: reset")
    assert asked.count(1) == 2


def test_by_default_a_row_without_an_answer_stops_the_app_with_its_address() -> None:
    with pytest.raises(UserCodeError, match="enrich 'ask' raised ConnectionError: reset") as error:
        run_failing(ConnectionError("reset"), times=9, retries=0)
    assert "offset 1" in error.value.where


def test_what_is_not_worth_another_attempt_gets_none() -> None:
    app, asked = run_failing(KeyError("id"), times=1, retry_on=ConnectionError, on_error=fk.Skip())
    assert ([r["id"] for r in app.sinks["out"].rows], asked.count(1)) == ([0, 2], 1)


def test_a_call_that_takes_too_long_has_failed() -> None:
    async def hangs(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(60 if row["id"] == 1 else 0)
        return {"answer": 1}

    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(
        hangs, returns={"answer": int}, timeout="20ms", retries=1, backoff="1ms", on_error=fk.DeadLetter()
    )
    stream.sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(3)})
    assert [r["id"] for r in app.sinks["out"].rows] == [0, 2]
    assert [letter["reason"] for letter in app.dead_letters] == ["TimeoutError: no answer within 0.02 s"]
    assert app.calls["hangs"] == 4


def test_a_time_out_of_the_functions_own_keeps_its_words() -> None:
    app, _ = run_failing(TimeoutError("the database is busy"), times=9, retries=0, on_error=fk.DeadLetter())
    assert [letter["reason"] for letter in app.dead_letters] == ["TimeoutError: the database is busy"]


def test_a_call_that_is_cancelled_from_within_has_failed_and_ends_no_other() -> None:
    async def cancelled(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 1:
            raise asyncio.CancelledError
        return {"answer": 1}

    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(cancelled, returns={"answer": int}, retries=0, on_error=fk.DeadLetter())
    stream.sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(3)}, step_rows=3)
    assert [r["id"] for r in app.sinks["out"].rows] == [0, 2]
    assert "cancelled from within" in app.dead_letters[0]["reason"]


@pytest.mark.parametrize("answer", [None, {"answer": "x"}, {"other": 1}, 7], ids=str)
def test_an_answer_that_does_not_fit_fails_its_row(answer: Any) -> None:
    async def ask(row: dict[str, Any]) -> Any:
        return answer if row["id"] == 1 else {"answer": 5}

    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(ask, returns={"answer": int}, on_error=fk.DeadLetter())
    stream.sink("out", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(3)})
    assert [r["id"] for r in app.sinks["out"].rows] == [0, 2]
    assert "not a valid row of answer Int64" in app.dead_letters[0]["reason"]


def test_failures_can_be_a_stream() -> None:
    asked: list[int] = []
    flow = fk.Flow("f")
    stream = bids_of(flow).enrich(failing(OSError("away"), 9, asked), returns={"answer": int}, retries=0)
    stream.sink("out", value=fk.Json())
    stream.errors.select("offset", "reason").sink("failed", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(3)})
    assert app.sinks["failed"].rows == [{"offset": 1, "reason": "OSError: away"}]


# -- what is recorded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()], ids=["eager", "lazy"])
@given(cuts=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["", "crash", "host"])), min_size=1, max_size=6))
@settings(max_examples=15)
def test_no_committed_row_is_asked_for_again_and_its_answer_is_the_recorded_one(
    regime: Any, cuts: list[tuple[int, str]]
) -> None:
    """The answers go to a sink in the same stage, and to a group with state behind."""
    service = Service()
    flow = fk.Flow("f", regime=regime)
    scored = bids_of(flow).enrich(service.ask, returns={"answer": int}, id="scored")
    scored.sink("out", value=fk.Json())
    scored.group_by("auction", id="total").agg(n=fk.len(), total=fk.sum("answer")).sink(
        "totals", key="auction", value=fk.Json()
    )
    app = fk.testing.App(flow, partitions=2)
    sent = 0
    for size, end in cuts:
        app.send("bids", [{"id": i, "auction": i % 3} for i in range(sent, sent + size)])
        sent += size
        app.run()
        if end:
            app.crash(host=end == "host")
    out = app.sinks["out"].rows
    assert service.calls == Counter(range(sent))
    assert app.calls["scored"] == sent
    assert sorted(r["id"] for r in out) == list(range(sent))
    due = {
        k: {"auction": k, "n": len(some), "total": sum(some)}
        for k in range(3)
        if (some := [r["answer"] for r in out if r["auction"] == k])
    }
    assert app.sinks["totals"].table == due


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()], ids=["eager", "lazy"])
def test_only_steps_that_were_not_committed_are_asked_for_again(regime: Any) -> None:
    """The worker is killed at each point of step 2. A function of the row alone then gives the same output."""

    calls: Counter[int] = Counter()

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        calls[row["id"]] += 1
        return {"answer": 2 * row["id"]}

    flow = fk.Flow("f", regime=regime)
    bids_of(flow).enrich(ask, returns={"answer": int}).sink("out", value=fk.Json())
    calls.clear()
    app = fk.testing.run(flow, {"bids": rows(6)}, step_rows=2, crash_at=[2])
    assert [r["answer"] for r in app.sinks["out"].rows] == [0, 2, 4, 6, 8, 10]
    runs = calls[0]  # once in each of the runs that are compared
    assert calls[1] == calls[4] == calls[5] == runs
    assert calls[2] == calls[3] > runs


def test_operators_with_state_read_answers_from_a_logged_edge() -> None:
    flow = fk.Flow("f", regime=fk.LazyCheckpoint())
    scored = bids_of(flow).enrich(Service().ask, returns={"answer": int})
    scored.filter(fk.col("answer") > 1).group_by("auction", id="n").agg(n=fk.len()).sink(
        "n", key="auction", value=fk.Json()
    )
    first, second = flow.plan().stages
    assert ([e.id for e in first.outputs if e.kind == "edge"], recovery_of(first)) == (["n"], Stateless)
    assert (second.id, second.regime.kind) == ("n", "lazy")


def test_a_lazy_stage_that_has_state_and_calls_logs_its_changes() -> None:
    flow = fk.Flow("f", regime=fk.LazyCheckpoint())

    def first(row: Any, key: Any) -> Any:
        if key.get() is None:
            key.put({"seen": True})
            yield row

    firsts = bids_of(flow).key_by("auction").process(first, id="first", state={"seen": bool})
    service = Service()
    firsts.enrich(service.ask, returns={"answer": int}).sink("out", value=fk.Json())
    (stage,) = flow.plan().stages
    assert (recovery_of(stage), stage.regime.kind) == (Eager, "eager")
    app = fk.testing.App(flow)
    app.send("bids", rows(5))
    app.run()
    app.crash(host=True)
    app.send("bids", rows(5))
    app.run()
    assert [(r["id"], r["answer"]) for r in app.sinks["out"].rows] == [(0, 1), (1, 2), (2, 3)]
    assert app.calls["ask"] == 3


def test_a_source_with_a_watermark_passes_it_on() -> None:
    flow = fk.Flow("f", regime=fk.LazyCheckpoint())
    orders = flow.source("orders", value=fk.Json({"id": int, "at": int}), time="at", late="1s")
    service = Service()
    scored = orders.enrich(service.ask, returns={"answer": int})
    hourly = scored.group_by(fk.tumbling("at", "1h"), id="hourly").agg(n=fk.len(), answers=fk.sum("answer"))
    hourly.final().sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("orders", [{"id": 1, "at": 60_000}, {"id": 2, "at": 61_000}])
    app.run()
    app.crash(host=True)
    app.send("orders", [{"id": 3, "at": 3_700_000}])
    app.run()
    assert app.sinks["out"].rows == [{"window_start": 0, "window_end": 3_600_000, "n": 2, "answers": 3}]
    assert app.calls["ask"] == 3


# -- what is refused ---------------------------------------------------------------------------------------------------


async def fine(row: dict[str, Any]) -> dict[str, Any]:
    return {"answer": 1}


class Plain:
    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a plain function": ({"function": lambda row: row}, "is not an async function"),
    "a class whose objects wait for nobody": ({"function": Plain}, "objects of Plain cannot be called asynchronously"),
    "an open object": ({"function": Client(1)}, "would be opened once for all tasks"),
    "no function": ({"function": "ask"}, "is not an async function"),
    "no concurrency": ({"concurrency": 0}, "concurrency=0 is not a number of at least 1"),
    "fewer than no retries": ({"retries": -1}, "retries=-1 is not a number of at least 0"),
    "no time": ({"timeout": "0s"}, "timeout='0s' is not a duration greater than zero"),
    "no pause": ({"backoff": "soon"}, "backoff='soon' is not a duration"),
    "no exception": ({"retry_on": int}, "is not a class of exceptions"),
    "no columns": ({"returns": {}}, "a schema without columns"),
    "no handling": ({"on_error": "skip"}, "on_error='skip' is not a way to handle errors"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_called_is_refused(what: str) -> None:
    given_, words = REFUSED[what]
    with pytest.raises(DefinitionError, match=words) as error:
        bids_of(fk.Flow("f")).enrich(**{"function": fine, "returns": {"answer": int}, **given_})
    assert "test_enrich.py:" in error.value.where


def test_rows_that_can_be_taken_back_are_refused() -> None:
    counts = bids_of(fk.Flow("f")).group_by("auction").agg(n=fk.len())
    with pytest.raises(DefinitionError, match="can be taken back") as error:
        counts.enrich(fine, returns={"answer": int})
    assert "before they are grouped" in error.value.hint


def test_a_plan_names_what_is_called_and_how() -> None:
    flow = answered(Service(), concurrency=7, timeout="1500ms", retries=2)
    assert "do      enrich ask: calls for answer  (" in explain(flow)
    assert "          7 calls at a time in each task, 1.5 s each, up to 3 times a row\n" in explain(flow)


def test_pace_and_retries_may_change_between_epochs_that_are_compared() -> None:
    def fingerprint(**more: Any) -> str:
        flow = fk.Flow("f", regime=fk.Batch())
        bids_of(flow).enrich(fine, returns={"answer": int}, **more).sink("out", key="id", value=fk.Json())
        return flow.plan().batches[0].fingerprint

    assert fingerprint() == fingerprint(concurrency=7, retries=0)


def test_a_batch_part_does_not_make_the_calls_of_the_streaming_part_again() -> None:
    flow = fk.Flow("f")
    scored = bids_of(flow).enrich(fine, returns={"answer": int})
    scored.sink("out", value=fk.Json())
    scored.with_regime(fk.Batch(), id="usual").group_by("auction").agg(n=fk.len()).sink(
        "usual", key="auction", value=fk.Json()
    )
    with pytest.raises(DefinitionError, match="would make these calls again for all records") as error:
        flow.plan()
    assert error.value.where.startswith("enrich 'fine'")


def test_a_batch_calls_for_each_record_and_says_that_it_may_again() -> None:
    service = Service()
    flow = fk.Flow("f", regime=fk.Batch())
    bids_of(flow).enrich(service.ask, returns={"answer": int}).sink("out", key="id", value=fk.Json())
    app = fk.testing.run(flow, {"bids": rows(5)})
    assert sorted(r["id"] for r in app.sinks["out"].rows) == list(range(5))
    assert service.calls == Counter(range(5))
    assert "Spark may compute a part of an epoch again, and then makes its calls again" in explain(flow)


def test_a_flow_that_calls_others_is_not_backfilled() -> None:
    with pytest.raises(DefinitionError, match="a backfill cannot record others' answers"):
        backfill_stage(answered(Service()).plan())
