"""Keeping an eye on what an app reads while it runs, and on whether the cluster answers at all.

Nothing else would say so: a reader that is assigned partitions 0 and 1 knows nothing of a new partition 2, and one whose
topic is deleted and made anew reads on at its old offset, past the first records of the new topic.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from falkirk.checkpoint.ids import address, cluster_of
from falkirk.connectors.kafka.config import logger
from falkirk.connectors.kafka.topics import Asked, TopicInfo, Topics
from falkirk.errors import OutgrownError, UnreachableError
from falkirk.runtime.continuity import check_alone, check_topics
from falkirk.runtime.layout import LayoutRecord
from falkirk.stream.pattern import Pattern

EVERY = 2.0
"""Seconds between two looks."""
TIMEOUT = 4.0
"""Seconds that an answer may take."""
AGAIN = 30.0
"""Seconds after which it is said again that nobody answers."""


def vigils(layout: LayoutRecord, topics: Topics, patterns: Sequence[Pattern], prefix: str) -> list[Vigil]:
    """One for each cluster that an app's topics are in, so that none waits for another."""
    clusters = sorted({"", *map(cluster_of, layout.topics)})
    return [Vigil(layout, topics, [p for p in patterns if p.cluster == c], prefix, c) for c in clusters]


class Vigil:
    """Asks every few seconds, without waiting, whether the app's topics in one cluster are still what its layout says, and
    whether its patterns match others by now."""

    def __init__(
        self,
        layout: LayoutRecord,
        topics: Topics,
        patterns: Sequence[Pattern] = (),
        prefix: str = "",
        cluster: str = "",
    ) -> None:
        here = {name: topic for name, topic in layout.topics.items() if cluster_of(name) == cluster}
        self._layout, self._topics = msgspec.structs.replace(layout, topics=here), topics
        self._cluster, self._there = cluster, topics.of(cluster) if cluster else topics
        self._patterns, self._prefix = patterns, prefix
        self._names: Asked[list[str]] | None = None
        self._coming: set[str] = set()
        """Topics that match, and that the cluster has yet to describe."""
        self._asked: Asked[dict[str, TopicInfo]] | None = None
        self._next = 0.0
        self._heard = time.monotonic()
        self._said: float | None = None
        """When it was last said that nobody answers; None while somebody does."""
        self._missed: set[str] = set()

    def tick(self) -> None:
        """Take the answer in, or ask again. Raises SourceError and StateError where topics are not what they were, and
        OutgrownError where a pattern matches another."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._next:
                self._asked = self._topics.ask({*self._layout.topics, *self._coming}, TIMEOUT)
                self._names = self._there.ask_names() if self._patterns and self._names is None else self._names
        elif self._asked.done():
            asked, self._asked, self._next = self._asked, None, now + EVERY
            try:
                found = asked.result()
            except UnreachableError as error:
                self._silent(error, now)
            else:
                self._answered(now)
                self._compare(found)
        if self._names is not None and self._names.done():
            names, self._names = self._names, None
            with suppress(UnreachableError):
                self._match(names.result(), now)

    def _compare(self, found: dict[str, TopicInfo]) -> None:
        # A broker that has just started may not know all topics yet: what is missing is looked for twice.
        missing = self._layout.topics.keys() - found.keys()
        for name in missing - self._missed:
            was = self._layout.topics[name]
            found[name] = TopicInfo(name, was.id, was.partitions)
        self._missed = missing
        check_topics(self._layout, found)
        check_alone(self._layout, found)
        if new := sorted(found.keys() & self._coming):
            raise OutgrownError(f"{len(new)} more topics match: {', '.join(new)}", where=f"app {self._layout.app}")

    def _match(self, names: list[str], now: float) -> None:
        there = [address(self._cluster, name) for name in names]
        matching = {topic for pattern in self._patterns for topic in pattern.among(there, self._prefix)}
        self._coming = matching - self._layout.topics.keys()
        if self._coming:
            self._next = now

    def _silent(self, error: UnreachableError, now: float) -> None:
        if self._said is None or now - self._said >= AGAIN:
            self._said = now
            seconds = now - self._heard
            logger.warning("%s has not answered for %.0f s; nothing is lost, trying on: %s",
                           self._there.brokers, seconds, error.what)  # fmt: skip

    def _answered(self, now: float) -> None:
        if self._said is not None:
            logger.warning("%s answers again, after %.0f s", self._there.brokers, now - self._heard)
        self._said, self._heard = None, now
