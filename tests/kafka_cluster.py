"""Several nodes that form one cluster on loopback, for tests of what happens when a leader dies.

    EmbeddedCluster ── node 1, node 2, node 3      each broker and controller, with its own data folder and ports

Unlike the single node of `EmbeddedKafka`, a silent node is given up by the others: its leaders move after `SESSION_MS`.
So a crashed node needs no recovery. But it should not come back before it was given up (`given_up`): recovery.py tells
what a Kafka broker does if it starts while it is still taken for alive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata  # type: ignore[attr-defined]
from rich.console import Console

from falkirk.connectors.embedded import settings as files
from falkirk.connectors.embedded.jvm import Jvm
from falkirk.connectors.embedded.node import EmbeddedKafka, free_port, new_cluster_id, prepared_jvm
from falkirk.errors import ClusterError
from falkirk.wording import counted

SESSION_MS = 3_000
"""If a broker is silent for so long, its leaders move: a third of Kafka's default."""
STOP_TIMEOUT_S = 10.0
PATIENCE_S = 180.0
"""To wait for the wanted cluster state."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a larger cluster."""

    cluster_id: str
    number: int
    """Its id, from 1."""
    controllers: tuple[int, ...]
    """The ports of all nodes' controllers, in the order of the nodes."""
    session_ms: int
    """A broker that is silent this long is given up."""


