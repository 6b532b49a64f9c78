"""A worker's threads end with it: others may follow it in the same process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.bad_input.stand import Stand
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.tasks import Phase
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.app.app import prepare
from falkirk.runtime.messages.protocol import Report
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.runtime.worker.work import work


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_threads_of_a_closed_pool_end_after_the_jobs_that_wait() -> None:
    pool, go = ThreadPool(2, "closed-pool"), threading.Event()
    ends = [pool.submit(partial(go.wait, 30)) for _ in range(5)]
    pool.close()
    pool.close()
    assert len(threads("closed-pool")) == 2
    go.set()
    assert [end.result(PATIENCE_S) for end in ends] == [True] * 5
    until(lambda: not threads("closed-pool"))


def test_a_closed_pool_takes_no_job_that_nobody_would_run() -> None:
    pool = ThreadPool(2, "refusing-pool")
    assert pool.submit(lambda: 7).result(PATIENCE_S) == 7
    pool.close()
    with pytest.raises(RuntimeError, match="threads refusing-pool have been ended"):
        pool.submit(lambda: 8)


@pytest.mark.kafka
def test_a_worker_that_has_left_leaves_no_thread(stand: Stand) -> None:
    names = "falkirk-open", "falkirk-version", "falkirk-copy"
    before = {thread for name in names for thread in threads(name)}
    stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    assert sum(stand.counts("stats").values()) == 20
    until(lambda: not {thread for name in names for thread in threads(name)} - before)


def clients() -> int:
    """The clients of librdkafka in this process: each has a thread of this name."""
    return sum(path.read_text() == "rdk:main\n" for path in Path("/proc/self/task").glob("*/comm"))


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in Linux's /proc")
def test_a_worker_that_is_outgrown_leaves_no_client_of_kafka_behind(stand: Stand) -> None:
    """Its successor in the same process has as many as it had."""
    stand.topic(partitions=1)
    flow = stand.flow(repartition=True)
    topics = Topics(stand.settings.cluster())
    app = prepare(flow.plan(""), stand.settings, topics)
    had: dict[int, int] = {}
    """By the number of partitions that are read."""

    def say(report: Report) -> None:
        read = {place for task in report.tasks for place in task.places if task.phase == Phase.RUNNING.value}
        if len(read) not in (0, *had):
            had[len(read)] = clients()
            if len(had) == 1:
                stand.grow(2)

    deadline = time.monotonic() + PATIENCE_S
    work(app, stand.settings, topics, 0, lambda: len(had) == 2 or time.monotonic() > deadline, say)
    assert sorted(had) == [1, 2]
    assert had[2] <= had[1]
