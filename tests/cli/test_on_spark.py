"""`falkirk run --on spark` with a Spark of this machine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connectors.spark.cluster.onspark import OnSpark
from tests.connectors.spark.cluster.standalone import until
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[OnSpark]:
    def topic(name: str, partitions: int) -> Topic:
        return Topic(kafka, topic_prefix + name, partitions)

    made = OnSpark(topic, tmp_path, "local[2]")
    yield made
    made.process.kill()
    made.process.wait()
    until(lambda: not made.children(), "workers end with their driver")


def test_a_flow_runs_on_a_local_spark_to_the_end_and_on_after_ctrl_c(app: OnSpark) -> None:
    app.feed(500)
    assert app.start("--until", "end").wait(PATIENCE_S) == 0, app.said()
    app.check()
    assert f"{app.app}: 4 tasks, 2 workers on Spark at local[2], pid {app.process.pid}" in app.said()
    assert "everything is processed: 500 input records" in app.said()
    assert "Spark's" not in app.said(), "its greetings"

    app.start()
    app.running(2)
    app.feed(100)
    app.check()
    app.process.send_signal(signal.SIGINT)
    assert app.process.wait(PATIENCE_S) == 0, app.said()
    assert app.handed_over()
    assert "Traceback" not in app.said()
