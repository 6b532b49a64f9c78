"""The log on a real Kafka keeps the contract that the simulated one keeps."""

from __future__ import annotations

import itertools
import time
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from tests.checkpoint.log_contract import Harness, LogContract
from tests.waiting import PATIENCE_S

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import OwnerId
from falkirk.checkpoint.ports import Log
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.group.group import Membership
from falkirk.connectors.kafka.transactions.log import KafkaLog

T = TypeVar("T")


class RealWorker:
    """A log and its place in a group; the group's metadata can be held fast, as a sleeping worker holds it."""

    def __init__(self, cluster: Cluster, group: str, name: str, instance: str, kind: type[KafkaLog]) -> None:
        self.cluster, self.group, self.instance = cluster, group, instance
        self.membership = self.joined()
        held = self.membership.metadata()
        self.log = kind(cluster, OwnerId(name), lambda: held)
        driver.run(self.log.renew())

    def joined(self) -> Membership:
        """A membership under this worker's instance id."""
        assigned: list[int] = []
        membership = Membership(
            self.cluster,
            group=self.group,
            instance=self.instance,
            topic=self.group,
            session_timeout_ms=6000,
            on_assigned=assigned.extend,
            on_revoked=lambda _: None,
            on_lost=lambda _: None,
        )
        membership.join()
        deadline = time.monotonic() + PATIENCE_S
        while not assigned and time.monotonic() < deadline:
            membership.poll()
            time.sleep(0.01)
        assert assigned, "the group gave this worker no task"
        return membership


class RealHarness:
    """A cluster, and workers in it. Each worker has a group of its own: tasks are not what is tried here."""

    def __init__(self, brokers: str, kind: type[KafkaLog] = KafkaLog) -> None:
        self.cluster, self.kind = Cluster(brokers), kind
        self.prefix = f"log-contract-{uuid4().hex[:8]}"
        self.topics = Topics(self.cluster)
        self.workers: dict[int, RealWorker] = {}
        self.numbers = itertools.count()

    def log(self, name: str) -> Log:
        n = next(self.numbers)
        group = f"{self.prefix}-group-{n}"
        self.topics.create(group, 1, 1, {})
        worker = RealWorker(self.cluster, group, f"{self.prefix}-{name}", f"{name}-{n}", self.kind)
        self.workers[id(worker.log)] = worker
        return worker.log

    def topic(self, partitions: int) -> str:
        name = f"{self.prefix}-topic-{next(self.numbers)}"
        self.topics.create(name, partitions, 1, {})
        return name

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return driver.run(work)

    def expel(self, log: Log) -> None:
        self.workers[id(log)].membership.leave()

    def rejoin(self, log: Log) -> None:
        worker = self.workers[id(log)]
        worker.membership.close()  # as a process that dies: its session goes on
        worker.membership = worker.joined()

    def close(self) -> None:
        for worker in self.workers.values():
            worker.log.close()
            worker.membership.close()


@pytest.mark.kafka
class TestKafkaLog(LogContract):
    @pytest.fixture
    def world(self, kafka: str) -> Iterator[Harness]:  # type: ignore[override]
        harness = RealHarness(kafka)
        yield harness
        harness.close()
