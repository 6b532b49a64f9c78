"""A broker that takes what is written slowly: the app gets on, in smaller steps, and says what it waits for."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

import orjson
import pytest
from tests.bad_input.quotas import set_producer_quota
from tests.bad_input.stand import Stand
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.worker.instructions import Commit
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.worker.pacing import IDLE_WAIT
from falkirk.runtime.worker.performer import UnderWay
from falkirk.runtime.worker.worker import Worker

pytestmark = pytest.mark.kafka


@pytest.fixture
def quota(stand: Stand) -> Iterator[str]:
    """The client id of an app that may write 60 KB a second."""
    name = f"{stand.prefix}thin"
    stand.settings = replace(stand.settings, client={"client.id": name})
    set_producer_quota(stand.brokers, name, 60_000)
    yield name
    set_producer_quota(stand.brokers, name, None)


def flow(stand: Stand) -> fk.Flow:
    flow = fk.Flow(stand.name)
    rows = flow.source(f"{stand.prefix}rows", value=fk.Json({"id": fk.Int64, "text": fk.String}))
    rows.sink(f"{stand.prefix}out", key="id", value=fk.Json())
    return flow


def fill(stand: Stand, count: int, size: int) -> None:
    """Rows that do not compress."""
    numbers = random.Random(1)
    stand.topic("rows", 2)
    for i in range(count):
        row = {"id": i, "text": f"{numbers.getrandbits(4 * size):x}"}
        stand.producer.produce(f"{stand.prefix}rows", orjson.dumps(row), str(i))
    assert stand.producer.flush(PATIENCE_S) == 0


def rows_read(worker: Worker) -> int:
    lasts = [task.owned.last for task in worker.tasks.values()]
    return sum(r.end for last in lasts if last is not None for r in last.division)


@pytest.mark.slow
def test_under_a_quota_each_record_is_written_once_in_steps_that_fit(
    stand: Stand, quota: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What waits is some 70 times what the quota allows for in a second, and a step or two, at first."""
    fill(stand, 8_000, 400)
    waits: set[str] = set()
    with caplog.at_level(logging.WARNING, "falkirk"), stand.worker(flow(stand)) as worker:
        end = UntilEnd(worker.app, stand.settings.cluster(), worker.topics)
        deadline = time.monotonic() + 400

        def finished() -> bool:
            assert time.monotonic() < deadline, f"{rows_read(worker)} rows are read"
            waits.add(worker.waits())
            return end.finished()

        worker.run(finished)
        end.close()
        [domain] = worker.domains.values()
        assert domain.pacer.most < 8_000
    assert any("delays writes, which are over the quota" in words for words in waits)
    assert "over its quota" in caplog.text
    assert sorted(row["id"] for row in stand.values("out")) == list(range(8_000))


def test_a_worker_whose_commit_takes_long_does_not_keep_a_core_busy(stand: Stand) -> None:
    """It looks a thousand times a second whether a commit has ended that is about to, and not one that hangs."""
    fill(stand, 10, 10)
    with stand.worker(flow(stand)) as worker:
        looks = []
        [domain] = worker.domains.values()
        domain.core.pipeline.staged = {"a step": object()}  # type: ignore[dict-item]
        performer = domain.performer
        for age in (0.0, 0.01, 0.1, 1.0, 60.0):
            performer._under_way = UnderWay(Commit([], []), Future(), time.monotonic() - age)
            looks.append(domain.poll_wait())
        performer._under_way = None
    assert looks[0] == pytest.approx(0.001, rel=0.5)
    assert looks == sorted(looks)
    assert looks[-1] == IDLE_WAIT
