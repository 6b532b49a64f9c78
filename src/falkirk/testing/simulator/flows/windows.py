"""An application that counts in windows of event time, and rolls back selectively while workers die.

Rows are out of order, and some come too late. A step reads one record or a few, and nearly each completes a window. So a
worker that takes a task over often needs nothing of what was before.

That a store is what all steps up to its own make of it, on whichever disk, `check` compares byte for byte. The equation here
compares with windows in plain Python.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from falkirk.checkpoint.regimes import Lazy, Recovery
from falkirk.stream.aggregates.builtin import len_
from falkirk.stream.definition.regimes import LazyCheckpoint
from falkirk.stream.definition.windows import tumbling
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import Int64, String
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.cluster import Cluster
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.flows.flowing import Flowing, task_of_key

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

BIDS, ENDED = "bids", "ended"
SIZE, LATE = 1_000, 300
"""Of windows, and of what is waited for, in milliseconds."""
BIDDERS = ("ann", "bob")
STEP, BACK = 400, (0, 200, 0, 900, 100)
"""Event time from one record to the next; and by how much earlier every so manieth record is: one of them is late."""


@dataclass(slots=True)
class Windowed(Flowing):
    """The application. Each partition of the source has `inputs` records."""

    tasks: int = 1
    recovery: type[Recovery] = Lazy
    version_every: int = 10
    apart: int = STEP
    """Event time from one record to the next."""

    def create(self, broker: SimBroker) -> None:
        """Make the topics, and write the input. Each step has a selective checkpoint, if it can have one."""
        flow = Flow("app", regime=LazyCheckpoint(selective=True))
        value = Json({"who": String, "at": Int64})
        bids = flow.source(BIDS, key="who", value=value, time="at", late=timedelta(milliseconds=LATE))
        windows = bids.group_by("who", tumbling("at", timedelta(milliseconds=SIZE)), id="windows")
        windows.agg(n=len_()).final().sink(ENDED, key="who", value=Json())
        plan = flow.plan()
        [stage] = plan.stages
        assert isinstance(stage, PhysicalStage)
        often = replace(stage, regime=replace(stage.regime, selective=timedelta(0)))
        self.begin(Cluster(replace(plan, stages=(often,)), {BIDS: self.tasks}), broker)
        for partition in broker.partitions(BIDS):
            for who, at in self.bids(partition.name.partition, broker.now):
                partition.append(who.encode(), json.dumps({"who": who, "at": at}).encode(), broker.now, None)

    def bids(self, t: int, began: int) -> list[tuple[str, int]]:
        """The input of task t: who bids, and when."""
        who = [name for n in range(99) if task_of_key(name := f"{BIDDERS[n % 2]}{n}", self.tasks) == t][:2]
        first = began // SIZE * SIZE
        return [(who[i % 2], first + self.apart * i - BACK[i % len(BACK)]) for i in range(self.inputs)]

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return ENDED

    def holds(self, world: World, *, ended: bool) -> None:
        """In the end each complete window is told once, with all its bids that were not late. Raises Broken."""
        if not ended:
            return
        found = Counter[tuple[str, int, int]]()
        for partition in world.broker.partitions(ENDED):
            for entry in partition.committed(0, partition.end, trimmed=True)[0]:
                row = json.loads(entry.value or b"{}")
                found[row["who"], row["window_start"], row["n"]] += 1
        due = Counter(window for t in range(self.tasks) for window in self.complete(world, t))
        if found != due:
            raise Broken(f"windows: {dict(found - due)} are told and should not be, {dict(due - found)} are not told")

    def complete(self, world: World, t: int) -> list[tuple[str, int, int]]:
        """The windows of task t that end at its last watermark or before."""
        began = world.broker[self.bound(t).inputs[0].place].entries[0].timestamp
        greatest, counts = 0, Counter[tuple[str, int]]()
        for who, at in self.bids(t, began):
            if at >= greatest - LATE:
                counts[who, at // SIZE * SIZE] += 1
            greatest = max(greatest, at)
        return [(who, start, n) for (who, start), n in counts.items() if start + SIZE <= greatest - LATE]
