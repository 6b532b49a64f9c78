"""Reads a sink's topic for one subscriber: committed records in the sink's format, each with the position behind it.

    opened ──▶ read ──▶ read ──▶ …          a call reads what has come, or comes within a moment
                 └── records are deleted before they are read, or the topic is another one ──▶ Ended

The position moves with each record, and also at the end of a partition, over what is no record there: markers of
transactions, and what was aborted. So a subscriber of a sink that gets no records does not fall behind what retention
deletes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, Message

from falkirk.checkpoint.ids import Offset, TopicPartition, cluster_of, name_of
from falkirk.connectors.http.messages import Ended, Event, Reply, Some, refused
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client, fetch_metadata, give_up
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.client.places import theirs
from falkirk.connectors.kafka.reading.reader import ended, trimmed
from falkirk.connectors.kafka.reading.stalls import watch
from falkirk.errors import FalkirkError, UnreachableError
from falkirk.runtime.gateway.decoded import Decoded
from falkirk.runtime.gateway.positions import Position, gone
from falkirk.stream.access.endpoints import View

WAIT = 0.5
"""Seconds that a read waits for the first record."""

MOST = 500
"""Records of one read."""

LOOK = 30.0
"""Seconds between two looks at the topic: whether it has more partitions, and is the same one."""

LITTLE = {
    "queued.min.messages": MOST,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 1 << 18,
    "fetch.queue.backoff.ms": 100,
    "fetch.wait.max.ms": 500,
}
"""A consumer keeps about a megabyte ahead of a subscriber, and asks for more when that is taken."""

NOT_THERE = refused(503, "the topic of the sink is not there: the app makes it when it runs", again=5)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscriber begins."""

    info: TopicInfo
    position: Position


class Follower:
    """Of one subscriber. Its calls block; one thread at a time makes them."""

    def __init__(self, cluster: Cluster, topics: Topics, decoded: Decoded, start: Start, key: str | None) -> None:
        """`key`: only records whose key has this text; None: all."""
        self._topics, self._decoded, self._info = topics, decoded, start.info
        self._cluster = cluster.of(cluster_of(start.info.name))
        self._key = None if key is None else key.encode()
        self.position = start.position
        """Behind all that was read."""
        self._is_behind = False
        """Whether a partition cannot be read where this is: what comes there is deleted, perhaps."""
        self._contact, self._watch = Contact(), watch(self._cluster)
        self._looked = time.monotonic()
        self._consumer = self._opened()

    def read(self) -> Some:
        """What has come, or comes within a moment. Raises Ended and FalkirkError."""
        if self._is_behind or time.monotonic() - self._looked > LOOK:
            self._look()
        if self._is_behind:
            self._reopen()
        first = self._consumer.poll(WAIT)
        messages = [] if first is None else [first, *self._consumer.consume(MOST, 0)]
        events = self._events(messages)
        if messages:
            self._contact.heard()
        elif self._contact.lost(self._consumer, name_of(self._info.name)):
            self._reopen()
        if self._watch.due():
            self._look_for_stalls(drained=len(messages) <= MOST)
        return Some(events, self.position.text())

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _events(self, messages: Sequence[Message]) -> list[Event]:
        """The events of these messages, in their order."""
        records = [m for m in messages if self._is_wanted(m)]
        # The client's types allow for what no record is.
        data = iter(self._decoded.data(self._info.id, records))  # type: ignore[arg-type]
        events: list[Event] = []
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            if message.error() is None:
                self.position = self.position.after(partition, offset + 1)
                if self._is_wanted(message):
                    events.append(Event(self.position.text(), next(data)))
            elif trimmed(message):
                self._is_behind = True
            elif ended(message):
                self.position = self.position.after(partition, offset)
        return events

    def _is_wanted(self, message: Message) -> bool:
        return message.error() is None and (self._key is None or message.key() == self._key)

    def _look(self) -> None:
        """Raises Ended if the subscriber cannot go on from its position."""
        self._looked = time.monotonic()
        try:
            found = looked(self._topics, self._info.name)
            if found is None:
                raise Ended(NOT_THERE)
            now, first, end = found
            if now.partitions < self._info.partitions and now.id == self._info.id:
                return  # a broker that does not know of the new ones yet
            position = self.position.grown(now.partitions)
            if (why := gone(position, Position.at(now.id, first), first, end)) is not None:
                raise Ended(why)
        except UnreachableError as error:
            logger.debug("topic %s is not seen: %s", self._info.name, error)
            return
        if now.partitions > self._info.partitions:
            self._info, self.position = now, position
            self._reopen()

    def _look_for_stalls(self, *, drained: bool) -> None:
        positions = {TopicPartition(self._info.name, p): Offset(at) for p, at in enumerate(self.position.offsets)}
        if self._watch.stalled(positions, drained=drained):
            self._reopen()

    def _reopen(self) -> None:
        self._is_behind = False
        give_up(self._consumer)
        self._consumer = self._opened()
        self._watch.renewed()

    def _opened(self) -> Consumer:
        # The client refuses to fetch less than the largest message that its user allows.
        fetched = max(1 << 20, int(self._cluster.client.get("message.max.bytes", 0)))
        consumer = client(Consumer, {**self._cluster.source(ends=True), **LITTLE, "fetch.max.bytes": fetched})
        fetch_metadata(consumer, [name_of(self._info.name)])
        consumer.assign(
            [theirs(TopicPartition(self._info.name, p), offset) for p, offset in enumerate(self.position.offsets)]
        )
        return consumer


def begun(topics: Topics, view: View, start: str | Position) -> Start | Reply:
    """Where a subscriber begins that asks for "earliest", for "latest", or for a position; or why it cannot. Raises
    ClusterError."""
    if start == "latest":
        info = topics.describe([view.topic]).get(view.topic)
        return NOT_THERE if info is None else Start(info, Position.at(info.id, offsets(topics, info, "stable")))
    found = looked(topics, view.topic)
    if found is None:
        return NOT_THERE
    info, first, end = found
    earliest = Position.at(info.id, first)
    if not isinstance(start, Position):
        return Start(info, earliest)
    if start.topic == earliest.topic and len(start.offsets) > info.partitions:
        return refused(503, "the broker does not know of all partitions yet", again=1)
    position = start.grown(info.partitions)
    why = gone(position, earliest, first, end)
    return Start(info, position) if why is None else why


def looked(topics: Topics, topic: str) -> tuple[TopicInfo, Sequence[int], Sequence[int]] | None:
    """A topic, and where each of its partitions begins and ends; None: it does not exist. Raises ClusterError."""
    info = topics.describe([topic]).get(topic)
    return None if info is None else (info, offsets(topics, info, "earliest"), offsets(topics, info, "latest"))


def offsets(topics: Topics, info: TopicInfo, at: str) -> Sequence[Offset]:
    """Of all partitions. Raises ClusterError."""
    places = [TopicPartition(info.name, p) for p in range(info.partitions)]
    found = topics.offsets(places, at)
    return [found[place] for place in places]


def in_words(error: FalkirkError) -> Reply:
    """Why a subscriber gets nothing now."""
    logger.warning("a subscriber gets nothing: %s", error)
    return refused(503, error.what, again=2 if isinstance(error, UnreachableError) else 30)
