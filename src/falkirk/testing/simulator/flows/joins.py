"""An application whose source has more to read while it runs: a topic that its pattern matches, or partitions of its topic.

before the change   the workers read `orders-eu`
after it            they find `orders-us` too, or as many partitions again. They restart. A step records where these begin,
                    and then they read all
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from falkirk.checkpoint.ids import TopicPartition
from falkirk.stream.definition.pattern import Pattern
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import Int64
from falkirk.testing.cluster import Cluster
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.flows.flowing import Flowing
from falkirk.testing.simulator.plan import Change

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

HERE, JOINS, COPIES = "orders-eu", "orders-us", "copies"
JOINED = Change(worker=0, on="committer: sends EndTxn(commit): done", at=2, new=False, corrects=False)
"""The other topic joins when some of the first one is read."""


@dataclass(slots=True)
class Joins(Flowing):
    """The application. Each topic has `inputs` records."""

    tasks: int = 1
    grows: bool = False
    """Whether there are more partitions, and not another topic."""

    def create(self, broker: SimBroker) -> None:
        """Make the topics that there are at first."""
        flow = Flow("app", regime=self.regime)
        orders = flow.source(
            "orders", topic=HERE if self.grows else Pattern("orders-.*"), value=Json({"id": Int64}), metadata=["topic"]
        )
        orders.sink(COPIES, value=Json())
        self.begin(Cluster(flow.plan(), {HERE: self.tasks}), broker)
        self._order(self._first)

    def changed(self, world: World) -> None:
        """The others join, once."""
        if not self.earlier:
            number = self.cluster.tasks[0].task.layout
            self.earlier = {number: (self.cluster.tasks, self.cluster.layout)}
            if self.grows:
                self.cluster.grow(HERE, 2 * self.tasks)
            else:
                self.cluster.join(JOINS, self.tasks)
            self._order(self._others)

    @property
    def _first(self) -> list[TopicPartition]:
        return [TopicPartition(HERE, p) for p in range(self.tasks)]

    @property
    def _others(self) -> list[TopicPartition]:
        if self.grows:
            return [TopicPartition(HERE, self.tasks + p) for p in range(self.tasks)]
        return [TopicPartition(JOINS, p) for p in range(self.tasks)]

    def _order(self, places: list[TopicPartition]) -> None:
        for place in places:
            for i in range(self.inputs):
                value = json.dumps({"id": 100 * place.partition + i}).encode()
                self.cluster.broker[place].append(None, value, 0, None)

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return COPIES

    def holds(self, world: World, *, ended: bool) -> None:
        """In the end, the sink has each record of each partition once. Raises Broken."""
        if not ended:
            return
        places = [*self._first, *(self._others if self.earlier else [])]
        due = Counter((place.topic, 100 * place.partition + i) for place in places for i in range(self.inputs))
        found = Counter[tuple[str, int]]()
        for partition in world.broker.partitions(COPIES):
            for entry in partition.committed(0, partition.end, trimmed=True)[0]:
                row = json.loads(entry.value or b"{}")
                found[row["topic"], row["id"]] += 1
        if found != due:
            raise Broken(f"joined: lost {dict(due - found)}, and doubled {dict(found - due)}")
