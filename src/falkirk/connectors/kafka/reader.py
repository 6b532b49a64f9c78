"""Reading bounded ranges of internal topics, at either isolation level."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import LogRecord, Ranges, Read
from falkirk.connectors.kafka.clients import client, meet
from falkirk.connectors.kafka.config import READER, Cluster, logger
from falkirk.connectors.kafka.errors import told, translate
from falkirk.state.store import Changes

CHUNK = 100_000
"""Records that one call hands over at most, so that a long read runs in bounded memory."""

CHANGES = 20_000
"""Changes that one call hands over, about: few enough to be sorted and written while the processor has them at hand."""

ANSWER = 5.0
"""Seconds that a broker has to answer, before it is asked anew."""

STUCK_AFTER = 0.1
"""Seconds that a read waits at an end that is short of its goal. A commit's markers take a few milliseconds."""


class BoundedReader:
    """Consumers without a group, one for each isolation level, and an admin client for watermarks."""

    def __init__(self, cluster: Cluster, levels: Sequence[bool] = (False, True)) -> None:
        """`levels`: whether committed records are asked for, or all, or both."""
        self._consumers = {c: client(Consumer, cluster.reader(committed=c)) for c in levels}
        self._met: dict[bool, set[str]] = {False: set(), True: set()}
        self._admin = client(AdminClient, cluster.settings())
        self._led: set[str] = set()
        """Topics whose leaders the admin client has met."""
        self._lock = threading.Lock()
        self._cluster = cluster
        self._standing: tuple[TopicPartition, Offset] | None = None
        """Which changelog the reader of committed records stands in, and where, between two chunks of it."""

    def watermarks(self, partitions: Sequence[TopicPartition], *, end: bool) -> dict[TopicPartition, Offset]:
        """First offsets, or high watermarks. Blocks while the cluster cannot be reached."""
        if not partitions:
            return {}
        spec = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {KafkaPartition(p.topic, p.partition): spec for p in partitions}
        while True:
            for topic in {p.topic for p in partitions} - self._led:
                meet(self._admin, topic)
                self._led.add(topic)
            level, found = IsolationLevel.READ_UNCOMMITTED, dict[TopicPartition, Offset]()
            for p, future in self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER).items():
                try:
                    found[TopicPartition(p.topic, p.partition)] = told(future.result())
                except KafkaException as error:
                    if known := translate(error.args[0], f"topic {p.topic}"):
                        raise known from error
                    logger.info("cannot ask for offsets yet: %s", error.args[0])
                    # A client that knew the broker before it was restarted is answered FENCED_LEADER_EPOCH for ever.
                    self._admin, self._led = client(AdminClient, self._cluster.settings()), set()
                    time.sleep(0.05)
                    break
            else:
                return found

    def read(self, ranges: Ranges, *, committed: bool, most: int = CHUNK) -> dict[TopicPartition, Read]:
        """Records of the ranges, in order. Returns early after `most` records, about, or when nothing more comes."""
        reads = {p: Read(position=start) for p, (start, _) in ranges.items()}
        with self._lock:
            consumer = self._assigned(committed, {p: start for p, (start, _) in ranges.items()})
            try:
                self._fill(consumer, ranges, reads, most)
            finally:
                consumer.unassign()
        return reads

    def _assigned(self, committed: bool, positions: Mapping[TopicPartition, Offset]) -> Consumer:
        consumer, met = self._consumers[committed], self._met[committed]
        for topic in {p.topic for p in positions} - met:
            meet(consumer, topic)
            met.add(topic)
        if committed:
            self._standing = None
        consumer.assign([KafkaPartition(p.topic, p.partition, start) for p, start in positions.items()])
        return consumer

    def _fill(self, consumer: Consumer, ranges: Ranges, reads: dict[TopicPartition, Read], most: int) -> None:
        waiting, got = set(ranges), 0
        stopped: dict[TopicPartition, float] = {}
        while waiting and got < most:
            for message in taken(consumer, min(most, 10_000)):
                if message.topic() is None:  # of the client as a whole: raised, if it is to stay
                    ended(message)
                    continue
                place = TopicPartition(message.topic() or "", message.partition() or 0)
                offset, end = Offset(message.offset() or 0), ranges[place][1]
                if message.error() is None:
                    stopped.pop(place, None)
                    if offset < end:
                        reads[place].records.append(LogRecord(offset, message.key(), message.value()))
                        got += 1
                    offset = Offset(offset + 1)
                elif trimmed(message):
                    offset = self._skip(consumer, place)
                elif ended(message):
                    stopped[place] = time.monotonic()
                else:
                    continue
                reads[place].position = max(reads[place].position, min(offset, end))
                if offset >= end:
                    waiting.discard(place)
            now = time.monotonic()
            if waiting and all(now - stopped.get(p, now) > STUCK_AFTER for p in waiting):
                return

    def _skip(self, consumer: Consumer, place: TopicPartition) -> Offset:
        """Go on where the partition begins now: what was below is below everybody's need, or it would not be gone."""
        first = self.watermarks([place], end=False)[place]
        consumer.incremental_unassign([KafkaPartition(place.topic, place.partition)])
        consumer.incremental_assign([KafkaPartition(place.topic, place.partition, first)])
        return first

    def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """The changes in one chunk of a changelog, the last of each key, and where the next chunk begins."""
        with self._lock:
            consumer = self._consumers[True]
            if self._standing != (partition, start):
                self._assigned(True, {partition: start})
            # Between chunks it stays assigned: what has been fetched ahead would be thrown away, and asked for again.
            self._standing = None
            try:
                changes, position = self._changes(consumer, start, end)
                if position < end and len(changes) >= CHANGES:  # else it has come to an end, which is told but once
                    self._standing = partition, position
            finally:
                if self._standing is None:
                    consumer.unassign()
            return changes, position

    @staticmethod
    def _changes(consumer: Consumer, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        changes: dict[bytes, bytes | None] = {}
        position, stopped = start, time.monotonic() + 3600
        while position < end and len(changes) < CHANGES and time.monotonic() - stopped < STUCK_AFTER:
            messages = taken(consumer, CHANGES)
            if any(map(Message.error, messages)):
                for m in messages:
                    if m.error() is not None and ended(m):
                        position, stopped = max(position, Offset(m.offset() or 0)), time.monotonic()
                messages = [m for m in messages if m.error() is None]
            if messages:
                if (messages[-1].offset() or 0) >= end:
                    messages = [m for m in messages if (m.offset() or 0) < end]
                    position = end
                else:
                    position = max(position, Offset((messages[-1].offset() or 0) + 1))
                # A changelog's keys are never null.
                changes.update(zip(map(Message.key, messages), map(Message.value, messages), strict=True))  # type: ignore[arg-type]
        return changes, min(position, end)

    def close(self) -> None:
        """Close the consumers."""
        for consumer in self._consumers.values():
            consumer.close()


def taken(consumer: Consumer, most: int) -> list[Message]:
    """What is there, or the first to come within 20 ms. (`consume` alone would wait for as many as it may take.)"""
    first = consumer.poll(0.02)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def trimmed(message: Message) -> bool:
    """The message says that records were deleted from under the reader."""
    error = message.error()
    return error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def place_of(message: Message, group: str) -> str:
    """What an error is about: a partition; or else that of which the client asks nothing but who coordinates it."""
    return f"consumer group {group}" if message.topic() is None else f"{message.topic()}[{message.partition()}]"


def ended(message: Message) -> bool:
    """The message says that the readable end of its partition is reached; any other error it reports is logged or raised."""
    error = message.error()
    if error is not None and error.code() == KafkaError._PARTITION_EOF:
        return True
    if error is not None:
        place = place_of(message, READER)
        if known := translate(error, place):
            raise known
        logger.warning("reading %s: %s", place, error)
    return False
