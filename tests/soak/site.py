"""Where a soak takes place: the clusters, and what a run and our own processes are told of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.kafka_cluster import EmbeddedCluster
from tests.security.secured import secured
from tests.soak.consumers import PATIENT
from tests.soak.system import ROOT

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.testing.registry import RegistryServer

QUIET = Console(quiet=True)
"""A broker's words would break up the progress on the screen."""

OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Everybody may do everything; and rights can be granted, which asks for somebody who knows of rights."""

PASSWORD = "open sesame"
SETTINGS = """
brokers = "{own}"

[kafka]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "soak"
sasl.password = {{env = "SOAK_PASSWORD"}}
ssl.ca.location = "{certificate}"

[cluster.sales]
brokers = "{sales}"
"""


@dataclass(frozen=True, slots=True)
class Site:
    """What there is."""

    own: str
    """The brokers of the app's cluster, for clients that may do everything."""
    source: str
    """Those of the cluster that has the load."""
    options: tuple[str, ...]
    """What `falkirk run` is told of them."""
    nodes: tuple[EmbeddedKafka, ...]
    """What may be killed."""
    cluster: EmbeddedCluster | None = None
    """What the nodes form, where that is one cluster."""


@contextmanager
def site(target: str, flow: str, folder: Path, partitions: int, brokers: int) -> Iterator[Site]:
    """Everything up, and the topic of the load made."""
    if flow == "daily":
        there = _daily(target, folder, partitions)
    else:
        there = _plain(folder, partitions) if brokers == 1 else _several(folder, partitions, brokers)
    with there as made:
        yield made


@contextmanager
def _plain(folder: Path, partitions: int) -> Iterator[Site]:
    with EmbeddedKafka(folder / "kafka", console=QUIET) as node:
        _make(node.bootstrap, partitions)
        yield Site(node.bootstrap, node.bootstrap, ("--brokers", node.bootstrap), (node,))


@contextmanager
def _several(folder: Path, partitions: int, brokers: int) -> Iterator[Site]:
    with EmbeddedCluster(folder / "kafka", brokers, console=QUIET) as cluster:
        _make(cluster.bootstrap, partitions)
        cluster.whole()
        yield Site(cluster.bootstrap, cluster.bootstrap, ("--brokers", cluster.bootstrap), cluster.nodes, cluster)


@contextmanager
def _daily(target: str, folder: Path, partitions: int) -> Iterator[Site]:
    """The app's cluster lets in those who have a password, over TLS, to what they have been granted; the load is in another
    one, and its schemas are in a registry."""
    (folder / "kafka").mkdir()
    with (
        RegistryServer() as registry,
        EmbeddedKafka(folder / "kafka" / "sales", console=QUIET, settings=OPEN) as sales,
        secured(folder / "kafka") as own,
        _environment(SOAK_REGISTRY=registry.url, SOAK_PASSWORD=PASSWORD),
    ):
        _make(sales.bootstrap, partitions)
        own.user("soak", PASSWORD)
        there = ("--cluster", f"sales={sales.bootstrap}")
        rights = [sys.executable, "-m", "falkirk", "topics", target, "--brokers", own.back, *there]
        subprocess.run(
            [*rights, "--acls", "--user", "soak", "--create"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        settings = folder / "falkirk.toml"
        settings.write_text(SETTINGS.format(own=own.front, certificate=own.certificate, sales=sales.bootstrap))
        yield Site(own.back, sales.bootstrap, ("--config", str(settings)), (own.node, sales))


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """What our own processes and the flow's are told. A later soak of this process must not find it."""
    before = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def _make(brokers: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers, **PATIENT})
    admin.create_topics([NewTopic("bids", partitions, -1)])["bids"].result()
