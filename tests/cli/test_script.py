"""`flow.run` from a script: what `falkirk run` does, and what it says where it cannot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.cli.script import target_of
from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.flow.load import load_flow

SCRIPT = """
from __future__ import annotations
import sys
import falkirk as fk

flow = fk.Flow("{prefix}app")
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": int}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())

if __name__ == "__main__":
    flow.run(sys.argv[1], until="end")
    print("processed", flush=True)
    flow.run(sys.argv[1], workers=1, set={{"log_level": 3}})
    print("left", flush=True)
"""

FAILING = """
from __future__ import annotations
import sys
import falkirk as fk

flow = fk.Flow("{prefix}app")
bids = flow.source("{prefix}bids", value=fk.Json({{"auction": int}}))
bids.map(lambda row: 1 / 0, on_error=fk.Stop()).sink("{prefix}out", value=fk.Json())

if __name__ == "__main__":
    try:
        flow.run(sys.argv[1], until="end")
    except fk.errors.UserCodeError as error:
        print(type(error).__name__, error.exit_code, error.what, flush=True)
"""

in_a_file = fk.Flow("in-a-file")


@pytest.mark.kafka
def test_a_script_runs_its_flow_and_goes_on_after_the_end_and_after_ctrl_c(
    kafka: str, tmp_path: Path, topic_prefix: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.format(prefix=topic_prefix))
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True})
    bids = Topic(kafka, f"{topic_prefix}bids", 2)
    for i in range(20):
        producer.produce(bids.name, json.dumps({"auction": i % 4}), str(i % 4))
    producer.flush()
    script = subprocess.Popen(
        [sys.executable, "script.py", kafka], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert script.stdout is not None
        assert script.stderr is not None
        assert script.stdout.readline() == "processed\n"
        runs = 0
        while runs < 2:
            assert script.poll() is None
            runs += "tasks, 1 worker," in script.stderr.readline()
        script.send_signal(signal.SIGINT)
        said, errors = script.communicate(timeout=PATIENCE_S)
    finally:
        script.kill()
    assert (script.returncode, said) == (0, "left\n"), errors
    assert "app stops: it commits the last steps" in errors


@pytest.mark.kafka
def test_what_ends_a_worker_is_raised_as_what_it_is(kafka: str, tmp_path: Path, topic_prefix: str) -> None:
    (tmp_path / "script.py").write_text(FAILING.format(prefix=topic_prefix))
    bids = Topic(kafka, f"{topic_prefix}bids", 1)
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    producer.produce(bids.name, json.dumps({"auction": 1}))
    producer.flush()
    command = [sys.executable, "script.py", kafka]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("UserCodeError 5 "), ended.stderr
    assert "ZeroDivisionError" in ended.stdout


def test_a_flow_of_a_package_is_found_by_its_name() -> None:
    assert target_of(in_a_file) == f"{__name__}:in_a_file"


def test_a_flow_that_no_file_has_is_refused_with_what_to_do() -> None:
    with pytest.raises(DefinitionError, match=r"workers could not find flow 'local'.*\n.*%%writefile app.py"):
        fk.Flow("local").run("localhost:1")


def test_a_script_that_runs_its_flow_while_it_is_loaded_is_told_how_not_to(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text('import falkirk as fk\nflow = fk.Flow("unguarded")\nflow.run("localhost:1")\n')
    with pytest.raises(DefinitionError, match=r'workers does\n.*unguarded.py:3\n.*if __name__ == "__main__"'):
        load_flow(f"{script}:flow")


def test_options_are_those_of_the_command() -> None:
    with pytest.raises(ConfigError, match=r"flow\.run: No such option '--wrokers'"):
        in_a_file.run("localhost:1", wrokers=2)
    with pytest.raises(ConfigError, match="no brokers given"):
        in_a_file.run()
    with pytest.raises(ConfigError, match="a Kafka of its own"):
        in_a_file.dev(brokers="localhost:1")


def test_another_thread_is_refused() -> None:
    raised: list[BaseException] = []

    def call() -> None:
        try:
            in_a_file.run("localhost:1")
        except ConfigError as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "outside of the main thread" in str(raised[0])
