"""Watches what an app reads while it runs, and whether the cluster answers at all.

Each worker asks for the topics that it knows. To find topics that join, all names of the cluster must be listed: this is left
to one worker, the owner of task 0. It records a layout with the new topics; then the others look for them too.

Nothing else would report it: a reader that is assigned partitions 0 and 1 knows nothing of a new partition 2. If its topic is
deleted and made again, it continues at its old offset, past the first records of the new topic. And it takes a partition
without a leader for one without records.

More partitions of a source whose rows need not stay together join as topics do. Else they stop the app.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import msgspec

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import address, cluster_of
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.client.pending_answer import PendingAnswer
from falkirk.errors import OutgrownError, UnreachableError
from falkirk.runtime.layout.compatibility import check_alone, check_topics
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.stream.definition.pattern import Pattern
from falkirk.wording import counted, listed

EVERY = 2.0
"""Seconds between two checks."""
RARELY = 60.0
"""Seconds between two listings of all topics by a worker that does not own task 0."""
TIMEOUT = 4.0
"""Seconds that an answer may take."""
AGAIN = 30.0
"""Seconds until a missing answer, or a missing leader, is reported again."""
ELECTION = 5.0
"""Seconds without a leader that are not reported: an election takes less."""


def topic_watches(
    layout: LayoutRecord, topics: Topics, patterns: Sequence[Pattern], prefix: str, growing: Collection[str] = ()
) -> list[TopicWatch]:
    """One for each cluster that an app's topics are in, so that none waits for another."""
    clusters = sorted({"", *map(cluster_of, layout.topics)})
    return [TopicWatch(layout, topics, [p for p in patterns if p.cluster == c], prefix, c, growing) for c in clusters]


