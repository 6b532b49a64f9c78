"""Two workers under load, one of them killed: every answer about a key is what a read_committed reader derives for it.

history(t, k)   = the records of the sink that task t wrote for key k, by step
answer (n, row) = the last of history(t, k) with step ≤ n
404 at n        = history(t, k) has none with step ≤ n
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from tests.bad_input.stand import KEYS, Stand
from tests.runtime.query.asking import ask
from tests.soak.check.seen import parse_mark
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.status import read_status

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOKEN = "not-a-secret-in-a-test"
SINKS = {"stats": ("auction", "stats-out"), "spent": ("bidder", "spent-out")}
FLOW = """
flow = fk.Flow(NAME, regime=fk.EagerCheckpoint(step="20ms"))
value = fk.Json({"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64})
bids = flow.source(PREFIX + "bids", value=value, key="auction")
stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"), usual=fk.mean("price"))
stats.sink(PREFIX + "stats-out", key="auction", value=fk.Json())
spent = bids.with_regime(fk.LazyCheckpoint(step="30ms", every="1s")).group_by("bidder", id="spent")
spent.agg(n=fk.len(), usd=fk.sum("price")).sink(PREFIX + "spent-out", key="bidder", value=fk.Json())
"""


class Heard(NamedTuple):
    """An answer: 200 or 404."""

    operator: str
    key: int
    status: int
    body: dict[str, Any]


class Clients:
    """Ask random keys of random workers, as long as the block lasts."""

    def __init__(self, urls: dict[int, str]) -> None:
        self.urls = urls
        self.heard: list[Heard] = []
        self.statuses: Counter[str] = Counter()
        self.broken: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(4)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def answered(self) -> int:
        """How many questions were answered so far with a row."""
        return self.statuses["200"]

    def _ask(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._stop.is_set():
            operator, key = chance.choice(sorted(SINKS)), chance.randrange(KEYS + 1)
            _, url = chance.choice(sorted(self.urls.items()))
            try:
                reply = ask(url, f"/state/{operator}/{key}", TOKEN)
            except (OSError, HTTPException):
                self.statuses["nobody"] += 1
                time.sleep(0.05)
                continue
            self.statuses[str(reply.status)] += 1
            if reply.status in (200, 404):
                self.heard.append(Heard(operator, key, reply.status, reply.body))
            elif reply.status == 503 and reply.headers.get("Retry-After"):
                time.sleep(0.05)
            else:
                self.broken.append(f"{operator}/{key}: {reply}")


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(kafka, topic_prefix, tmp_path)
    yield stand
    stand.close()


def endpoints(stand: Stand) -> dict[int, str]:
    """The addresses of the workers that have one, by process."""
    try:
        found = read_status(stand.name, stand.settings, Topics(stand.settings.cluster()))
    except ConfigError:
        return {}  # it has not begun yet
    return {w.pid: w.query for w in found.workers if w.pid is not None and w.query and w.member}


def until(what: str, condition: Any, stand: Stand, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {stand._going[-1].said.read_text()}"
        time.sleep(0.1)


def histories(stand: Stand, sink: str) -> dict[tuple[str, int], tuple[list[int], list[Any]]]:
    """By task and key: the steps of the sink's records, and their values."""
    found: dict[tuple[str, int], tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
    for one in stand.read(stand.prefix + sink):
        assert one.mark is not None
        task, step, _ = parse_mark(one.mark)
        steps, values = found[task, int(one.key or b"")]
        steps.append(step)
        values.append(None if one.value is None else orjson.loads(one.value))
    return found


def wrong(heard: list[Heard], stand: Stand) -> list[str]:
    """The answers that differ from what the sinks' records say of that step."""
    of = {operator: histories(stand, sink) for operator, (_, sink) in SINKS.items()}
    found = []
    for one in heard:
        column = SINKS[one.operator][0]
        at = [one.body] if one.body["task"] is not None else one.body["tasks"]
        for told in at:
            steps, values = of[one.operator].get((told["task"], one.key), ([], []))
            place = bisect_right(steps, told["step"])
            due = values[place - 1] if place else None
            row = one.body["row"]
            if (None if row is None else {column: one.key, **row}) != due:
                found.append(f"{one}, due: {due}")
        if one.status == 200 and not any(one.key == key for task, key in of[one.operator] if task == one.body["task"]):
            found.append(f"{one}: its task never wrote this key")
    return found


def test_every_answer_is_the_state_after_the_step_that_it_names_through_kill_9(stand: Stand, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    stand.topic(partitions=4)
    stand.bids(200)
    stand.start(FLOW, "--workers", "2", "--query", "0", "--query-token-file", str(token))
    until("two endpoints", lambda: len(endpoints(stand)) == 2, stand)
    urls = endpoints(stand)
    with Clients(urls) as clients:
        until("answers", lambda: clients.answered() > 50, stand)
        for _ in range(30):
            stand.bids(20)
            time.sleep(0.02)
        killed = min(urls)
        os.kill(killed, signal.SIGKILL)
        for _ in range(30):
            stand.bids(20)
            time.sleep(0.02)
        until("another worker", lambda: killed not in (now := endpoints(stand)) and len(now) == 2, stand)
        del urls[killed]
        urls.update(endpoints(stand))
        before = clients.answered()
        for _ in range(50):
            stand.bids(20)
            time.sleep(0.02)
        until("answers again", lambda: clients.answered() > before + 100, stand)
    assert clients.broken == []
    counts = {sink: {task for task, _ in histories(stand, sink)} for _, sink in SINKS.values()}
    assert all(len(tasks) > 1 for tasks in counts.values()), "nothing was asked of another worker"
    assert {one.body["task"] for one in clients.heard if one.status == 200} == set().union(*counts.values())
    assert wrong(clients.heard, stand) == []
    assert {one.status for one in clients.heard} == {200, 404}

    # A reader of the sink asks for what it has read, at either worker: the answer is of that step at least.
    later: list[Heard] = []
    for operator, (_, sink) in SINKS.items():
        for (task, key), (steps, _) in histories(stand, sink).items():
            for url in endpoints(stand).values():
                reply = ask(url, f"/state/{operator}/{key}?min-step={steps[-1]}", TOKEN)
                assert (reply.status, reply.body["task"]) == (200, task)
                assert reply.body["step"] >= steps[-1]
                later.append(Heard(operator, key, reply.status, reply.body))
    assert later
    assert wrong(later, stand) == []
