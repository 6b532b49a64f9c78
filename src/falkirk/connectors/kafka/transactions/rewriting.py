"""Write records again, exactly once: some of them, and a mark that says which, in one transaction.

    init ──▶ marks are read ──▶ begin ─▶ records ─▶ delivered ─▶ mark ─▶ commit ──▶ begin …

    a record is visible ⇔ its mark is

A new rewriter first fences the one before it, then reads the marks: they show all that was done. An unknown outcome ends
a rewriter; the next one finds it out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.connections import Connections, fatal_errors, watched
from falkirk.connectors.kafka.client.errors import FENCED, UNPLACED, translate
from falkirk.connectors.kafka.client.producing import failure, initialised, produce_all
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import ClusterError, FalkirkError, IdentityError, UnreachableError
from falkirk.stream.dataflow.records import Headers

PATIENCE = 20.0
"""Seconds that a part of a transaction may take."""

TIMEOUT_MS = 60_000
"""After this the broker ends the transaction of a dead rewriter, if no other takes its place."""

AGAIN = "start it again: what is written is not written twice"


class Rewritten(NamedTuple):
    """A record to be written."""

    place: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Rewriter:
    """The only one that writes under its name at a time."""

    def __init__(self, cluster: Cluster, owner: OwnerId, marks: TopicPartition, batch_bytes: int) -> None:
        """Fences others of this name. Blocks while the cluster cannot be reached."""
        self.owner, self.marks = owner, marks
        settings = cluster.producer(owner, TIMEOUT_MS, batch_bytes)
        self._connections = Connections(settings)
        self._producer: Producer = initialised(watched(settings), self._connections)
        self._producer.poll(0)
        self._connections.check()

    def write(self, records: Sequence[Rewritten], mark: Callable[[Sequence[Offset]], bytes]) -> None:
        """Write records and their mark, which is made from their offsets. Raises IdentityError if another has begun, and
        ClusterError: then none of it is visible, or all. No write may follow either error."""
        broken = self._connections.broken
        try:
            self._producer.begin_transaction()
            self._send(self.marks, [Rewritten(self.marks, None, mark(self._written(records)), 0, [])])
            self._producer.commit_transaction(PATIENCE)
        except BaseException as error:
            # Readers would wait for the transaction to time out.
            with suppress(KafkaException):
                self._producer.abort_transaction(PATIENCE)
            if isinstance(error, KafkaException):
                raise self._in_words(*error.args) from error
            raise
        failure(self._producer.poll, 0)  # the next write gets a fence again
        if self._connections.broken > broken:
            # A request may still be on its way, and would act on this producer's next transaction. A new producer must
            # read the marks first, because another replay may have begun. A new start does so.
            raise ClusterError("a connection to the cluster broke during a transaction", where=self.owner, hint=AGAIN)

    def _written(self, records: Sequence[Rewritten]) -> list[Offset]:
        by_place: dict[TopicPartition, list[int]] = {}
        for i, record in enumerate(records):
            by_place.setdefault(record.place, []).append(i)
        found: dict[int, Offset] = {}
        for place, mine in by_place.items():
            found |= dict(zip(mine, self._send(place, [records[i] for i in mine]), strict=True))
        return [found[i] for i in range(len(records))]

    def _send(self, place: TopicPartition, records: Sequence[Rewritten]) -> list[Offset]:
        """Write to one partition, and wait. The offsets."""
        offsets: list[Offset] = []
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None and (offset := message.offset()) is not None:
                offsets.append(Offset(offset))
            else:
                refused.append(error or UNPLACED)

        rows = ((place.partition, r.key, r.value, max(0, r.timestamp), r.headers, delivered) for r in records)
        with fatal_errors():
            produce_all(self._producer, place.topic, rows)
            self._producer.flush(PATIENCE)
        if len(offsets) < len(records):
            raise KafkaException(refused[0] if refused else KafkaError(KafkaError._MSG_TIMED_OUT), place)
        return offsets

    def _in_words(self, cause: KafkaError, refusing: TopicPartition | None = None) -> FalkirkError:
        """`refusing`: the partition that has not taken a record; None: the transaction itself failed."""
        if cause.code() in FENCED:
            return IdentityError(
                "another replay of this app has begun, and ends this one", where=self.owner, hint=AGAIN
            )
        where = self.owner if refusing is None else f"topic {refusing.topic}, partition {refusing.partition}"
        return translate(cause, where) or ClusterError(
            f"a transaction has failed: {cause.str()}", where=where, hint=AGAIN
        )


def read_marks(cluster: Cluster, place: TopicPartition, *, fenced: bool) -> list[bytes]:
    """What is committed in a partition. If its writer is `fenced`, this is all up to its present end, or UnreachableError
    is raised; else it does not wait for what is behind an open transaction."""
    reader = BoundedReader(cluster)
    try:
        at, end = reader.watermarks([place], end=False)[place], reader.watermarks([place], end=True)[place]
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE
        while at < end:
            # Just after a commit its records are still hidden; after a fence, all must be seen.
            read = reader.read({place: (at, end)}, committed=True)[place]
            found += [record.value for record in read.records if record.value is not None]
            if read.position > at:
                deadline = time.monotonic() + PATIENCE
            elif not fenced:
                return found
            elif time.monotonic() > deadline:
                raise UnreachableError(
                    "an open transaction hides what was replayed", where=f"{place.topic}[{place.partition}]", hint=AGAIN
                )
            at = read.position
        return found
    finally:
        reader.close()
