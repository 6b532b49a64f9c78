"""Notice a partition that a client has stopped reading, though there is more in it.

librdkafka 2.16 may stop to fetch one partition after its broker has come back, and go on with the others. It reports nothing,
and the end of the partition that it knows stays where it was: the partition does not even seem to be behind.

    a record comes ──▶ QUIET for FIRST s ──▶ another client reads from the position on
                         ▲                     │ nothing: asked again, after twice the time
                         └─────────────────────┤
                                               └ a record ──▶ MISSED ──▶ it comes: the client was slow
                                                                └── GRACE s later the client has given all
                                                                    that it has, but not this ──▶ stalled

A new client reads on from the position. Any partition of the old one may be in that state, so it is given up as a whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.reading.committed import CommittedReader
from falkirk.errors import FalkirkError

FIRST, LONGEST = 3.0, 60.0
"""Seconds for which nothing has come of a partition until another client looks into it: at first, and at most."""

GRACE = 1.0
"""Seconds that the client has to give what another one has found."""

BUSY = 60.0
"""Seconds after which it counts as stalled though it still has something of other partitions to give."""

SLOWEST, CALM = 32.0, 600.0
"""Each time that a partition was stalled, all of these times are doubled for the next, up to so many times as long; without
one for CALM seconds they are as at first. A client that a quota or a busy host slows down is not replaced over and over."""

LOOK = 0.5
"""Seconds between two looks."""

SOME = 1000
"""About so many records are read at most to learn that there are some."""

FAR = 1 << 40
"""Offsets: to the end of any partition."""

HasMore = Callable[[Mapping[TopicPartition, Offset]], Collection[TopicPartition]]


@dataclass(slots=True)
class _Quiet:
    """A partition of which nothing has come lately."""

    position: Offset
    ask_at: float
    after: float
    """Seconds from the last time it was asked for to the next."""
    missed: float | None = None
    """When another client was known to have read something there."""


class StallWatch:
    """Watches the partitions that one client reads.

    >>> times = iter([0.0, 1.0, 5.0, 5.5, 7.0])
    >>> watch = StallWatch(lambda asked: set(asked), lambda: next(times), run=lambda work: work())
    >>> one, other = TopicPartition("bids", 0), TopicPartition("bids", 1)
    >>> [watch.stalled({one: Offset(7), other: Offset(at)}, drained=True) for at in (1, 2, 3, 4)]
    [[], [], [], [TopicPartition(topic='bids', partition=0)]]
    """

    def __init__(
        self,
        has_more: HasMore,
        clock: Callable[[], float] = time.monotonic,
        run: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`has_more`: in which of the partitions another client finds a record from an offset on. It may block, so `run` runs
        it in a thread of its own."""
        self._has_more, self._clock, self._run = has_more, clock, run or _in_thread
        self._quiet: dict[TopicPartition, _Quiet] = {}
        self._looked = self._stalled_at = clock()
        self._times = 1.0
        """How many times as long as at first it waits."""
        self._asked: dict[TopicPartition, Offset] | None = None
        """What another client is looking for."""
        self._found: Collection[TopicPartition] | None = None

    def due(self) -> bool:
        """Whether it is time for a look."""
        return self._clock() - self._looked >= LOOK

    def stalled(self, positions: Mapping[TopicPartition, Offset], *, drained: bool) -> list[TopicPartition]:
        """The stalled ones of the partitions that the client should read now, from these positions on. `drained`: the client
        has just given all that it has. The log says so: the caller is to go on with a new client."""
        now = self._looked = self._clock()
        if now - self._stalled_at > CALM:
            self._times = 1.0
        before, first = self._quiet, FIRST * self._times
        self._quiet = {
            place: quiet
            if (quiet := before.get(place)) is not None and quiet.position == at
            else _Quiet(at, now + first, first)
            for place, at in positions.items()
        }
        self._hear(now)
        self._ask(now)
        grace = self._times * (GRACE if drained else BUSY)
        found = [p for p, quiet in self._quiet.items() if quiet.missed is not None and now - quiet.missed >= grace]
        if found:
            self._times, self._stalled_at = min(2 * self._times, SLOWEST), now
            words = ", ".join(f"{place.topic}[{place.partition}] at offset {positions[place]}" for place in found)
            logger.warning("reading %s: the client has stopped there, and more is there; with a new client", words)
        return found

    def renewed(self) -> None:
        """There is another client now."""
        self._quiet.clear()

    def _hear(self, now: float) -> None:
        """Take in what another client has found."""
        if self._asked is None or self._found is None:
            return
        for place in self._found:
            quiet = self._quiet.get(place)
            if quiet is not None and quiet.position == self._asked.get(place):
                quiet.missed = now
        self._asked = self._found = None

    def _ask(self, now: float) -> None:
        """Let another client look into what has been quiet for long enough."""
        if self._asked is not None:
            return
        due = {place: quiet for place, quiet in self._quiet.items() if quiet.missed is None and now >= quiet.ask_at}
        if not due:
            return
        for quiet in due.values():
            quiet.after = min(2 * quiet.after, LONGEST)
            quiet.ask_at = now + quiet.after
        asked = self._asked = {place: quiet.position for place, quiet in due.items()}

        def look() -> None:
            try:
                self._found = self._has_more(asked)
            except (FalkirkError, KafkaException) as error:
                logger.debug("nobody knows whether more can be read: %s", error)
                self._found = ()

        self._run(look)


def watch(cluster: Cluster) -> StallWatch:
    """A watch of partitions in one cluster, or in any that it knows."""

    def has_more(positions: Mapping[TopicPartition, Offset]) -> Collection[TopicPartition]:
        # Its connections are for this look: the next one is seconds away.
        with closing(CommittedReader(cluster)) as reader:
            reads = reader.read({place: (at, Offset(at + FAR)) for place, at in positions.items()}, SOME)
        return [place for place, read in reads.items() if read.records]

    return StallWatch(has_more)


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="falkirk-stalls", daemon=True).start()
