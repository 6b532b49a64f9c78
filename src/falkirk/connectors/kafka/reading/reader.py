"""Read bounded ranges of internal topics, at either isolation level."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import MARK, LogRecord, Ranges, Read
from falkirk.connectors.kafka.client.clients import client, fetch_metadata, give_up
from falkirk.connectors.kafka.client.config import READER, Cluster, logger
from falkirk.connectors.kafka.client.errors import found_offset, in_words, translate
from falkirk.connectors.kafka.client.leaders import MISSING, list_offsets
from falkirk.state.store import Changes

CHUNK = 100_000
"""Most records that one call returns, so that a long read has bounded memory."""

CHANGES = 20_000
"""About how many changes one call returns: few enough to sort and write them in the processor's cache."""

ANSWER = 5.0
"""Seconds that a broker has to answer, before it is asked again. A read that gets nothing for so long ends early: its
caller may have a reason to give up."""

AT_FIRST = 1.0
"""Seconds that it has for the first offsets, and twice as many each time: the leader that a client knows may just have died,
and another client learns who leads now."""

GONE = 30.0
"""Seconds for which brokers must have said that they do not have a topic. Not all of them know of a new one at once."""

SILENT = 5.0
"""Seconds of asking for offsets in vain until a log line says so."""

AGAIN = 30.0
"""Seconds until another one does."""

STUCK_AFTER = 0.1
"""Seconds that a read waits at an end before its goal. A commit's markers take a few milliseconds."""


READERS = 8
"""Most consumers of one isolation level. With more readers, one that stands in a changelog is taken."""


