"""The cluster goes away while a worker runs: it says so, tries on, and goes on exactly where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bad_input.stand import Stand

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.app.until_end import UntilEnd

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_worker_outlives_a_cluster_that_is_away(
    embedded: Callable[..., EmbeddedKafka], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded()
    broker.start()
    stand = Stand(broker.bootstrap, "away-", tmp_path)
    stand.topic()
    stand.bids(100)
    stop = threading.Event()
    with stand.worker(stand.flow(), session_timeout_ms=1000) as worker:
        thread = threading.Thread(target=worker.run, args=(stop.is_set,))
        thread.start()
        try:
            settled(stand, worker.topics)
            broker.stop()
            wait(lambda: "has not answered" in caplog.text, 20)
            broker.start()
            stand.bids(100)
            settled(stand, worker.topics)
            wait(lambda: "answers again" in caplog.text, 20)  # the watch asks now and then, and a step may come first
        finally:
            stop.set()
            thread.join()
    stand.assert_exact()


def settled(stand: Stand, topics: Topics) -> None:
    end = UntilEnd(stand.app(stand.flow()), stand.settings.cluster(), topics)
    wait(end.finished, 60)
    end.close()


def wait(until: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)