def member_properties(log_dirs: str, port: int, member: Member, extra: Mapping[str, str]) -> str:
    """The text of server.properties for a node of a cluster; `extra` settings win.

    >>> text = member_properties("data", 9092, Member("id", 2, (9093, 9094, 9095), 3000), {})
    >>> [line for line in text.splitlines() if "voters" in line or line.startswith(("node", "min"))]
    ['node.id=2', 'controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.1:9094,3@127.0.0.1:9095', 'min.insync.replicas=2']
    """
    everything = {
        **files.controller(log_dirs, member.number, member.controllers),
        **files.broker(port, member.controllers[member.number - 1]),
        **files.replicated(len(member.controllers)),
        **files.SMALL_MACHINE,
        "broker.session.timeout.ms": str(member.session_ms),
        "broker.heartbeat.interval.ms": str(member.session_ms // 6),
        **files.STRICT,
        **extra,
    }
    return files.as_text(everything)


class Node(EmbeddedKafka):
    """One of the cluster's nodes."""

    def __init__(
        self,
        data_dir: Path,
        port: int,
        member: Member,
        *,
        heap: str,
        settings: Mapping[str, str],
        console: Console,
    ) -> None:
        super().__init__(data_dir, port, heap=heap, settings=settings, console=console)
        self.member = member

    @property
    def number(self) -> int:
        """The broker's id."""
        return self.member.number

    def _known(self) -> tuple[str, int]:
        return self.member.cluster_id, self.port

    def _properties(self, log_dirs: str) -> str:
        return member_properties(log_dirs, self.port, self.member, self._settings)

    def _recover(self, jvm: Jvm) -> None:
        """The other nodes have given it up."""


class EmbeddedCluster:
    """A Kafka cluster of `nodes` nodes. Topics have a replica on each and stay writable without one of three.

    with EmbeddedCluster(Path("data")) as cluster:
        cluster.nodes[0].kill()
        cluster.given_up(cluster.nodes[0])
        cluster.nodes[0].start()
        cluster.whole()
    """

    def __init__(
        self,
        data_dir: Path,
        nodes: int = 3,
        *,
        heap: str = "384m",
        settings: Mapping[str, str] | None = None,
        console: Console | None = None,
    ) -> None:
        """`settings` are broker settings (server.properties) that replace Falkirk's."""
        console = console or Console(stderr=True)
        ports: list[int] = []
        while len(ports) < 2 * nodes:
            if (port := free_port()) not in ports:
                ports.append(port)
        cluster_id, controllers = new_cluster_id(), tuple(ports[nodes:])
        self._console = console
        self.nodes: Sequence[Node] = tuple(
            Node(
                data_dir / f"node-{i + 1}",
                ports[i],
                Member(cluster_id, i + 1, controllers, SESSION_MS),
                heap=heap,
                settings=settings or {},
                console=console,
            )
            for i in range(nodes)
        )

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, running or not."""
        return ",".join(f"{files.HOST}:{node.port}" for node in self.nodes)

    def start(self) -> str:
        """Start all nodes, as none serves alone, and wait until they form one cluster. Raises ClusterError, and what
        `EmbeddedKafka.start` raises."""
        prepared_jvm(self._console)
        try:
            with ThreadPoolExecutor(len(self.nodes), "falkirk-node") as threads:
                list(threads.map(lambda node: node.start(), self.nodes))
            self._until(self._missing, "all brokers have joined")
        except BaseException:
            self.stop()
            raise
        return self.bootstrap

    def stop(self) -> None:
        """End all nodes."""
        with ThreadPoolExecutor(len(self.nodes), "falkirk-node") as threads:
            list(threads.map(lambda node: node.stop(STOP_TIMEOUT_S), self.nodes))

    def given_up(self, node: Node) -> None:
        """Wait until the others have given a dead node up: it leads no partition. Raises ClusterError."""

        def lacking(metadata: ClusterMetadata) -> str:
            if node.number in metadata.brokers:
                return f"node {node.number} counts as alive"
            return _each(metadata, lambda p: p.leader in (-1, node.number), "without a living leader")

        self._until(lacking, f"node {node.number} was given up")

    def whole(self) -> None:
        """Wait until every replica of every partition is in sync. Raises ClusterError."""

        def lacking(metadata: ClusterMetadata) -> str:
            behind = _each(metadata, lambda p: p.leader == -1 or set(p.isrs) != set(p.replicas), "not in sync")
            return self._missing(metadata) or behind

        self._until(lacking, "all replicas are in sync")

    def balance(self) -> int:
        """Move every partition's leader to its preferred replica, under any load. Returns how many have moved."""
        admin = self._admin()
        try:
            moved = admin.elect_leaders(ElectionType.PREFERRED).result()
        except KafkaException as error:
            raise ClusterError(f"leaders could not be moved: {error.args[0].str()}", where=self.bootstrap) from error
        return sum(error is None for error in moved.values())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _missing(self, metadata: ClusterMetadata) -> str:
        """The nodes that are not there, in words."""
        missing = [str(node.number) for node in self.nodes if node.number not in metadata.brokers]
        return f"missing nodes: {', '.join(missing)}" if missing else ""

    def _until(self, lacking: Callable[[ClusterMetadata], str], what: str) -> None:
        """Ask a running broker until nothing is lacking: a stopped one may give old metadata for a moment."""
        deadline = time.monotonic() + PATIENCE_S
        admin = self._admin()
        while True:
            try:
                if not (why := lacking(admin.list_topics(timeout=2))):
                    return
            except KafkaException as error:
                if error.args[0].code() not in (
                    KafkaError._TRANSPORT,
                    KafkaError._ALL_BROKERS_DOWN,
                    KafkaError._TIMED_OUT,
                ):
                    raise
                why = f"no broker answers: {error.args[0].str()}"
                admin = self._admin()  # the next connection may be to another broker
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"after {PATIENCE_S:g} s it is still not true that {what} ({why})",
                    where=self.bootstrap,
                    hint="the ends of the nodes' kafka.log say more",
                )
            time.sleep(0.1)


def _each(metadata: ClusterMetadata, lacks: Callable[[PartitionMetadata], bool], what: str) -> str:
    """The first partition that lacks something, and how many do, in words."""
    found = [f"{t.topic}-{p.id}" for t in metadata.topics.values() for p in t.partitions.values() if lacks(p)]
    return f"{counted(len(found), 'partition')} {what}, the first: {found[0]}" if found else ""
