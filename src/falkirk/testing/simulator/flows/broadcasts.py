"""An application that looks its records up in a broadcast table. The table grows while the workers run, and die.

copy       each worker takes the table in, one record after the other; a crash loses the last writes of the copy
look-up    a task steps when its worker's copy is as far as the task has seen the table
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from falkirk.checkpoint.ids import Offset, Step, TopicPartition
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.steps import HEADER, maker
from falkirk.runtime.worker.reading.broadcast import SharedTables, TableCopy
from falkirk.stream.circuit.broadcast import NEVER, Keeper, Run
from falkirk.stream.dataflow.circuit import SharedRows
from falkirk.stream.dataflow.records import Records
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import Int64, String
from falkirk.testing.cluster import Cluster
from falkirk.testing.edges import MemoryEdges
from falkirk.testing.simulator.check import Broken, steps
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.flows.flowing import FlowDomain, Flowing
from falkirk.testing.simulator.points import Point, reach

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

ORDERS, SIZES, SIZED = "orders", "sizes", "sized"
TABLE = TopicPartition(SIZES, 0)
ITEMS = ("cup", "jug")
ROWS, EVERY = 8, 25
"""The records of the table, and the turns between two of them."""


@dataclass(slots=True)
class BroadcastDomain(FlowDomain):
    """A worker's tasks, and its copy of the table."""

    reader: MemoryEdges = field(init=False)

    def open_tables(self) -> SharedTables:
        """The worker's broadcast tables, on its disk."""
        cluster = self.flow.cluster
        self.reader = MemoryEdges(cluster)
        tables = [TableCopy(table, 1, self.disk.table(table.source.topic)) for table in cluster.plan.shared]
        return SharedTables(tables, self.reader, lambda places: dict.fromkeys(places, Offset(0)))

    async def turn(self) -> bool:
        """As of any flow; and the next record of the table is taken in."""
        if more := self.reader.at[TABLE] < self.broker[TABLE].end:
            await reach(Point(f"takes in {SIZES} from {self.reader.at[TABLE]}"))
        self.reader.allow(1)
        self.inputs.tables.tick()
        return await FlowDomain.turn(self) or more


@dataclass(slots=True)
class Broadcasts(Flowing):
    """The application. Each task has `inputs` records to look up."""

    tasks: int = 1
    runs: ClassVar[type[Domain] | None] = BroadcastDomain

    def create(self, broker: SimBroker) -> None:
        """Make the topics, and the first row of each item."""
        flow = Flow("app", regime=self.regime)
        sizes = flow.table(SIZES, key="item", value=Json({"item": String, "size": Int64}), broadcast=True)
        orders = flow.source(ORDERS, value=Json({"id": Int64, "item": String}))
        orders.lookup(sizes, "item").sink(SIZED, value=Json())
        self.begin(Cluster(flow.plan(), {ORDERS: self.tasks, SIZES: 1}), broker)
        for partition in broker.partitions(ORDERS):
            for i in range(self.inputs):
                order = {"id": 100 * partition.name.partition + i, "item": ITEMS[i % len(ITEMS)]}
                partition.append(None, json.dumps(order).encode(), 0, None)
        for _ in ITEMS:
            self._grow(broker)

    def passes(self, world: World) -> None:
        """Now and then the table changes."""
        if world.turn % EVERY == 0 and world.broker[TABLE].end < ROWS:
            self._grow(world.broker)

    def _grow(self, broker: SimBroker) -> None:
        offset = broker[TABLE].end
        item = ITEMS[offset % len(ITEMS)]
        broker[TABLE].append(item.encode(), json.dumps({"item": item, "size": offset}).encode(), 0, None)

    def shared(self, record: StepRecord) -> Mapping[str, SharedRows]:
        """The table at the position that the step has recorded."""
        [table], end = self.cluster.plan.shared, seen_of(record)
        keeper, state = Keeper(table), Overlay(EmptyReader())
        if found := self.cluster.between(TABLE, 0, end):
            keeper.keep(Run(0, NEVER, Records.of(found)), state, NEVER)
        return {table.source.id: keeper.seen(state, NEVER)}

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return SIZED

    def holds(self, world: World, *, ended: bool) -> None:
        """In the end, each record is there once, with the last row that was below the position that its step recorded. Raises
        Broken."""
        if not ended:
            return
        seen = {(r.task, r.step): seen_of(r) for t in range(self.tasks) for r in steps(world.broker, self, t)}
        found = Counter[int]()
        for partition in world.broker.partitions(SIZED):
            for entry in partition.committed(0, partition.end, trimmed=True)[0]:
                row, made = json.loads(entry.value or b"{}"), maker(dict(entry.headers)[HEADER])
                assert made is not None
                found[row["id"]] += 1
                end, item = seen[made.task, Step(made.step)], ITEMS.index(row["item"])
                if row["size"] != (due := max(n for n in range(end) if n % len(ITEMS) == item)):
                    raise Broken(f"table: {row} was looked up below {end}, where the size is {due}")
        if found != Counter(100 * t + i for t in range(self.tasks) for i in range(self.inputs)):
            raise Broken(f"table: {dict(found)} were looked up")


def seen_of(record: StepRecord) -> int:
    """How far a step has seen the table."""
    return next(r.end for r in record.division if r.partition.topic == SIZES)
