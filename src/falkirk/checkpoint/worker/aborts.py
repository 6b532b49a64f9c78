"""How a worker handles transactions that abort one after another: it waits longer each time, logs it, and stops if the broker
refuses their content.

    a broker that restarts, a coordinator that moves, a rebalance     tried again, for as long as it takes
    not written in time                                               tried again with fewer rows (`Pacer`)
    refused                                                           tried again REFUSALS times, then the app stops
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.ports import Cause, Why
from falkirk.checkpoint.tasks import ClosedStep, Owned
from falkirk.checkpoint.transaction import Fate
from falkirk.errors import ClusterError

logger = logging.getLogger("falkirk.kafka")

REFUSALS = 6
"""A task's steps are refused this many times in a row before the app stops. With the waits in between, that is a minute: a
broker in trouble may look like a refusal."""

LONGEST = 30.0
"""Seconds between two attempts, at most."""

QUIET = 2
"""This many failures in a row that pass by themselves cause no warning: a rebalance causes one."""

NOT_KNOWN = Cause(Why.TRANSIENT, "not known")

EVERY = 10.0
"""Seconds between two warnings of such failures."""


class Aborts:
    """The transactions of one worker that failed since the last one that committed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._refused: Counter[TaskId] = Counter()
        self._count, self._words = 0, ""
        self._since = self._until = self._warned = clock()

    def waiting(self) -> bool:
        """Whether the next attempt is not due yet."""
        return self._count > 0 and self.clock() < self._until

    def waits(self) -> str:
        """What is wrong, in words; "" if nothing is, or nothing worth reporting."""
        return self._words if self._count > QUIET or self._refused else ""

    def decided(self, steps: Sequence[ClosedStep], fates: Sequence[Fate]) -> None:
        """A transaction with these steps is decided. Raises ClusterError if it is useless to try again."""
        if Fate.COMMITTED in fates:
            self.committed(steps)
        elif aborted := [step for step, fate in zip(steps, fates, strict=True) if fate is Fate.ABORTED]:
            self.aborted(aborted)

    def committed(self, steps: Sequence[ClosedStep]) -> None:
        """A transaction with these steps committed."""
        self._count, self._words = 0, ""
        for step in steps:
            self._refused.pop(step.owned.task.id, None)

    def aborted(self, steps: Sequence[ClosedStep]) -> None:
        """One did not. Raises ClusterError if it is useless to try again."""
        cause = next((step.failed for step in steps if step.failed is not None), NOT_KNOWN)
        self._failed({step.owned.task.id: _where(step) for step in steps}, cause)

    def named(self, tasks: Sequence[Owned]) -> None:
        """A transaction has ended that was to name the owner of these tasks. Raises ClusterError if it is useless to try
        again."""
        unnamed = [owned for owned in tasks if owned.failed is not None]
        if not unnamed:
            self._count, self._words = 0, ""
            self._refused.clear()
        else:
            self._failed(
                {o.task.id: f"the name of the owner of task {o.task.id}" for o in unnamed},
                unnamed[0].failed or NOT_KNOWN,
            )

    def _failed(self, contents: Mapping[TaskId, str], cause: Cause) -> None:
        """`contents`: what the transaction holds of each task, in words."""
        if not self._count:
            self._since = self.clock()
        self._count += 1
        often = f"{self._count} times in a row, " if self._count > 1 else ""
        self._words = f"transactions have failed {often}for {self.clock() - self._since:.0f} s: {cause.what}"
        if cause.why is not Why.REFUSED:
            wait = 0.0 if self._count == 1 else min(1.0, 0.05 * 2 ** min(self._count, 10))
            self._say(cause, wait)
        else:
            self._refused.update(contents.keys())
            times = max(self._refused.values())
            worst = "; ".join(words for task, words in contents.items() if self._refused[task] == times)
            if times >= REFUSALS:
                raise self._stop(worst, times, cause)
            wait = min(LONGEST, 2.0**times)
            logger.warning(
                "the broker rejected a transaction (%s of %s times before the app stops), retrying in "
                "%g s: %s; it contains %s", times, REFUSALS, wait, cause.what, worst,
            )  # fmt: skip
        self._until = self.clock() + wait

    def _say(self, cause: Cause, wait: float) -> None:
        now = self.clock()
        often = f"{self._count} times in a row, for {now - self._since:.0f} s, " if self._count > 1 else ""
        if cause.why is Why.SLOW:
            logger.warning("a transaction has failed %sand is retried with fewer rows: %s", often, cause.what)
        elif self._count > QUIET and now - self._warned >= EVERY:
            self._warned = now
            logger.warning("a transaction has failed %sand is retried: %s", often, cause.what)
        else:
            logger.info("a transaction has failed %sand is retried in %g s: %s", often, wait, cause.what)

    def _stop(self, where: str, times: int, cause: Cause) -> ClusterError:
        return ClusterError(
            f"the broker rejected a transaction {times} times in a row, for {self.clock() - self._since:.0f} s: "
            f"{cause.what}",
            where=where,
            hint="nothing of it is committed; start again after the cause is fixed",
        )


def _where(step: ClosedStep) -> str:
    """For people: the step, what it reads, and where it writes."""
    read = ", ".join(str(r) for r in step.record.division if r.end > r.start)
    topics = sorted({writes.topic for writes in step.writes if len(writes)})
    return (
        f"task {step.owned.task.id}, step {step.record.step}"
        + (f", which reads {read}" if read else "")
        + (f" and writes to {', '.join(topics)}" if topics else "")
    )