@dataclass(slots=True, eq=False)
class _PooledConsumer:
    """A consumer that one thread at a time uses."""

    consumer: Consumer
    fetched: set[str] = field(default_factory=set)
    """Topics whose leaders it knows."""
    standing: tuple[TopicPartition, Offset] | None = None
    """Which changelog it stands in, and where, between two chunks of it."""
    silent: str = ""
    """The topic that it has just got nothing of, for as long as a broker may take to answer."""

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Read from there."""
        new = {p.topic for p in positions} - self.fetched
        fetch_metadata(self.consumer, new)
        self.fetched |= new
        self.standing = None
        self.consumer.assign([KafkaPartition(p.topic, p.partition, start) for p, start in positions.items()])


class BoundedReader:
    """Consumers without a group, per isolation level as many as threads read at a time, and an admin client for
    watermarks."""

    def __init__(self, cluster: Cluster, levels: Sequence[bool] = (False, True)) -> None:
        """`levels`: whether committed records are asked for, or all, or both."""
        self._cluster = cluster
        self._idle = {c: [self._made(c)] for c in levels}
        self._made_of = dict.fromkeys(levels, 1)
        self._back = threading.Condition()
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return client(AdminClient, self._cluster.settings())

    def _made(self, committed: bool) -> _PooledConsumer:
        return _PooledConsumer(client(Consumer, self._cluster.reader(committed=committed)))

    @contextmanager
    def _borrowed(
        self, committed: bool, standing: tuple[TopicPartition, Offset] | None = None
    ) -> Iterator[_PooledConsumer]:
        """A consumer for only this caller: the one that stands there, else one that stands nowhere."""
        with self._back:
            idle = self._idle[committed]
            while (found := _choose(idle, standing)) is None:
                if self._made_of[committed] < READERS:
                    self._made_of[committed] += 1
                    found = self._made(committed)
                    break
                if idle:  # the one that has stood longest: its reader may have gone
                    found = idle.pop(0)
                    break
                self._back.wait()
        try:
            yield found
        finally:
            if found.silent:
                # It is not connected, or has stopped reading a partition (`stalls`): another one may get further.
                logger.info("reading %s: nothing came for %.0f s; with a new client from now on", found.silent, ANSWER)
                give_up(found.consumer)
                found = self._made(committed)
            with self._back:
                idle.append(found)
                self._back.notify()

    def watermarks(self, partitions: Sequence[TopicPartition], *, end: bool) -> dict[TopicPartition, Offset]:
        """First offsets, or high watermarks. Blocks while the cluster cannot be reached, and logs that it does. Raises
        ClusterError if a topic is gone."""
        if not partitions:
            return {}
        gone: float | None = None
        began, log, patience = time.monotonic(), Cadence(SILENT, AGAIN), min(AT_FIRST, ANSWER)
        spec = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {KafkaPartition(p.topic, p.partition): spec for p in partitions}
        level = IsolationLevel.READ_UNCOMMITTED
        while True:
            # The name keeps the client alive while this thread waits for its answers: another thread may replace it, and the
            # answers of a client that is gone never come.
            admin = self._admin
            found = dict[TopicPartition, Offset]()
            try:
                for p, answer in list_offsets(admin, asked, level, patience).items():
                    found[TopicPartition(p.topic, p.partition)] = found_offset(answer.result(2 * patience))
            except KafkaException as error:
                if known := translate(error.args[0], f"topic {p.topic}"):
                    raise known from error
                now = time.monotonic()
                gone = None if error.args[0].code() != MISSING else now if gone is None else gone
                if gone is not None and now - gone >= GONE:
                    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                    raise in_words(unknown, f"topic {p.topic}") from error
                problem = error.args[0].str()
            except FutureTimeoutError:
                problem = f"no answer for {2 * patience:.0f} s"
            else:
                return found
            if log.due(now := time.monotonic(), began):
                words = "no broker has told the offsets of topic %s for %.0f s; they are asked again: %s"
                logger.warning(words, p.topic, now - began, problem)
            patience = min(2 * patience, ANSWER)
            self._replace(admin)

    def _replace(self, admin: AdminClient) -> None:
        """Ask with another client: one that knew the broker before its restart gets FENCED_LEADER_EPOCH forever."""
        if self._admin is admin:  # else another thread has replaced it
            self._admin = self._new_admin()
        time.sleep(0.05)

    def read(self, ranges: Ranges, *, committed: bool, most: int = CHUNK) -> dict[TopicPartition, Read]:
        """Records of the ranges, in order. Returns early after about `most` records, or if nothing more comes."""
        reads = {p: Read(position=start) for p, (start, _) in ranges.items()}
        with self._borrowed(committed) as lent:
            lent.assign({p: start for p, (start, _) in ranges.items()})
            try:
                self._fill(lent, ranges, reads, most)
            finally:
                lent.consumer.unassign()
        return reads

    def _fill(self, lent: _PooledConsumer, ranges: Ranges, reads: dict[TopicPartition, Read], most: int) -> None:
        consumer, waiting, got, came = lent.consumer, set(ranges), 0, time.monotonic()
        stopped: dict[TopicPartition, float] = {}
        while waiting and got < most:
            messages = poll_batch(consumer, min(most, 10_000))
            if messages:
                came = time.monotonic()
            elif time.monotonic() - came > ANSWER:
                lent.silent = next(iter(waiting)).topic
                return
            for message in messages:
                if message.topic() is None:  # of the whole client: raised, if it will not pass
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
        """Continue where the partition begins now: nobody needs what was below, or it would not be gone."""
        first = self.watermarks([place], end=False)[place]
        consumer.incremental_unassign([KafkaPartition(place.topic, place.partition)])
        consumer.incremental_assign([KafkaPartition(place.topic, place.partition, first)])
        return first

    def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """The changes in one chunk of a changelog, the last of each key, and where the next chunk begins."""
        with self._borrowed(committed=True, standing=(partition, start)) as lent:
            if lent.standing != (partition, start):
                lent.assign({partition: start})
            # Between chunks it stays assigned: otherwise what is fetched ahead is dropped and fetched again.
            lent.standing = None
            try:
                changes, position = self._changes(lent, partition.topic, start, end)
                if position < end and len(changes) >= CHANGES:  # else it reached an end, which is reported only once
                    lent.standing = partition, position
            finally:
                if lent.standing is None:
                    lent.consumer.unassign()
            return changes, position

    @staticmethod
    def _changes(lent: _PooledConsumer, topic: str, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        changes: dict[bytes, bytes | None] = {}
        position, stopped, came = start, time.monotonic() + 3600, time.monotonic()
        while position < end and len(changes) < CHANGES and time.monotonic() - stopped < STUCK_AFTER:
            messages = poll_batch(lent.consumer, CHANGES)
            if messages:
                came = time.monotonic()
            elif time.monotonic() - came > ANSWER:
                lent.silent = topic
                break
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
        changes.pop(MARK, None)
        return changes, min(position, end)

    def close(self) -> None:
        """Close the consumers."""
        for idle in self._idle.values():
            for lent in idle:
                lent.consumer.close()


def _choose(idle: list[_PooledConsumer], standing: tuple[TopicPartition, Offset] | None) -> _PooledConsumer | None:
    """Take the one that stands there, else one that stands nowhere."""
    for wanted in (standing, None):
        for lent in idle:
            if lent.standing == wanted:
                idle.remove(lent)
                return lent
    return None


def poll_batch(consumer: Consumer, most: int) -> list[Message]:
    """What has come, or comes first within 20 ms. (`consume` alone would wait for as many as it may take.)"""
    first = consumer.poll(0.02)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def trimmed(message: Message) -> bool:
    """The message says that records were deleted from under the reader."""
    error = message.error()
    return error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def place_of(message: Message, group: str) -> str:
    """What an error is about: a partition, or else the group, of which the client only asks its coordinator."""
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
