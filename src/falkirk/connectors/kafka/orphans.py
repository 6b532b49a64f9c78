"""Tasks that nobody owns: how it comes to that, and who mends it.

    a: 0 1 2 3 ──b joins──▶ a is to keep 0 1 and to give up 2 3 ──kill -9──▶ a again: 0 1 ──for ever──▶ 2 3 are nobody's
    b: ·                    b gets 2 3 when a has joined without them        b: ·

A static member that comes back takes its place without a rebalance, with what it was to keep. That it never joined without
the rest is known to nobody, so the next rebalance gives 2 and 3 away, and there may never be one. Nothing is lost by that,
but nothing is done either. So all members look now and then, and one of them leaves and joins anew: that is a rebalance.
"""

from __future__ import annotations

import time

from falkirk.connectors.kafka.config import logger
from falkirk.connectors.kafka.group import Membership
from falkirk.connectors.kafka.members import Group
from falkirk.connectors.kafka.topics import Asked, Topics
from falkirk.errors import FalkirkError

EVERY = 1.0
"""Seconds between two looks: what a member that gives tasks up has for doing so, before another joins anew."""
TIMEOUT = 4.0
"""Seconds that an answer may take."""


def leaver(before: Group | None, now: Group, tasks: int) -> str | None:
    """Who is to leave and join anew, by instance id; None where all tasks have owners, or may have them soon.

    All members work it out for themselves, and to the same end. It is the one with the fewest tasks, as it has to hand
    them over. Where tasks are only slow in changing hands, that is the one that waits for them: it gives up nothing.

    >>> from falkirk.connectors.kafka.members import Member
    >>> given_up = Group(True, {"a": Member("host", (0, 1)), "b": Member("host", ())})
    >>> leaver(given_up, given_up, tasks=4), leaver(None, given_up, tasks=4), leaver(given_up, given_up, tasks=2)
    ('b', None, None)
    """
    owned = {p for member in now.members.values() for p in member.partitions}
    if not now.members or not now.stable or now != before or owned >= set(range(tasks)):
        return None
    return min(now.members, key=lambda instance: (len(now.members[instance].partitions), instance))


class Orphans:
    """Asks about once a second, without waiting, whether each task is somebody's."""

    def __init__(self, topics: Topics, membership: Membership, tasks: int) -> None:
        self._topics, self._membership, self._tasks = topics, membership, tasks
        self._asked: Asked[Group] | None = None
        self._next = time.monotonic() + EVERY
        self._before: Group | None = None

    def tick(self) -> None:
        """Take the answer in, or ask again. This member may leave and join anew; its handlers run then."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._next:
                self._asked = self._topics.ask_group(self._membership.group, TIMEOUT)
        elif self._asked.done():
            asked, self._asked, self._next = self._asked, None, now + EVERY
            try:
                self._seen(asked.result())
            except FalkirkError as error:
                logger.debug("cannot look at the group: %s", error)
                self._before = None

    def _seen(self, group: Group) -> None:
        before, self._before = self._before, group
        if leaver(before, group, self._tasks) == self._membership.instance:
            self._before = None
            logger.info(
                "joining anew, for some tasks have no owner: %s", {i: m.partitions for i, m in group.members.items()}
            )
            self._membership.rejoin()
