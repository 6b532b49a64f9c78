"""Read recorded divisions: exactly the records of each, one division after the other."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import groupby

from confluent_kafka import Consumer, Message

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Offset, TopicPartition, name_of
from falkirk.checkpoint.ports import Ranges
from falkirk.connectors.kafka.client.clients import client, fetch_metadata, give_up
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.client.places import ours, theirs
from falkirk.connectors.kafka.reading.reader import ended, poll_batch, trimmed
from falkirk.errors import UnreachableError

BATCH = 5_000
"""Messages taken in one call."""

STALLED = 10.0
"""Seconds without any progress, until another client is tried: this one may have stopped reading a partition (`stalls`)."""

SAY_AFTER, SAY_EVERY = 15.0, 60.0
"""Seconds without any progress until that is logged, and then logged again."""


class DivisionReader:
    """A read_committed consumer without a group, for divisions in order, for their parts in one cluster.

    division(n+1).start = division(n).end, so the consumer is assigned once; what it read too far is kept for the next.
    """

    def __init__(self, cluster: Cluster, lost: Words, patience: float = math.inf) -> None:
        """`lost` is the error if records are gone; `patience` is in seconds without any progress."""
        self._cluster = cluster
        self._settings = cluster.reader(committed=True)
        self._consumer = client(Consumer, self._settings)
        self._contact = Contact()
        self._lost, self._patience = lost, patience
        self._ahead: dict[TopicPartition, list[Message]] = {}
        self._position: dict[TopicPartition, Offset] = {}
        self._ends: dict[TopicPartition, Offset] = {}
        """Where the consumer last reached a partition's readable end."""

    def read(self, ranges: Ranges, go_on: Callable[[], None] = lambda: None) -> dict[TopicPartition, list[Message]]:
        """The messages of the ranges, in order.

        Raises `lost` if a range begins below the topic's retention, and UnreachableError when patience ends. While nothing
        comes it calls `go_on`, which may raise.
        """
        self._begin({p: start for p, (start, _) in ranges.items() if p not in self._ahead})
        came = renewed = time.monotonic()
        lines = Cadence(SAY_AFTER, SAY_EVERY)
        while waiting := [p for p, (_, end) in ranges.items() if self._position[p] < end]:
            if self._fill():
                came = renewed = time.monotonic()
                self._contact.heard()
                continue
            go_on()
            self._look(waiting[0])
            now = time.monotonic()
            if now - renewed > STALLED:
                renewed = now
                self._renew()
            if now - came > self._patience:
                raise self._stuck(waiting[0], now - came)
            if lines.due(now, came):
                stuck = self._stuck(waiting[0], now - came)
                logger.warning("waiting for recorded input: %s (%s)", stuck.what, stuck.where)
        found = {}
        for place, (_, end) in ranges.items():
            ahead = self._ahead[place]
            cut = bisect_left(ahead, end, key=_offset)
            found[place], self._ahead[place] = ahead[:cut], ahead[cut:]
        return found

    def _begin(self, starts: dict[TopicPartition, Offset]) -> None:
        if not starts:
            return
        fetch_metadata(self._consumer, {name_of(p.topic) for p in starts})
        self._consumer.incremental_assign([theirs(p, o) for p, o in starts.items()])
        self._ahead |= {p: [] for p in starts}
        self._position |= starts

    def _look(self, waiting: TopicPartition) -> None:
        """Go on with another client if this one has lost its cluster."""
        silence = self._contact.silence
        if self._contact.lost(self._consumer, name_of(waiting.topic)):
            logger.info("reading %s again: not connected for %.0f s; with a new client", waiting.topic, silence)
            self._renew()

    def _renew(self) -> None:
        lost, self._consumer = self._consumer, client(Consumer, self._settings)
        self._consumer.incremental_assign([theirs(p, o) for p, o in self._position.items()])
        give_up(lost)

    def _fill(self) -> bool:
        """Take what has come; whether it was anything."""
        before = dict(self._position)
        messages = poll_batch(self._consumer, BATCH)
        if any(map(Message.error, messages)):
            messages = [m for m in messages if m.error() is None or self._note(m)]
        if len(self._ahead) == 1:  # asking each message for its place costs as much as taking it
            (place,) = self._ahead
            self._keep(place, messages)
        else:
            for place, run in groupby(messages, key=self._place):
                self._keep(place, list(run))
        return self._position != before

    def _keep(self, place: TopicPartition, messages: Sequence[Message]) -> None:
        if messages:
            self._ahead[place] += messages
            self._position[place] = max(self._position[place], Offset(_offset(messages[-1]) + 1))

    def _note(self, message: Message) -> bool:
        """Note what a message without a record says of its partition; False. Raises what a wait cannot fix."""
        place = self._place(message)
        if trimmed(message):
            raise self._lost.kind(
                f"{self._lost.what}: {message.error().str()}",  # type: ignore[union-attr]
                where=f"{place.topic}[{place.partition}] from offset {self._position.get(place, '?')}",
                hint=self._lost.hint,
            )
        if ended(message):
            # Perhaps only markers and aborted records are left up to there.
            self._ends[place] = _offset(message)
            self._position[place] = max(self._position[place], self._ends[place])
        return False

    def _stuck(self, place: TopicPartition, seconds: float) -> UnreachableError:
        where = f"{place.topic}[{place.partition}] at offset {self._position[place]}"
        if self._ends.get(place) == self._position[place]:
            return UnreachableError(
                f"a transaction has been open for {seconds:.0f} s, and what follows cannot be read before it ends",
                where=where,
                hint="it ends with its producer's time-out at the latest; kafka-transactions.sh finds it",
            )
        return UnreachableError(f"nothing was read for {seconds:.0f} s", where=where, hint="is Kafka running?")

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _place(self, message: Message) -> TopicPartition:
        return ours(self._cluster, message)


def _offset(message: Message) -> Offset:
    return Offset(message.offset() or 0)
