"""A topic for people to look at: its first, last and coming records. Read committed, without a group.

Records of several partitions are merged by their timestamps, those of one partition are in the order of offsets.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, Message

from falkirk.checkpoint.ids import Offset, TopicPartition, cluster_of, name_of
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client, fetch_metadata, give_up
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.client.places import ours, theirs
from falkirk.connectors.kafka.reading.reader import STUCK_AFTER, ended, poll_batch, trimmed
from falkirk.connectors.kafka.reading.stalls import watch
from falkirk.errors import UnreachableError

ALL = 1 << 62
"""More records than exist."""
MOST = 1000
"""Records of one turn."""
PATIENCE = 30.0
"""Seconds without a record until a look that must end gives up."""
SILENT = 15.0
"""Seconds without a connection until a look that does not end says so."""

_LITTLE = {"queued.min.messages": 1000, "queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 50}
"""A look needs a few records, not the memory for a hundred thousand of them."""


class TopicPeek:
    """Looks at one topic."""

    def __init__(self, cluster: Cluster, topics: Topics, topic: TopicInfo) -> None:
        self._cluster = cluster.of(cluster_of(topic.name))
        self._settings = {**self._cluster.reader(committed=True), **_LITTLE}
        self._consumer = client(Consumer, self._settings)
        self._contact, self._told = Contact(), False
        self._topics, self._topic = topics, name_of(topic.name)
        self._places = [TopicPartition(topic.name, p) for p in range(topic.partitions)]
        self._at: dict[TopicPartition, Offset] = {}
        """Behind all that was read: where `coming` begins, and where another client goes on."""
        self._reading: list[TopicPartition] = []
        fetch_metadata(self._consumer, [self._topic])

    def first(self, count: int, start: int = 0) -> list[Message]:
        """The first `count` present records from an offset on (in each partition)."""
        begin, end = self._bounds()
        found = self._read({p: (max(begin[p], Offset(start)), end[p]) for p in self._places}, count)
        return list(heapq.merge(*found.values(), key=_millis))[:count]

    def last(self, count: int, partition: int | None = None) -> list[Message]:
        """The last `count` present records, of the topic or of one partition."""
        begin, end = self._bounds()
        found: dict[TopicPartition, list[Message]] = {}
        short, window = [p for p in self._places if partition in (None, p.partition)], count + 10
        while short:  # markers, aborted and compacted records take offsets too: then read from further back
            starts = {p: max(begin[p], Offset(end[p] - window)) for p in short}
            found |= self._read({p: (starts[p], end[p]) for p in short})
            short = [p for p in short if starts[p] > begin[p] and len(found[p]) < count]
            window *= 8
        merged = list(heapq.merge(*found.values(), key=_millis))
        return merged[max(0, len(merged) - count) :]

    def all(self, size: int = 5_000) -> Iterator[list[Message]]:
        """Every present record, some at a time, partition by partition."""
        begin, end = self._bounds()
        for place in self._places:
            for start in range(begin[place], end[place], size):
                part = (Offset(start), min(Offset(start + size), end[place]))
                yield self._read({place: part})[place]

    def between(self, ranges: Mapping[int, tuple[Offset, Offset]]) -> list[Message]:
        """The records of a range of each partition, partition by partition."""
        (topic,) = {p.topic for p in self._places}
        found = self._read({TopicPartition(topic, p): bounds for p, bounds in ranges.items()})
        return [message for messages in found.values() for message in messages]

    def begin(self, start: int) -> None:
        """Let `coming` begin at an offset of each partition, or the nearest one that exists."""
        begin, end = self._bounds()
        self._at = {p: min(max(begin[p], Offset(start)), end[p]) for p in self._places}

    def coming(self) -> Iterator[list[Message]]:
        """The records after all that was read, as they come; an empty list if none comes for a moment. Never ends, but logs
        that no broker answers."""
        self._assign(self._at)
        stalls = watch(self._cluster)
        while True:
            messages = self._poll()
            for message in messages:
                self._check(message)
            found = [m for m in messages if m.error() is None]
            self._at |= {self.place(m): Offset((m.offset() or 0) + 1) for m in found}
            if stalls.due() and stalls.stalled(self._at, drained=len(messages) < MOST):
                self._renew()
                stalls.renewed()
            yield found

    def place(self, message: Message) -> TopicPartition:
        """Where a record of the topic is."""
        return ours(self._cluster, message)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _bounds(self) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        return self._topics.offsets(self._places, "earliest"), self._topics.offsets(self._places, "latest")

    def _read(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], most: int = ALL
    ) -> dict[TopicPartition, list[Message]]:
        """Up to `most` records of each range; does not wait for open transactions. Raises UnreachableError."""
        found: dict[TopicPartition, list[Message]] = {p: [] for p in ranges}
        left = {p: end for p, (start, end) in ranges.items() if start < end}
        stopped: dict[TopicPartition, float] = {}
        self._at |= {p: start for p, (start, _) in ranges.items()}
        self._assign(left)
        deadline = time.monotonic() + PATIENCE
        while left:
            for message in self._poll():
                place, offset = self.place(message), Offset(message.offset() or 0)
                if message.error() is None:
                    stopped.pop(place, None)
                    deadline = time.monotonic() + PATIENCE
                    if offset < left.get(place, 0):
                        found[place].append(message)
                        self._at[place] = offset = Offset(offset + 1)
                elif self._check(message):
                    stopped[place] = time.monotonic()
                else:
                    continue
                if offset >= left.get(place, 0) or len(found[place]) >= most:
                    left.pop(place, None)
            now = time.monotonic()
            left = {p: end for p, end in left.items() if now - stopped.get(p, now) <= STUCK_AFTER}
            if left and now > deadline:
                place = next(iter(left))
                raise UnreachableError(
                    f"nothing was read for {PATIENCE:.0f} s",
                    where=f"{place.topic}[{place.partition}] at offset {self._at[place]}",
                    hint="is Kafka running?",
                )
        return found

    def _poll(self) -> list[Message]:
        """What has come. Goes on with another client if this one has lost its cluster."""
        messages = poll_batch(self._consumer, MOST)
        if any(message.error() is None for message in messages):
            self._contact.heard()
        elif self._contact.lost(self._consumer, self._topic):
            self._renew()
        silent = self._contact.silence > SILENT
        if silent and not self._told:
            logger.warning("no broker has answered for %.0f s; %s is read on when one does", SILENT, self._topic)
        self._told = silent
        return messages

    def _renew(self) -> None:
        """Read on with another client."""
        give_up(self._consumer)
        self._consumer = client(Consumer, self._settings)
        self._assign(self._reading)

    def _check(self, message: Message) -> bool:
        """Whether a message, perhaps not a record, says that its partition ends. If records were deleted just now, the
        consumer continues behind them."""
        if not trimmed(message):
            return message.error() is not None and ended(message)
        place = self.place(message)
        first = self._topics.offsets([place], "earliest")[place]
        self._consumer.incremental_unassign([theirs(place)])
        self._consumer.incremental_assign([theirs(place, first)])
        return False

    def _assign(self, places: Iterable[TopicPartition]) -> None:
        """Read these partitions on, from behind what was read."""
        self._reading = list(places)
        self._consumer.assign([theirs(p, self._at[p]) for p in self._reading])


def _millis(message: Message) -> int:
    return message.timestamp()[1]
