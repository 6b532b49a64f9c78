"""One Kafka node, both broker and controller, and its life.

    (no data) ──start: format──▶ STOPPED ──start──▶ RUNNING ──stop──▶ STOPPED
                                    ▲                  │ kill, crash
                                    └── start: recover ┘

The data folder holds all of it: `node.json` (cluster id and port), `data/` (Kafka's own files), `kafka.log`, and
`kafka.pid` while it runs. `data/` is formatted under another name and renamed: it exists ⇔ it is fully formatted.
"""

from __future__ import annotations

import base64
import fcntl
import json
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from falkirk.connectors.embedded import settings as files
from falkirk.connectors.embedded.jars import fetch_jars, kafka_version
from falkirk.connectors.embedded.jvm import Jvm, fast_jvm
from falkirk.connectors.embedded.process import RunningNode, spawn
from falkirk.connectors.embedded.recovery import crashed, fence_crashed_broker
from falkirk.connectors.embedded.trouble import check_folder, check_port, death, port_is_free
from falkirk.connectors.java import find_java
from falkirk.errors import ClusterError

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0

# Below the ports that systems use for outgoing connections (from 32,768 on Linux, 49,152 on macOS). Otherwise, while the
# broker is down, a client that reconnects can be given the broker's own port, and the broker could not come back.
_OWN_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What `falkirk kafka status` shows. `topics` counts those that people made; None if the node does not answer."""

    running: bool
    data_dir: Path
    size_bytes: int
    version: str
    bootstrap: str | None = None
    pid: int | None = None
    topics: int | None = None


class EmbeddedKafka:
    """A private Kafka for the process that starts it, with its data in `data_dir`.

    It dies with that process, unless `detached`. `port` 0 means the data folder's last one, or else a free one.
    `settings` are broker settings (server.properties) that replace Falkirk's.

        with EmbeddedKafka(Path("data")) as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        heap: str = "512m",
        settings: Mapping[str, str] | None = None,
        detached: bool = False,
        console: Console | None = None,
        jvm: Jvm | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.port = port
        self._jvm = jvm
        self._heap, self._settings, self._detached = heap, dict(settings or {}), detached
        self._console = console or Console(stderr=True)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients: "127.0.0.1:PORT". Raises ClusterError if the node does not run."""
        if (node := self.running()) is None:
            raise ClusterError("the embedded Kafka does not run", where=str(self.data_dir), hint="start it first")
        return _address(node.port)

    @property
    def log(self) -> Path:
        """The broker's log; it is rotated at 10 MB, and three older ones are kept."""
        return self.data_dir / "kafka.log"

    @property
    def last_port(self) -> int:
        """The port of the data folder's last start; 0 before the first."""
        return self._known()[1]

    def running(self) -> RunningNode | None:
        """The node that runs on this data folder, started by anyone."""
        node = RunningNode.read(self._pid_file)
        return node if node is not None and node.alive() else None

    def start(self) -> str:
        """Start the node, wait until it answers, and return its bootstrap address.

        Raises ClusterError (port taken, already running, no network for the first download, died at its start),
        DiskError (full, not writable) or ConfigError (no Java).
        """
        check_folder(self.data_dir)
        with self._alone():
            if (node := self.running()) is not None:
                raise ClusterError(
                    f"Kafka already runs on this data folder, at {_address(node.port)} (pid {node.pid})",
                    where=str(self.data_dir),
                    hint="use it, or end it with `falkirk kafka stop`",
                )
            self._pid_file.unlink(missing_ok=True)
            jvm = self._jvm or prepared_jvm(self._console)
            cluster_id, self.port = self._identity()
            check_port(self.port)
            (self.data_dir / "log4j2.properties").write_text(files.LOGGING_PROPERTIES)
            if not (self.data_dir / "data").exists():
                self._format(jvm, cluster_id)
            elif crashed(self.data_dir / "data"):
                self._recover(jvm)
            return self._launch(jvm)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the node cleanly; kill it if it still runs after `timeout_s` seconds. If stopped, it stays so."""
        node = self.running()
        if node is not None:
            node.signal(signal.SIGTERM)
            if not node.wait(timeout_s):
                node.signal(signal.SIGKILL)
                node.wait(timeout_s)
        self._reap()
        if self._pid_file.exists():
            self._pid_file.unlink()

    def kill(self) -> None:
        """End the node as a crash would: with SIGKILL, without a clean-up."""
        node = self.running()
        if node is not None:
            node.signal(signal.SIGKILL)
            node.wait(STOP_TIMEOUT_S)
        self._reap()

    def restart(self) -> str:
        """Stop the node, start it again on the same port, and return its bootstrap address."""
        self.stop()
        return self.start()

    def status(self) -> NodeStatus:
        """The node's status, whether it runs or not."""
        node, size = self.running(), _size_on_disk(self.data_dir)
        if node is None:
            return NodeStatus(False, self.data_dir, size, kafka_version())
        topics = _topics(_address(node.port), timeout_s=5)
        return NodeStatus(True, self.data_dir, size, node.version, _address(node.port), node.pid, topics)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / "kafka.pid"

    @property
    def _node_file(self) -> Path:
        return self.data_dir / "node.json"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        # Of two starts at once, the second waits, and then finds the first one's node.
        with (self.data_dir / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _identity(self) -> tuple[str, int]:
        """The cluster id, chosen once for each data folder, and the port, kept from one start to the next."""
        cluster_id, last_port = self._known()
        port = self.port or (last_port if last_port and port_is_free(last_port) else free_port())
        partial = self.data_dir / "node.partial"
        partial.write_text(json.dumps({"cluster_id": cluster_id, "port": port}))
        partial.replace(self._node_file)
        return cluster_id, port

    def _known(self) -> tuple[str, int]:
        try:
            known = json.loads(self._node_file.read_text())
            return known["cluster_id"], known["port"]
        except FileNotFoundError:
            return new_cluster_id(), 0

    def _write_settings(self, log_dirs: str) -> str:
        """Write the broker's settings; the file's name in the folder."""
        (self.data_dir / "server.properties").write_text(self._properties(log_dirs))
        return "server.properties"

    def _properties(self, log_dirs: str) -> str:
        # Only the node itself uses the controller's port, so it may be a new one at each start.
        return files.server_properties(log_dirs, self.port, free_port(), self._settings)

    def _format(self, jvm: Jvm, cluster_id: str) -> None:
        fresh = self.data_dir / "data.fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        tool = [*jvm.command("128m"), "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        command = [*tool, "--config", self._write_settings(fresh.name)]
        done = subprocess.run(command, cwd=self.data_dir, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(
                "Kafka's data folder could not be formatted",
                where=f"{self.data_dir}: {(done.stdout + done.stderr).strip()[-1000:]}",
                hint="the message above is Kafka's own",
            )
        fresh.rename(self.data_dir / "data")

    def _recover(self, jvm: Jvm) -> None:
        self._console.print("The last node was not stopped. Its data is kept and recovered …")
        console, log_start = self._fresh_console()
        (self.data_dir / "controller.properties").write_text(files.controller_properties("data", free_port()))
        (self.data_dir / "recovery.properties").write_text(files.RECOVERY_LOGGING_PROPERTIES)
        command = [*jvm.command("128m", "recovery.properties"), "kafka.Kafka", "controller.properties"]
        if not fence_crashed_broker(command, self.data_dir, console):
            raise death(console, self.log, log_start)

    def _fresh_console(self) -> tuple[Path, int]:
        """The emptied file for the JVM's output, and where its log's next line begins."""
        console = self.data_dir / "console.log"
        console.write_bytes(b"")
        self.log.touch()
        return console, self.log.stat().st_size

    def _launch(self, jvm: Jvm) -> str:
        self._console.print(f"Starting Apache Kafka {kafka_version()} ({jvm.java}) …")
        console, log_start = self._fresh_console()
        command = [*jvm.command(self._heap), "kafka.Kafka", self._write_settings("data")]
        self._child, pid = spawn(command, self.data_dir, console, detached=self._detached)
        try:
            node = RunningNode(pid, psutil.Process(pid).create_time(), self.port, kafka_version())
            node.write(self._pid_file)
            address = _wait_until_it_answers(node)
        except BaseException:
            self.kill()
            self._pid_file.unlink(missing_ok=True)
            raise
        if address is not None:
            return address
        mute = node.alive()
        self.kill()
        self._pid_file.unlink()
        raise death(console, self.log, log_start, mute=mute)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait(STOP_TIMEOUT_S)
            if self._child.stdin is not None:
                self._child.stdin.close()
            self._child = None


def prepared_jvm(console: Console) -> Jvm:
    """The JVM of the user's Java with Kafka's jars; what is missing is fetched and prepared, once.

    Raises ClusterError (no network for the first download), DiskError or ConfigError (no Java).
    """
    return fast_jvm(find_java(), fetch_jars(console=console), console, _train)


def _train(jvm: Jvm) -> None:
    """Run a broker once, to load its classes."""
    with tempfile.TemporaryDirectory(prefix="falkirk-") as folder:
        node = EmbeddedKafka(Path(folder, "node"), console=Console(quiet=True), jvm=jvm)
        node.start()
        node.stop(START_TIMEOUT_S)


def _wait_until_it_answers(node: RunningNode) -> str | None:
    """The node's address once it serves clients; None if it dies or is silent too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while node.alive() and time.monotonic() < deadline:
        if _listens(node.port) and _topics(_address(node.port), timeout_s=2) is not None:
            return _address(node.port)
        time.sleep(0.05)
    return None


def _listens(port: int) -> bool:
    try:
        socket.create_connection((files.HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _topics(address: str, timeout_s: float) -> int | None:
    """How many topics people made; None if the broker does not answer, or has not joined its own cluster yet."""
    try:
        cluster = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return sum(not topic.startswith("__") for topic in cluster.topics) if cluster.brokers else None


def _address(port: int) -> str:
    return f"{files.HOST}:{port}"


def free_port() -> int:
    """A port for a broker, also when it starts again."""
    return next(port for port in random.sample(_OWN_PORTS, len(_OWN_PORTS)) if port_is_free(port))


def new_cluster_id() -> str:
    """A cluster id in Kafka's form: 22 characters of URL-safe base64.

    >>> len(new_cluster_id())
    22
    """
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return new_cluster_id() if text.startswith("-") else text  # a command line would take it for a flag


def _size_on_disk(folder: Path) -> int:
    """The bytes that `folder` takes on disk. Kafka's index files are sparse, so their lengths would mislead."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # Kafka deletes segments while we count
            continue
    return total
