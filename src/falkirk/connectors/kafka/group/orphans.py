"""Tasks that nobody owns: how that happens, and who fixes it.

    a: 0 1 2 3 ──b joins──▶ a must keep 0 1 and give up 2 3 ─────kill -9─────▶ a again: 0 1 ──forever──▶ 2 3 have no owner
    b: ·                    b gets 2 3 when a has joined without them          b: ·

A static member that comes back takes its place without a rebalance, with what it was to keep. Nobody knows that it never
joined without the rest. The next rebalance would assign 2 and 3, but perhaps none ever comes: nothing is lost, but nothing
is done. So one member watches the group. If tasks have no owner, it leaves and joins again, which is a rebalance. The
others look rarely, because each look is a request to every broker.
"""

from __future__ import annotations

import random
import time

from falkirk.connectors.kafka.admin.members import Group
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.client.pending_answer import PendingAnswer
from falkirk.connectors.kafka.group.group import Membership
from falkirk.errors import FalkirkError

EVERY = 1.0
"""Seconds between two looks of the watcher: the time to give tasks up before another member leaves and joins."""
RARELY = 30.0
"""Seconds between two looks of any other member, without a rebalance."""
TIMEOUT = 4.0
"""Seconds that an answer may take."""


def watcher(group: Group) -> str | None:
    """Who watches the group, by instance id: the one that would have to leave. None if nobody is in it.

    Each member computes this by itself, with the same result. It is the one with the fewest tasks, because it has to
    hand them over. If a hand-over is only slow, the one that waits for the tasks is chosen: it gives up nothing.
    """
    members = group.members
    return min(members, key=lambda instance: (len(members[instance].partitions), instance), default=None)


def leaver(before: Group | None, now: Group, tasks: int) -> str | None:
    """Who must leave and join again, by instance id; None if all tasks have owners, or may soon.

    >>> from falkirk.connectors.kafka.admin.members import Member
    >>> given_up = Group(True, {"a": Member("host", (0, 1)), "b": Member("host", ())})
    >>> leaver(given_up, given_up, tasks=4), leaver(None, given_up, tasks=4), leaver(given_up, given_up, tasks=2)
    ('b', None, None)
    """
    owned = {p for member in now.members.values() for p in member.partitions}
    if not now.stable or now != before or owned >= set(range(tasks)):
        return None
    return watcher(now)


class Orphans:
    """Asks now and then, without waiting, whether each task has an owner: about once a second as the watcher."""

    def __init__(self, topics: Topics, membership: Membership, tasks: int) -> None:
        self._topics, self._membership, self._tasks = topics, membership, tasks
        self._asked: PendingAnswer[Group] | None = None
        self._rebalance = membership.metadata()
        self._next = _after(EVERY)
        self._before: Group | None = None

    def tick(self) -> None:
        """Take the answer, or ask again. This member may leave and join again; then its handlers run."""
        if self._rebalance is not (last := self._membership.metadata()):
            # Perhaps another member watches now. What was asked before the rebalance does not say who.
            self._rebalance, self._asked, self._next = last, None, min(self._next, _after(EVERY))
        if self._asked is None:
            if time.monotonic() >= self._next:
                self._asked = self._topics.ask_group(self._membership.group, TIMEOUT)
        elif self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self._seen(asked.result())
            except FalkirkError as error:
                logger.debug("cannot look at the group: %s", error)
                self._before, self._next = None, _after(TIMEOUT)

    def _seen(self, group: Group) -> None:
        before, self._before = self._before, group
        watches = watcher(group) == self._membership.instance or not group.stable
        self._next = _after(EVERY if watches else RARELY)
        if leaver(before, group, self._tasks) == self._membership.instance:
            self._before = None
            logger.info(
                "joining again, for some tasks have no owner: %s", {i: m.partitions for i, m in group.members.items()}
            )
            self._membership.rejoin()


def _after(seconds: float) -> float:
    """So long from now, ± a quarter: workers that start together do not ask together."""
    return time.monotonic() + seconds * random.uniform(0.75, 1.25)