class TopicWatch:
    """Asks every few seconds, without waiting, whether the app's topics in one cluster are still as in its layout, and
    whether its patterns match others now."""

    def __init__(
        self,
        layout: LayoutRecord,
        topics: Topics,
        patterns: Sequence[Pattern] = (),
        prefix: str = "",
        cluster: str = "",
        growing: Collection[str] = (),
    ) -> None:
        """`growing`: the topics that may get more partitions."""
        here = {name: topic for name, topic in layout.topics.items() if cluster_of(name) == cluster}
        self._layout, self._topics = msgspec.structs.replace(layout, topics=here), topics
        self._cluster, self._there = cluster, topics.of(cluster) if cluster else topics
        self._patterns, self._prefix, self._growing = patterns, prefix, here.keys() & set(growing)
        self._names: PendingAnswer[list[str]] | None = None
        self._names_at = time.monotonic()
        """When all names were last listed; the layout was made from those shortly before."""
        self._newest = layout.number
        self._coming: set[str] = set()
        """Matching topics that the cluster has not described yet."""
        self._asked: PendingAnswer[dict[str, TopicInfo]] | None = None
        self._next = 0.0
        self._heard = time.monotonic()
        self._silence: Cadence | None = None
        """When to report missing answers; None while the cluster answers."""
        self._missed: set[str] = set()
        self._leaders = Leaders()

    def tick(self, leads: bool = True, newest: int = 0) -> None:
        """Process the answer, or ask again. `leads`: whether this worker owns task 0; `newest`: the number of the newest
        layout. Raises SourceError and StateError if topics have changed, and OutgrownError if a pattern matches another
        or a topic has more partitions that the app can read."""
        now = time.monotonic()
        if self._patterns and self._names is None and self._looks(leads, newest, now):
            self._names, self._names_at = self._there.ask_names(), now
        if self._asked is None:
            if now >= self._next:
                self._asked = self._topics.ask({*self._layout.topics, *self._coming}, TIMEOUT)
        elif self._asked.done():
            # Workers that start together do not ask together.
            asked, self._asked, self._next = self._asked, None, now + EVERY * random.uniform(0.75, 1.25)
            try:
                found = asked.result()
            except UnreachableError as error:
                self._silent(error, now)
            else:
                self._answered(now)
                self._leaders.see([topic for name, topic in sorted(found.items()) if name in self._layout.topics], now)
                self._compare(found)
        if self._names is not None and self._names.done():
            names, self._names = self._names, None
            with suppress(UnreachableError):
                self._match(names.result(), now)

    def waits(self) -> str:
        """What of the cluster has not answered and since when, in words; "" while all does."""
        now = time.monotonic()
        if self._silence is not None:
            return f"{self._there.brokers} has not answered for {now - self._heard:.0f} s"
        return self._leaders.waits(now)

    def _looks(self, leads: bool, newest: int, now: float) -> bool:
        """Whether it is time to list the names of all topics."""
        if newest > self._newest:
            self._newest = newest
            return True
        return now - self._names_at >= (EVERY if leads or self._coming else RARELY)

    def _compare(self, found: dict[str, TopicInfo]) -> None:
        # A broker that has just started may not know all topics yet: missing ones are looked for twice.
        known = self._layout.topics
        missing = known.keys() - found.keys()
        for name in missing - self._missed:
            found[name] = TopicInfo(name, known[name].id, known[name].partitions)
        self._missed = missing
        for name in self._growing & found.keys():  # nor may it know all partitions, of which none is ever taken away
            if found[name].partitions < known[name].partitions:
                found[name] = replace(found[name], partitions=known[name].partitions)
        check_topics(self._layout, found, self._growing)
        check_alone(self._layout, found)
        for name in sorted(self._growing):
            if (more := found[name].partitions - known[name].partitions) > 0:
                raise OutgrownError(
                    f"topic {name} has {counted(more, 'more partition')}", where=f"app {self._layout.app}"
                )
        if new := sorted(found.keys() & self._coming):
            raise OutgrownError(
                f"{counted(len(new), 'more topic')} match: {', '.join(new)}", where=f"app {self._layout.app}"
            )

    def _match(self, names: list[str], now: float) -> None:
        there = [address(self._cluster, name) for name in names]
        matching = {topic for pattern in self._patterns for topic in pattern.among(there, self._prefix)}
        self._coming = matching - self._layout.topics.keys()
        if self._coming:
            self._next = now

    def _silent(self, error: UnreachableError, now: float) -> None:
        self._silence = self._silence or Cadence(0, AGAIN)
        if self._silence.due(now):
            logger.warning("%s; nothing is lost; retrying: %s", self.waits(), error.what)

    def _answered(self, now: float) -> None:
        if self._silence is not None:
            logger.warning("%s answers again, after %.0f s", self._there.brokers, now - self._heard)
        self._silence, self._heard = None, now


class Leaders:
    """Which partitions no broker leads, and since when.

    >>> leaders = Leaders()
    >>> leaders.see([TopicInfo("bids", "id", 8, leaderless=(0, 3)), TopicInfo("stats", "id", 8)], now=100)
    >>> leaders.waits(now=103), leaders.waits(now=112)
    ('', 'bids[0], bids[3] have had no leader for 12 s')
    """

    def __init__(self) -> None:
        self._missing: list[str] = []
        self._since = 0.0
        self._report = Cadence(ELECTION, AGAIN)

    def see(self, topics: Iterable[TopicInfo], now: float) -> None:
        """The topics as they are now. Logs what lasts, and its end."""
        before, lasts = self._missing, now - self._since >= ELECTION
        self._missing = [f"{topic.name}[{p}]" for topic in topics for p in topic.leaderless]
        if not before:
            self._since = now
        elif self._missing and self._report.due(now, self._since):
            logger.warning("%s; nothing is lost: they go on when their brokers are back", self.waits(now))
        elif not self._missing and lasts:
            logger.warning("all partitions have a leader again, after %.0f s", now - self._since)

    def waits(self, now: float) -> str:
        """Which have none, in words; "" if that is as long as an election takes."""
        if not self._missing or now - self._since < ELECTION:
            return ""
        have = "has" if len(self._missing) == 1 else "have"
        return f"{listed(self._missing)} {have} had no leader for {now - self._since:.0f} s"
