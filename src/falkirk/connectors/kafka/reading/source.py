"""Read the inputs: one consumer without a group, assigned by the positions in step records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from falkirk.checkpoint.ids import Offset, TopicPartition, address, after, name_of
from falkirk.connectors.kafka.client.clients import client, fetch_metadata, give_up
from falkirk.connectors.kafka.client.config import SOURCE, Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.client.errors import translate
from falkirk.connectors.kafka.client.places import ours, theirs
from falkirk.connectors.kafka.reading.lag import deleted_unread
from falkirk.connectors.kafka.reading.reader import place_of
from falkirk.connectors.kafka.reading.stalls import watch
from falkirk.errors import SourceError
from falkirk.stream.dataflow.records import Message as Record

Runs = list[tuple[TopicPartition, list[Record]]]
"""Records of one partition each."""

ANSWER = 5.0
"""Seconds that a broker has to say where a partition begins and ends, for an error."""

BATCH = 5_000
"""Messages taken in one call. Larger batches were slower: their objects leave the processor's cache."""


class SourceReader:
    """Messages of the assigned partitions of one cluster, in the order of offsets within each."""

    def __init__(self, cluster: Cluster, *, ends: bool = False, gathers: bool = False) -> None:
        """`ends`: whether `at_end` will be asked; `gathers`: whether records may wait a tenth of a second for others."""
        self._cluster, self._settings = cluster, cluster.source(ends=ends, gathers=gathers)
        self._consumer = client(Consumer, self._settings)
        self._contact, self._watch = Contact(), watch(cluster)
        self.ends: dict[TopicPartition, Offset] = {}
        """Where the end of a partition was last reached, since it was added."""
        self.unreadable: dict[TopicPartition, SourceError] = {}
        """Partitions whose position is no longer in the log. Nothing more of them is read."""
        self._assigned: dict[TopicPartition, Offset] = {}
        """From where to go on, after the messages that were handed over."""
        self._paused = set[TopicPartition]()
        self._topic = ""
        """The topic of all messages, if it is only one: to ask each message costs time."""

    def add(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Begin to read partitions at the given offsets."""
        if positions:
            new = {p.topic for p in positions} - {p.topic for p in self._assigned}
            fetch_metadata(self._consumer, map(name_of, new))
            self._consumer.incremental_assign([theirs(p, o) for p, o in positions.items()])
            self._assigned |= positions
            for place in positions:
                self.ends.pop(place, None)
                self.unreadable.pop(place, None)
            topics = {p.topic for p in self._assigned}
            self._topic = topics.pop() if len(topics) == 1 else ""

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; what was fetched ahead is dropped."""
        if gone := self._assigned.keys() & set(partitions):
            self._consumer.incremental_unassign([theirs(p) for p in gone])
            for place in gone:
                del self._assigned[place]
                self.unreadable.pop(place, None)
            self._paused -= gone

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more of these partitions until they are resumed. They stay known."""
        new = self._assigned.keys() & set(partitions)
        self._paused |= new
        self._consumer.pause([theirs(p) for p in new])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where it stopped."""
        again = self._paused & set(partitions)
        self._paused -= again
        self._consumer.resume([theirs(p) for p in again])

    def poll(self, timeout: float) -> tuple[Runs, int]:
        """Runs of messages of one partition each, and how many in all.

        Waits up to `timeout` seconds for a first message, then takes what has come, without waiting. Raises SourceError if
        offsets go back.
        """
        if not self._assigned:
            time.sleep(timeout)
            return [], 0
        first = self._consumer.poll(timeout)
        if first is None:
            self._look()
            return [], 0
        messages = [first, *self._consumer.consume(BATCH, 0)]
        runs = self._runs(messages)
        if runs:
            self._contact.heard()
        if self._watch.due():
            self._look_for_stalls(drained=len(messages) <= BATCH)
        return runs, len(messages)

    def _runs(self, messages: Sequence[Message]) -> Runs:
        runs: Runs = []
        for partition, run in groupby(messages, key=Message.partition):
            taken = list(run)
            if any(map(Message.error, taken)):
                taken = [m for m in taken if self._sound(m)]
            for topic, same in [(self._topic, taken)] if self._topic else groupby(taken, key=Message.topic):
                if same := list(same):
                    place = TopicPartition(address(self._cluster.name, name_of(topic or "")), partition or 0)
                    records = cast("list[Record]", same)  # none is an error, so only what may be None is
                    check_order(place, self._assigned.get(place, Offset(0)), records)
                    runs.append((place, records))
                    self._assigned[place] = after(records[-1].offset())
        return runs

    def at_end(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the end of each of these partitions has been reached since it was added."""
        return self.ends.keys() >= set(partitions)

    def marks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The ends of partitions as of the last fetch, if there was one: without a request."""
        found = {}
        for p in partitions:
            _, high = self._consumer.get_watermark_offsets(theirs(p), cached=True)
            if high >= 0:
                found[p] = Offset(high)
        return found

    def _look(self) -> None:
        """Go on with another client if this one has lost its cluster, or reads a partition no more."""
        silence = self._contact.silence
        if self._contact.lost(self._consumer, name_of(next(iter(self._assigned)).topic)):
            logger.info("reading %s: not connected for %.0f s; with a new client", self._cluster.shown, silence)
            self._renew()
        elif self._watch.due():
            self._look_for_stalls(drained=True)

    def _look_for_stalls(self, *, drained: bool) -> None:
        reading = {place: at for place, at in self._assigned.items() if place not in self._paused}
        if self._watch.stalled(reading, drained=drained):
            self._renew()

    def _renew(self) -> None:
        lost, self._consumer = self._consumer, client(Consumer, self._settings)
        self._consumer.incremental_assign([theirs(p, o) for p, o in self._assigned.items()])
        self._consumer.pause([theirs(p) for p in self._paused])
        self._watch.renewed()
        give_up(lost)

    def _sound(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self.ends[ours(self._cluster, message)] = Offset(message.offset() or 0)
            return False
        where = address(self._cluster.name, place_of(message, SOURCE))
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            if (place := ours(self._cluster, message)) in self._assigned:
                self.unreadable[place] = self._out_of_range(message, where)
            return False
        if known := translate(error, where):
            raise known
        logger.warning("reading %s: %s", where, error)
        return False

    def _out_of_range(self, message: Message, where: str) -> SourceError:
        at = message.offset() or 0
        try:
            first, end = self._consumer.get_watermark_offsets(theirs(ours(self._cluster, message)), timeout=ANSWER)
        except KafkaException as error:
            return SourceError(
                f"the topic has no offset {at}, up to which the app has read it, and no broker tells which it has: "
                f"{error.args[0].str()}",
                where=where,
                hint="were records deleted before they were read, or was the topic recreated?",
            )
        if at >= first:  # a topic that was made again may have grown past the offset by now
            return SourceError(
                f"the topic ends before offset {at}, up to which the app has read it; it ends at {end} now",
                where=where,
                hint="committed records were lost, or the topic was recreated: give the flow another name to start from "
                "scratch",
            )
        return deleted_unread(Offset(at), Offset(first), where)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def check_order(place: TopicPartition, position: Offset, run: Sequence[Record]) -> None:
    """Records come from `position` on, in the order of their offsets. Raises SourceError.

    A client goes back if the topic was recreated while it reads, or if its end was lost with a broker. The same offsets then
    mean other records.

    >>> from falkirk.testing.memory import Record
    >>> check_order(TopicPartition("bids", 0), Offset(7), [Record(0, 7, None, b"a"), Record(0, 9, None, b"b")])
    >>> check_order(TopicPartition("bids", 0), Offset(7), [Record(0, 0, None, b"a")])
    Traceback (most recent call last):
    falkirk.errors.SourceError: the topic went back to offset 0, after the app had read it up to offset 7
      where: bids[0]
      to do: the topic was recreated, or committed records were lost: give the flow another name to start from scratch
    """
    first, last = run[0].offset(), run[-1].offset()
    if first >= position and last - first + 1 == len(run):
        return
    for before, offset in pairwise([position - 1, *(r.offset() for r in run)]):
        if offset <= before:
            raise SourceError(
                f"the topic went back to offset {offset}, after the app had read it up to offset {before + 1}",
                where=f"{place.topic}[{place.partition}]",
                hint="the topic was recreated, or committed records were lost: give the flow another name to start from "
                "scratch",
            )
