"""Keeping an eye on what an app reads while it runs, and on whether the cluster answers at all.

Nothing else would say so: a reader that is assigned partitions 0 and 1 knows nothing of a new partition 2, and one whose
topic is deleted and made anew reads on at its old offset, past the first records of the new topic.
"""

from __future__ import annotations

import time

from falkirk.connectors.kafka.config import logger
from falkirk.connectors.kafka.topics import Asked, TopicInfo, Topics
from falkirk.errors import UnreachableError
from falkirk.runtime.continuity import check_alone, check_topics
from falkirk.runtime.layout import LayoutRecord

EVERY = 2.0
"""Seconds between two looks."""
TIMEOUT = 4.0
"""Seconds that an answer may take."""
AGAIN = 30.0
"""Seconds after which it is said again that nobody answers."""


class Vigil:
    """Asks every few seconds, without waiting, whether the app's topics are still what its layout says."""

    def __init__(self, layout: LayoutRecord, topics: Topics) -> None:
        self._layout, self._topics = layout, topics
        self._asked: Asked[dict[str, TopicInfo]] | None = None
        self._next = 0.0
        self._heard = time.monotonic()
        self._said: float | None = None
        """When it was last said that nobody answers; None while somebody does."""
        self._missed: set[str] = set()

    def tick(self) -> None:
        """Take the answer in, or ask again. Raises SourceError and StateError where topics are not what they were."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._next:
                self._asked = self._topics.ask(self._layout.topics, TIMEOUT)
        elif self._asked.done():
            asked, self._asked, self._next = self._asked, None, now + EVERY
            try:
                found = asked.result()
            except UnreachableError as error:
                self._silent(error, now)
            else:
                self._answered(now)
                self._compare(found)

    def _compare(self, found: dict[str, TopicInfo]) -> None:
        # A broker that has just started may not know all topics yet: what is missing is looked for twice.
        missing = self._layout.topics.keys() - found.keys()
        for name in missing - self._missed:
            was = self._layout.topics[name]
            found[name] = TopicInfo(name, was.id, was.partitions)
        self._missed = missing
        check_topics(self._layout, found)
        check_alone(self._layout, found)

    def _silent(self, error: UnreachableError, now: float) -> None:
        if self._said is None or now - self._said >= AGAIN:
            self._said = now
            seconds = now - self._heard
            logger.warning("%s has not answered for %.0f s; nothing is lost, trying on: %s",
                           self._topics.brokers, seconds, error.what)  # fmt: skip

    def _answered(self, now: float) -> None:
        if self._said is not None:
            logger.warning("%s answers again, after %.0f s", self._topics.brokers, now - self._heard)
        self._said, self._heard = None, now
