"""A shadow's workers: they rebuild an operator beside an app, as an app of their own, and die while they do.

the run      the shadow's workers read what the app has read, and keep the operator's new state in their changelog
after it     the app has read a little more, and ends; the next flow takes over what the changelog has up to its end, with
             all that was aborted in it, and reads the rest

The equation is that of a rebuild (`rebuilds`): in the end the sink says what the next flow says of all input.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.regimes.eager import TOMBSTONE_RETENTION
from falkirk.checkpoint.tasks import ends
from falkirk.runtime.layout.layout import ShadowRecord
from falkirk.testing.cluster import Cluster
from falkirk.testing.process import Process
from falkirk.testing.simulator.check import Broken, steps
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.coordinator import Concurrent
from falkirk.testing.simulator.flows.flowing import Flowing, end, move_to, run_to_end
from falkirk.testing.simulator.flows.rebuilds import PAID, SUMS, check_sums, flow_of, pay
from falkirk.testing.simulator.flows.shadows import made_by, shadow_beside

if TYPE_CHECKING:
    from falkirk.testing.simulator.world import World


@dataclass(slots=True)
class ShadowWorkers(Flowing):
    """The application: a shadow. Each partition of the source has `inputs` records."""

    tasks: int = 1
    upto: int = 3
    """How many the app has read when the shadow begins: so many are read again."""
    more: int = 1
    """How many it reads until it ends."""
    app: Cluster = field(init=False, repr=False)
    """The app that it is beside."""

    def create(self, broker: SimBroker) -> None:
        """Make the topics of both, and write the input."""
        self.app = Cluster(flow_of(1, self.regime).plan(), {PAID: self.tasks})
        move_to(broker, self.app)
        self.begin(shadow_beside(self.app, flow_of(2, self.regime).plan(), SUMS, self.upto), broker)
        pay(broker, range(self.inputs))

    def says(self, t: int) -> str:
        """A shadow says nothing: no topic has this name."""
        return ""

    def ends(self, broker: SimBroker, t: int) -> dict[InputPartition, Offset]:
        """It reads what the app has read."""
        return {i.partition: Offset(self.upto) for i in self.bound(t).inputs}

    def holds(self, world: World, *, ended: bool) -> None:
        """No task is ahead of the app's; and in the end the app takes over what they have made. Raises Broken."""
        for t in range(self.tasks):
            if (chain := steps(world.broker, self, t)) and max(ends(chain[-1]).values()) > self.upto:
                raise Broken(f"shadow: task {t} has read up to {ends(chain[-1])}, and the app up to {self.upto}")
        if ended:
            self.shut_out(world)
            self.take_over(world, made_by(self.cluster, world.broker))

    def take_over(self, world: World, made: Mapping[str, ShadowRecord]) -> None:
        """The app ends, and the next flow goes on with what the shadow has made. Raises Broken unless the sink says in the
        end what it would say if that flow had always run."""
        self.app.shadows, self.app.chunk = made, self.most
        self.app.nonce = world.nonce  # type: ignore[method-assign]  # no name twice
        for place in (log for bound in self.cluster.tasks for log in bound.task.recovery.log_partitions):
            world.broker[place].compact(world.broker.now, TOMBSTONE_RETENTION)
        process = Process(self.app)
        process.close(self.upto + self.more)
        process.commit()
        end(process)
        self.app.change(flow_of(2, self.regime).plan(), rebuilt=[SUMS])
        run_to_end(self.app, 2)
        check_sums(world.broker, self.tasks, self.inputs)

    @staticmethod
    def shut_out(world: World) -> None:
        """End the shadow, whatever its workers are doing (`falkirk.runtime.rebuild.shadows`): its group is gone, and its
        owners are fenced."""
        broker = world.broker
        broker.settle()
        for host in world.hosts:
            broker.group.expire(host.name)
            with suppress(Concurrent):  # what is open is aborted first
                broker.coordinator.init(host.name)
            broker.settle()
