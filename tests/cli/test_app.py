"""An app from the command line: run to the end, asked how it is, run by one worker alone."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from tests.cli.live import kill_all, workers
from tests.runtime.observe.collector import Collector
from tests.waiting import PATIENCE_S

from falkirk.cli.running import bound
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import UnreachableError
from falkirk.runtime.host.settings import Settings

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(every="1s"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())
"""


class Running:
    """An app's files, and the commands on it."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.name, self.folder = brokers, f"{prefix}app", folder
        self.source = f"{prefix}bids"
        (folder / "app.py").write_text(FLOW.format(name=self.name, prefix=prefix))
        Topics(Cluster(brokers)).create(self.source, 2, 1, {})
        self.processes: list[subprocess.Popen[str]] = []

    def feed(self, count: int, bursts: int = 1) -> None:
        """So many records, each burst when the one before is in the topic."""
        producer = Producer({"bootstrap.servers": self.brokers, "partitioner": "murmur2", "enable.idempotence": True})
        for _ in range(bursts):
            for i in range(count):
                producer.produce(self.source, json.dumps({"auction": i % 7}), str(i % 7))
            producer.flush()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers]
        process = subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(process)
        return process

    def call(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def close(self) -> None:
        """kill -9 of every run that has not ended, with all that it has started."""
        for process in self.processes:
            if process.poll() is None:
                kill_all(process)

    def status(self) -> dict[str, Any]:
        code, out, err = self.call("status", self.name, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    def until(self, state: str) -> dict[str, Any]:
        """The status, once it is `state`: at first there is not even an app."""
        for _ in range(60):
            code, out, err = self.call("status", self.name, "--json")
            if code == 0 and (found := json.loads(out))["state"] == state:
                assert isinstance(found, dict)
                return found
            time.sleep(0.5)
        raise AssertionError(out or err)


def answering(process: subprocess.Popen[str]) -> str:
    """Where a worker answers over HTTP, as it says."""
    assert process.stderr is not None
    line = next(line for line in process.stderr if "metrics at " in line)
    return line.partition("metrics at ")[2].partition("/metrics")[0]


def asked(url: str) -> tuple[int, str]:
    """Once it answers that all is well, which a worker that has just begun does not."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(url) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            if time.monotonic() > deadline:
                raise AssertionError(error.read().decode()) from error
            time.sleep(0.1)


