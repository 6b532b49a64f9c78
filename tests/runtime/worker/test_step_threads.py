"""Steps in threads of their own, on a broker: the worker's loop goes on, and no committed row is asked for again."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from tests.bad_input.stand import BID, Stand, count
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors.kafka.reading import source
from falkirk.runtime.worker.step_threads import step_threads
from falkirk.runtime.worker.worker import SWITCH, Worker

pytestmark = pytest.mark.kafka


def begun(worker: Worker) -> None:
    worker.join()


def seen(stand: Stand, sink: str) -> list[Any]:
    """What a reader sees of a sink whose topic may not exist yet."""
    exists = stand.prefix + sink in stand.admin.list_topics(timeout=PATIENCE_S).topics
    return stand.values(sink) if exists else []


def bid_of(i: int) -> bytes:
    return orjson.dumps({"id": i, "auction": 1, "bidder": 1, "price": 1})


def test_other_tasks_go_on_while_one_waits_and_its_calls_are_cancelled_when_it_is_taken_away(stand: Stand) -> None:
    """The service never answers for bid 0, which is in partition 0."""
    stand.topic(partitions=2)
    asked, cancelled = threading.Event(), threading.Event()

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 0:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return {"answer": row["id"]}

    flow = fk.Flow(stand.name)
    bids = flow.source(f"{stand.prefix}bids", value=fk.Json(BID))
    bids.enrich(ask, returns={"answer": int}, timeout="1h").sink(f"{stand.prefix}out", value=fk.Json())
    stand.put(b"1", bid_of(0), partition=0)
    with stand.worker(flow) as worker:
        begun(worker)
        while not asked.is_set() or len(worker.tasks) < 2:
            worker.turn()
        for i in range(1, 6):
            stand.put(b"1", bid_of(i), partition=1)
        while sum(worker.stats.rows.values()) < 5:
            worker.turn()
        assert worker.tasks[0].under_way is not None
        [domain] = worker.domains.values()
        assert not domain.quiet
        worker._on_revoked([0])
        assert cancelled.wait(PATIENCE_S)
        assert set(worker.tasks) == {1}
        assert not domain._threads.any()
    assert sorted(v["answer"] for v in stand.values("out")) == [1, 2, 3, 4, 5]


def test_the_calls_of_a_step_that_follows_an_aborted_one_are_cancelled_and_made_again(stand: Stand) -> None:
    stand.topic(partitions=1)
    asked: list[int] = []
    cancelled = threading.Event()

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        asked.append(row["id"])
        if len(asked) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
        return {"answer": row["id"]}

    flow = fk.Flow(stand.name)
    bids = flow.source(f"{stand.prefix}bids", value=fk.Json(BID))
    bids.enrich(ask, returns={"answer": int}, timeout="1h").sink(f"{stand.prefix}out", value=fk.Json())
    stand.put(b"1", bid_of(7))
    with stand.worker(flow) as worker:
        begun(worker)
        [domain] = worker.domains.values()
        while not asked or not domain.performer.idle:
            worker.turn()
        domain.performer._tasks.rewind(worker.tasks[0].owned)
        assert cancelled.wait(PATIENCE_S)
        while not sum(worker.stats.rows.values()):
            worker.turn()
    assert asked == [7, 7]
    assert [v["answer"] for v in stand.values("out")] == [7]


def test_a_backlog_of_calls_is_not_read_at_once_and_holds_up_no_other_stage(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BATCH", 50)
    stand.topic()
    stand.topic("asks", partitions=1)
    stand.bids(300)
    for i in range(600):
        stand.producer.produce(f"{stand.prefix}asks", bid_of(i))
    assert stand.producer.flush(PATIENCE_S) == 0
    answers = threading.Event()

    async def ask(row: dict[str, Any]) -> dict[str, Any]:
        while not answers.is_set():
            await asyncio.sleep(0.01)
        return {"answer": row["id"]}

    flow = fk.Flow(stand.name)
    asks = flow.source(f"{stand.prefix}asks", value=fk.Json(BID))
    asks.enrich(ask, returns={"answer": int}, concurrency=2).sink(f"{stand.prefix}out", value=fk.Json())
    count(flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID)), f"{stand.prefix}stats")
    with stand.worker(flow) as worker:
        begun(worker)
        while not worker._inputs._paused or sum(worker.stats.rows.values()) < 300:
            worker.turn()
        (waiting,) = worker._inputs._paused
        assert waiting.under_way is not None
        for _ in range(50):
            worker.turn()
        assert 400 <= waiting.rows <= 400 + 51  # 20 steps of 20 rows, and the poll that went beyond
        answers.set()
        while sum(worker.stats.rows.values()) < 900:
            worker.turn()
        assert not worker._inputs._paused
    assert [v["answer"] for v in stand.values("out")] == list(range(600))


# -- kill -9 -----------------------------------------------------------------------------------------------------------

FLOW = """
import asyncio
flow = fk.Flow(NAME, regime={regime})
value = fk.Json({{"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}})
bids = flow.source(PREFIX + "bids", key="auction", value=value)

async def ask(row):
    reader, writer = await asyncio.open_connection("127.0.0.1", {port})
    try:
        writer.write(b"%d\\n" % row["id"])
        return {{"answer": int(await reader.readline())}}
    finally:
        writer.close()

scored = bids.enrich(ask, returns={{"answer": int}}, concurrency=8, retries=5)
scored.sink(PREFIX + "out", key="auction", value=fk.Json())
scored.group_by("auction", id="total").agg(n=fk.len(), total=fk.sum("answer")).sink(
    PREFIX + "totals", key="auction", value=fk.Json())
"""


class Service:
    """Answers with the number of the call, and remembers what it has answered to whom."""

    def __init__(self) -> None:
        self.port = 0
        self.given: defaultdict[int, list[int]] = defaultdict(list)

    @property
    def calls(self) -> Counter[int]:
        return Counter({asked: len(answers) for asked, answers in list(self.given.items())})

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if line := await reader.readline():
            await asyncio.sleep(0.01)
            answer = sum(map(len, self.given.values())) + 1
            self.given[int(line)].append(answer)
            writer.write(b"%d\n" % answer)
        writer.close()

    async def _serve(self, ready: threading.Event, over: asyncio.Event) -> None:
        async with await asyncio.start_server(self._answer, "127.0.0.1") as server:
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await over.wait()

    @contextmanager
    def running(self) -> Iterator[Service]:
        ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(ready, over),))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()


@pytest.mark.slow
def test_after_kill_9_no_committed_row_is_asked_for_again(stand: Stand) -> None:
    stand.topic()
    with Service().running() as service:
        text = FLOW.format(port=service.port, regime="fk.LazyCheckpoint(step='50ms')")
        committed: dict[int, int] = {}
        for _ in range(2):
            stand.bids(400)
            going = stand.start(text)
            while len(seen(stand, "out")) < len(committed) + 40:
                assert going.process.poll() is None, going.said.read_text()
                time.sleep(0.05)
            going.kill()
            before = service.calls
            committed = {v["id"]: v["answer"] for v in stand.values("out")}
        stand.start(text)
        while sum(v["n"] for v in {v["auction"]: v for v in stand.values("totals")}.values()) < stand.sent:
            time.sleep(0.1)
        out, calls = stand.values("out"), service.calls
    assert sorted(v["id"] for v in out) == list(range(stand.sent))
    assert all(v["answer"] in service.given[v["id"]] for v in out)
    assert {v["id"]: v["answer"] for v in out}.items() >= committed.items()
    # What was committed when the process died is not asked for again; of the rest, what was under way is.
    assert all(calls[i] == before[i] for i in committed)
    assert max(calls.values()) <= 3
    due = {a: sum(v["answer"] for v in out if v["auction"] == a) for a in {v["auction"] for v in out}}
    assert {v["auction"]: v["total"] for v in stand.values("totals")} == due


def test_a_long_step_of_a_slow_stage_holds_up_no_quicker_one_and_its_backlog_is_bounded(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lazy stage's first step lasts until the quick stage has counted everything."""
    monkeypatch.setattr(source, "BATCH", 50)
    stand.topic(partitions=1)
    let, sizes = threading.Event(), list[int]()

    def slow(rows: Any) -> Any:
        sizes.append(len(rows))
        assert let.wait(PATIENCE_S)
        return rows

    flow = fk.Flow(stand.name, regime=fk.EagerCheckpoint(step="50ms"))
    bids = flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID))
    count(bids, f"{stand.prefix}stats")
    lazy = bids.with_regime(fk.LazyCheckpoint(step="2s", max_rows=100)).map_batches(slow)
    count_again(lazy, stand)
    stand.bids(20)
    with stand.worker(flow) as worker:
        begun(worker)
        slow_stage = next(id_ for id_, domain in worker.domains.items() if domain._threads is not None)
        quick = next(domain for id_, domain in worker.domains.items() if id_ == "stats")
        assert quick._threads is None
        while not sizes:
            worker.turn()
        stand.bids(2_000)
        deadline = time.monotonic() + PATIENCE_S
        while sum(v["n"] for v in {v["auction"]: v for v in seen(stand, "stats")}.values()) < stand.sent:
            turned = time.monotonic() + 0.3
            while time.monotonic() < turned:
                worker.turn()
            assert time.monotonic() < deadline
        assert len(sizes) == 1
        assert worker.domains[slow_stage].queue.rows < 500, "what is read while a step runs is bounded"
        let.set()
        while sum(v["n"] for v in {v["auction"]: v for v in seen(stand, "again")}.values()) < stand.sent:
            turned = time.monotonic() + 0.3
            while time.monotonic() < turned:
                worker.turn()
            assert time.monotonic() < deadline
        worker.leave()
    stand.assert_exact("stats")
    stand.assert_exact("again")
    assert max(sizes[1:]) <= 100 + 5_000


def count_again(rows: fk.Stream, stand: Stand) -> None:
    stats = rows.group_by("auction", id="again").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(f"{stand.prefix}again", key="auction", value=fk.Json())


def test_longer_steps_than_the_quickest_run_in_a_thread() -> None:
    flow = fk.Flow("f", regime=fk.EagerCheckpoint(step="50ms"))
    bids = flow.source("bids", key="auction", value=fk.Json(BID))
    bids.sink("out", key="auction", value=fk.Json())
    bids.with_regime(fk.LazyCheckpoint(step="2s")).sink("slow", key="auction", value=fk.Json())
    stages = flow.plan().stages
    assert {stage.regime.step.total_seconds(): step_threads(stage, stages) is not None for stage in stages} == {
        0.05: False,
        2.0: True,
    }


def test_a_worker_s_threads_give_the_interpreter_away_soon(stand: Stand) -> None:
    stand.topic()
    flow = fk.Flow(stand.name, regime=fk.EagerCheckpoint(step="50ms"))
    count(flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID)), f"{stand.prefix}stats")
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        with stand.worker(flow):
            assert sys.getswitchinterval() == pytest.approx(SWITCH)
    finally:
        sys.setswitchinterval(before)
