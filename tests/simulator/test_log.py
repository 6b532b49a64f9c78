"""The simulated log keeps the contract that the real one keeps."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from tests.checkpoint.log_contract import Harness, LogContract

from falkirk.checkpoint.ids import OwnerId
from falkirk.checkpoint.ports import Log
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.group import Group, Member
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.points import Point, drive

T = TypeVar("T")


class Simulated:
    """A cluster that does one pending thing at each point: the newest or the oldest first."""

    def __init__(self, *, newest_first: bool) -> None:
        self.broker = SimBroker(group=Group(1))
        self.newest_first = newest_first
        self.logs: list[SimLog] = []
        self.deaf: list[SimLog] = []
        self.topics = (f"t{i}" for i in itertools.count())

    def log(self, name: str) -> Log:
        group = self.broker.group
        log = SimLog(self.broker, OwnerId(name), Member(group, name, group.join(name)))
        self.logs.append(log)
        return log

    def topic(self, partitions: int) -> str:
        topic = next(self.topics)
        self.broker.create(topic, partitions)
        return topic

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        for log in self.logs:
            if log.member is not None and log not in self.deaf:
                log.member.heartbeat()
        return drive(work, self.background)

    def background(self, _: Point) -> None:
        for log in self.logs:
            log.deliver()
        if todo := self.broker.pending():
            self.broker.do(todo[-1 if self.newest_first else 0])

    def expel(self, log: Log) -> None:
        assert isinstance(log, SimLog)
        self.broker.group.expire(log.owner)
        self.deaf.append(log)

    def rejoin(self, log: Log) -> None:
        assert isinstance(log, SimLog)
        self.broker.group.join(log.owner)
        self.deaf.append(log)


class TestSimLog(LogContract):
    @pytest.fixture(params=[True, False], ids=["newest marker first", "oldest marker first"])
    def world(self, request: pytest.FixtureRequest) -> Harness:
        return Simulated(newest_first=request.param)