def figures(url: str, name: str) -> list[float]:
    """The values of a metric, whatever its labels."""
    lines = asked(f"{url}/metrics")[1].splitlines()
    return [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{")]


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Running]:
    running = Running(kafka, topic_prefix, tmp_path)
    yield running
    for process in running.processes:
        process.kill()
        process.wait()


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


@pytest.mark.slow
def test_an_app_is_run_to_the_end_asked_how_it_is_and_run_on_by_a_worker_alone(
    app: Running, collector: Collector
) -> None:
    app.feed(100)
    code, _, err = app.call("run", "app.py:flow", "--until", "end", "--traces", collector.url)
    assert code == 0, err
    assert "worker 0 (pid " in err
    assert f"{app.name}: everything is processed: 100 input records in the sources; this run took " in err

    spans = collector.spans()
    told = [(about["falkirk.task"], about["falkirk.outcome"]) for name, about in spans if name == "falkirk.takeover"]
    assert sorted(told) == [("counts/0", "running"), ("counts/1", "running")]
    steps = [about for name, about in spans if name == "falkirk.step" and about["falkirk.outcome"] == "committed"]
    assert sum(int(step["falkirk.records.read"]) for step in steps) == 100
    assert {"falkirk.version", "falkirk.read", "falkirk.compute", "falkirk.commit"} <= {name for name, _ in spans}

    found = app.status()
    assert (found["state"], found["lag"], found["layout"], found["workers"]) == ("stopped", 0, 1, [])
    assert [t["task"] for t in found["tasks"]] == ["counts/0", "counts/1"]
    assert all(t["owner"] is None and t["step"] >= 0 for t in found["tasks"])
    assert sum(i["position"] for t in found["tasks"] for i in t["inputs"]) == 100

    app.feed(11)
    assert app.status()["lag"] == 11

    worker = app.start("worker", "app.py:flow", "--http", "0")
    found = app.until("running")
    assert found["lag"] == 0
    (alone,) = found["workers"]
    assert (alone["member"], alone["tasks"], alone["pid"]) == (True, 2, worker.pid)
    assert {t["owner"] for t in found["tasks"]} == {alone["worker"]}
    code, out, _ = app.call("status", app.name)
    assert code == 0
    assert f"{app.name}  running  layout 1  lag 0" in out

    code, _, err = app.call("worker", "app.py:flow")
    assert code == 9
    assert f"error: worker 0 of app '{app.name}' runs already, with pid {worker.pid}" in err

    url = answering(worker)
    assert asked(f"{url}/ready") == (200, "ok\n")
    assert asked(f"{url}/live") == (200, "ok\n")
    deadline = time.monotonic() + PATIENCE_S
    while sum(read := figures(url, "falkirk_records_read_total")) < 11:  # what is committed is reported a second later
        assert time.monotonic() < deadline, read
        time.sleep(0.1)
    assert (len(read), sum(read)) == (2, 11)
    assert figures(url, "falkirk_task_running") == [1, 1]
    assert figures(url, "falkirk_commit_seconds_count")[0] >= 1

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
    found = app.status()
    assert (found["state"], found["workers"]) == ("stopped", [])
    assert all(t["owner"] is None for t in found["tasks"])


@pytest.mark.slow
def test_tasks_of_a_killed_worker_are_not_shown_as_running_though_the_group_has_not_noticed_it(app: Running) -> None:
    app.feed(10)
    run = app.start("run", "app.py:flow", "--workers", "1", "--session-timeout", "5m")
    app.until("running")
    deadline = time.monotonic() + PATIENCE_S
    while len(workers(run)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    worker, spare = workers(run)
    spare.suspend()  # nobody takes its place yet
    worker.kill()
    found = app.until("recovering")
    assert [w["member"] for w in found["workers"]] == [True]
    assert [(t["phase"], t["host"]) for t in found["tasks"]] == [("recovering", socket.gethostname())] * 2
    spare.resume()
    assert [w["pid"] for w in app.until("running")["workers"]] == [spare.pid]


@pytest.mark.slow
def test_a_second_supervisor_on_a_state_directory_is_told_so_at_once(app: Running) -> None:
    app.feed(1)
    first = app.start("run", "app.py:flow")
    app.until("running")
    code, _, err = app.call("run", "app.py:flow")
    assert code == 9
    assert f"error: app '{app.name}' runs already, with pid {first.pid}" in err
    assert "to do: stop that one first, or give this one a separate state directory" in err
    assert app.status()["state"] == "running"
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_the_status_of_an_app_that_is_not_there_or_of_a_cluster_that_does_not_answer(app: Running) -> None:
    code, _, err = app.call("status", "nobody")
    assert code == 2
    assert "error: there is no app 'nobody' on this cluster" in err
    app.brokers = "127.0.0.1:1"
    code, _, err = app.call("status", "nobody")
    assert code == 3
    assert "no broker answers at 127.0.0.1:1" in err


def test_a_worker_says_what_is_wrong_with_the_exit_code_of_its_kind(app: Running) -> None:
    producer = Producer({"bootstrap.servers": app.brokers, "enable.idempotence": True})
    producer.produce(app.source, json.dumps({"auction": 5}), b"not 5")
    producer.flush()
    code, _, err = app.call("worker", "app.py:flow")
    assert code == 4, err
    assert "error: " in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_run_whose_workers_work_already_waits_for_a_cluster_that_is_away(
    embedded: Callable[..., EmbeddedKafka], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded()
    app = Running(broker.start(), "", tmp_path)
    settings = Settings(app.brokers, str(tmp_path / "state"))
    broker.kill()
    begun = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        binding = thread.submit(bound, f"{tmp_path}/app.py:flow", settings, begun)
        deadline = time.monotonic() + PATIENCE_S
        while "what shows them waits: no broker answers" not in caplog.text:
            assert not binding.done()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert broker.start() == app.brokers
        assert binding.result(PATIENCE_S)[0].name == app.name
        broker.kill()
        begun.set()
        with pytest.raises(UnreachableError):
            thread.submit(bound, f"{tmp_path}/app.py:flow", settings, begun).result(PATIENCE_S)
