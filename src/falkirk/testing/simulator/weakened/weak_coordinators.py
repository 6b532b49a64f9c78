"""Transaction coordinators that move, and brokers that refuse, under protocols that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from falkirk.checkpoint import transaction
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log
from falkirk.checkpoint.tasks import ClosedStep, Owned
from falkirk.checkpoint.transaction import Fate
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.plan import Doubt, Failover, Plan, Refuse
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.weakened.weak_transactions import resolve_by_trying_again
from falkirk.testing.simulator.weakened.weakening import COMMIT, ONE, Patch, Schedule, Weakening

_commit = SimLog.commit
_LATE = Doubt(worker=0, on="sends EndTxn(commit): the coordinator has moved", order=Order.LOSE)


async def aborted_when_moved(self: SimLog, what: str, request: Callable[[], object]) -> Order:
    """Whatever is asked of a coordinator that has moved counts as not done."""
    self._open, self._queue = False, []
    raise Aborted(what)


async def resolve_as_committed(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    """Steps in doubt count as committed."""
    await transaction.renew(log, mine)
    for step in steps:
        transaction.apply(step, step.owned.read_on, {})
    return [Fate.COMMITTED] * len(steps)


async def commit_without_refused(self: SimLog) -> Mapping[TopicPartition, Offset]:
    """The records that the brokers refuse are left out."""
    self._queue = [b for b in self._queue if not self.broker.refuses(b.partition.topic, self.owner)]
    return await _commit(self)


COORDINATORS: dict[str, Weakening] = {
    "moved-is-aborted": Weakening(
        "a transaction counts as aborted when its coordinator moves",
        (Patch(SimLog, "_moved", aborted_when_moved),),
        Schedule(ONE, Plan((Failover(worker=0, on=COMMIT, at=2, turns=15, decided=True),))),
    ),
    "moved-tries-again": Weakening(
        "a coordinator that moved gave no answer in time: the step is tried again without reading; and it had committed",
        (Patch(transaction, "resolve", resolve_by_trying_again),),
        Schedule(ONE, Plan((Failover(worker=0, on=COMMIT, at=2, turns=15, decided=True), _LATE))),
    ),
    "moved-is-committed": Weakening(
        "a coordinator that moved gave no answer in time: the step counts as committed; and it had not",
        (Patch(transaction, "resolve", resolve_as_committed),),
        Schedule(ONE, Plan((Failover(worker=0, on=COMMIT, at=2, turns=15), _LATE))),
    ),
    "leave-out-refused": Weakening(
        "records that the brokers refuse are left out of their step",
        (Patch(SimLog, "commit", commit_without_refused),),
        Schedule(ONE, Plan((Refuse(worker=0, on=COMMIT, at=2, topic="out", turns=60),))),
    ),
}
