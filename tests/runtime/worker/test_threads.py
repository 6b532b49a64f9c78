"""A worker's threads end with it: others may follow it in the same process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from tests.bad_input.stand import Stand
from tests.waiting import PATIENCE_S

from falkirk.runtime.worker.threads import ThreadPool


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
def test_a_worker_that_has_left_leaves_no_thread_that_opens_stores(stand: Stand) -> None:
    before = threads("falkirk-open")
    stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    assert sum(stand.counts("stats").values()) == 20
    until(lambda: not {*threads("falkirk-open")} - {*before})
