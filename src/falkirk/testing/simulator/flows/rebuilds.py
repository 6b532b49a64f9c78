"""An application whose flow has changed, and that rebuilds an operator from its inputs while workers die.

before the run   the flow of before has read all that there was, and ended
the run          the new one reads it again, a few records a step; then it says what differs, and reads on. If a shadow
                 has read some of it before, the new one takes over what that has made, and reads the rest again
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from narwhals import col

from falkirk.stream import aggregates
from falkirk.stream.definition.regimes import Checkpoint
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import Int64, String
from falkirk.testing.cluster import Cluster
from falkirk.testing.simulator.check import Broken, steps
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.disk import Disk
from falkirk.testing.simulator.flows.flowing import Flowing, move_to, run_to_end
from falkirk.testing.simulator.flows.shadows import made_by, shadow_beside

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World

PAID, SUMS = "paid", "sums"
LEAST = {1: 10, 2: 4}
"""What the operator leaves out: amounts below. Version 2 fixes it."""
USERS = 3


def flow_of(version: int, regime: Checkpoint) -> Flow:
    """The flow: what each user has paid, of what is at least so much."""
    flow = Flow("app", regime=regime)
    paid = flow.source(PAID, key="user", value=Json({"user": String, "euros": Int64}))
    paid = paid.filter(col("euros") >= LEAST[version])
    sums = paid.group_by("user", id=SUMS, version=version)
    sums.agg(total=aggregates.sum("euros")).sink(SUMS, key="user", value=Json())
    return flow


@dataclass(slots=True)
class Rebuilds(Flowing):
    """The application. `inputs` records of each partition are read by the flow of before, and as many come later."""

    tasks: int = 1
    beside: int = 0
    """The records of each partition that a shadow has read again before the run. The new flow begins with what it made."""

    def create(self, broker: SimBroker) -> None:
        """Make the topics, with the layout of the flow of before."""
        self.begin(Cluster(flow_of(1, self.regime).plan(), {PAID: self.tasks}), broker)

    def before(self, world: World) -> None:
        """The flow of before reads, and ends. Then the app has the new one, and more comes in."""
        self.cluster.copies = world.copies
        self.cluster.disk = Disk(world.copies, rebuilds=lambda _: True)
        self.cluster.nonce = world.nonce  # type: ignore[method-assign]  # no name twice
        self._pay(0)
        run_to_end(self.cluster, 2)
        self.earlier = {1: (self.cluster.tasks, self.cluster.layout)}
        plan, self.cluster.chunk = flow_of(2, self.regime).plan(), self.most
        if self.beside:
            shadow = shadow_beside(self.cluster, plan, SUMS, self.beside)
            shadow.nonce = world.nonce  # type: ignore[method-assign]
            move_to(world.broker, shadow)
            run_to_end(shadow, 1)
            self.cluster.shadows = made_by(shadow, world.broker)
        self.cluster.change(plan, rebuilt=[SUMS])
        self._pay(self.inputs)

    def _pay(self, start: int) -> None:
        pay(self.cluster.broker, range(start, start + self.inputs))

    def says(self, t: int) -> str:
        """The topic that task t writes to."""
        return SUMS

    def holds(self, world: World, *, ended: bool) -> None:
        """In the end, the sink says what the new flow says of all input, and no task has anything left to rebuild. Raises
        Broken."""
        if not ended:
            return
        check_sums(world.broker, self.tasks, 2 * self.inputs)
        if left := [
            str(r.task) for t in range(self.tasks) if (r := steps(world.broker, self, t)[-1]).move and r.move.left
        ]:
            raise Broken(f"rebuilt: {left} are not done")


def amount(partition: int, i: int) -> tuple[str, int]:
    """The i-th record of an input partition: some amounts only the fixed operator counts."""
    return f"{partition}{'abc'[i % USERS]}", 2 + 5 * (i % 4) + i


def pay(broker: SimBroker, which: range) -> None:
    """Write these records of each input partition."""
    for partition in broker.partitions(PAID):
        for user, euros in (amount(partition.name.partition, i) for i in which):
            partition.append(user.encode(), json.dumps({"user": user, "euros": euros}).encode(), 0, None)


def check_sums(broker: SimBroker, tasks: int, inputs: int) -> None:
    """The sink says what the new flow says of so many records of each partition. Raises Broken."""
    due: Counter[str] = Counter()
    for p in range(tasks):
        for user, euros in (amount(p, i) for i in range(inputs)):
            due[user] += euros if euros >= LEAST[2] else 0
    found = {}
    for partition in broker.partitions(SUMS):
        for entry in partition.committed(0, partition.end, trimmed=True)[0]:
            assert entry.key is not None
            found[entry.key.decode()] = json.loads(entry.value or b"{}").get("total", 0)
    if found != {user: euros for user, euros in due.items() if euros}:
        raise Broken(f"rebuilt: the sink says {found}, and should say {dict(due)}")
