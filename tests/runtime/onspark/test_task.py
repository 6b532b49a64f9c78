"""What a task of Spark's does, in a process that is none of Spark's: one worker is kept going until it is to leave."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from tests.connectors.spark.cluster.onspark import OnSpark
from tests.connectors.spark.cluster.standalone import end, until
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

from falkirk.runtime.messages.orders import order_to_leave
from falkirk.runtime.spark_workers.parcel import Parcel
from falkirk.runtime.spark_workers.task import Assignment
from falkirk.stream.definition.names import PREFIX, control_topic

pytestmark = [pytest.mark.kafka]

TASK = """
import sys
from falkirk.runtime.spark_workers.task import host
print("ended", host(3, open(sys.argv[1], "rb").read()), flush=True)
"""


@dataclass
class Tasks:
    """Tasks of one run."""

    app: OnSpark

    def __post_init__(self) -> None:
        files = {name: (self.app.folder / name).read_bytes() for name in ("app.py", "prices.py")}
        settings = replace(
            self.app.settings, state_dir=str(self.app.folder / "state"), session_timeout_ms=2000, workers=9
        )
        self.control = control_topic(PREFIX, self.app.app)
        work = Assignment(Parcel("app.py:flow", files), settings, self.control, "one")
        self.elsewhere = self.app.folder / "elsewhere"
        self.elsewhere.mkdir()
        (self.elsewhere / "work").write_bytes(pickle.dumps(work))

    def start(self) -> subprocess.Popen[str]:
        """One, in a folder without the flow's files."""
        command = [sys.executable, "-c", TASK, "work"]
        self.app.process = subprocess.Popen(command, cwd=self.elsewhere, stdout=subprocess.PIPE, text=True)  # type: ignore[assignment]
        return self.app.process  # type: ignore[return-value]

    def worker(self) -> psutil.Process:
        """The worker process."""
        self.app.running(1)
        (found,) = self.app.children()
        return found


@pytest.fixture
def tasks(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Tasks]:
    def topic(name: str, partitions: int) -> Topic:
        return Topic(kafka, topic_prefix + name, partitions)

    app = OnSpark(topic, tmp_path, "")
    app.log.touch()
    yield Tasks(app)
    app.process.kill()
    app.process.wait()


@pytest.mark.slow
def test_a_worker_is_replaced_dies_with_its_task_goes_on_with_the_next_and_leaves_when_told(tasks: Tasks) -> None:
    app = tasks.app
    app.feed(100)
    task = tasks.start()
    first = tasks.worker()
    found = app.running(1)
    assert [w.worker.rpartition("-")[2] for w in found.workers] == ["3"], "it is the worker of its slot"
    end(first)
    until(lambda: [p.pid for p in app.children()] not in ([], [first.pid]), "another takes its place")
    second = tasks.worker()
    app.feed(100)
    app.check()
    task.kill()
    until(lambda: not second.is_running() or second.status() == psutil.STATUS_ZOMBIE, "the worker dies with its task")

    task = tasks.start()
    again = app.running(1)
    assert again.workers[0].worker == found.workers[0].worker, "the host knows its identity"
    order_to_leave(app.settings.cluster(), tasks.control, "one")
    said, _ = task.communicate(timeout=PATIENCE_S)
    assert said == "ended None\n"
    app.feed(0)
    left = app.status()
    assert left is not None
    assert {t.owner for t in left.tasks} == {None}


def test_an_error_that_stays_is_what_the_task_returns(tasks: Tasks) -> None:
    tasks.app.sent = -3
    tasks.app.feed(1)
    said, _ = tasks.start().communicate(timeout=PATIENCE_S)
    assert said.startswith("ended (")
    assert "no such bid" in said
    assert said.endswith(", 5)\n")
