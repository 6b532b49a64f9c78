"""Workers whose writes take long, and that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Callable

from falkirk.checkpoint.ports import Aborted, Unknown
from falkirk.checkpoint.regimes import Lazy
from falkirk.connectors.kafka.transactions.delivery import Delivery
from falkirk.runtime.worker.pacing import Pacer
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.plan import Plan, Slow
from falkirk.testing.simulator.toy import Toy
from falkirk.testing.simulator.weakened.weakening import COMMIT, NAME, Patch, Schedule, Weakening

_arrives = SimLog._arrives
SIX_AT_ONCE = Toy(tasks=1, recovery=Lazy, inputs=6, at_once=6)


async def aborted_when_given_up(self: SimLog, what: str, request: Callable[[], object], records: int) -> None:
    """What is not waited for any longer counts as not done, and the producer goes on."""
    epoch = self._epoch
    try:
        await _arrives(self, what, request, records)
    except Unknown as doubt:
        self._epoch = epoch
        raise Aborted(doubt.cause.what, doubt.cause.why) from doubt


def forget_how_slow(self: Delivery) -> None:
    """The next transaction gets no more time than the first."""
    self._open, self._slow = False, 0


def nothing(*_: object) -> None:
    """Nothing happens."""


def slow(every: int, *, quota: bool = False) -> Plan:
    """Each worker's first step of rows is slow, and all after it."""
    return Plan(tuple(Slow(worker=w, on=COMMIT + ": done", every=every, quota=quota) for w in (0, 1)))


LINES: dict[str, Weakening] = {
    "never-give-up": Weakening(
        "a transaction is waited for until the coordinator ends it",
        (Patch(Delivery, "given_up", nothing),),
        Schedule(SIX_AT_ONCE, slow(60)),
    ),
    "given-up-is-aborted": Weakening(
        "a transaction that is given up counts as aborted, and its producer goes on",
        (Patch(SimLog, "_arrives", aborted_when_given_up),),
        Schedule(
            Toy(tasks=1, recovery=Lazy, inputs=1),
            Plan((Slow(worker=0, on=NAME + ": done", every=160, turns=300, quota=True),)),
        ),
        lacks_too=("deaf-to-quotas",),
    ),
    "retry-as-large": Weakening(
        "a step that was not written in time is tried again as it was",
        (Patch(Pacer, "slow", nothing),),
        Schedule(SIX_AT_ONCE, slow(40)),
    ),
    "retry-in-same-time": Weakening(
        "however often a transaction is given up, the next one gets no more time",
        (Patch(Delivery, "_factor", 1),),
        Schedule(Toy(tasks=1, recovery=Lazy, inputs=1), slow(100)),
    ),
    "forget-how-slow": Weakening(
        "after a transaction that needed more time, the next one gets no more than the first",
        (Patch(Delivery, "committed", forget_how_slow),),
        Schedule(Toy(tasks=1, recovery=Lazy, inputs=3, at_once=3), slow(100)),
    ),
    "deaf-to-quotas": Weakening(
        "a broker that says how long it takes nothing more is not heard",
        (Patch(Delivery, "throttled", nothing),),
        Schedule(Toy(tasks=1, recovery=Lazy, inputs=2, at_once=2), slow(90, quota=True)),
        lacks_too=("retry-in-same-time",),
    ),
}
