"""Records written again, exactly once: some of them and a mark that says which they are, in one transaction.

    init ──▶ marks are read ──▶ begin ─▶ records ─▶ delivered ─▶ mark ─▶ commit ──▶ begin …

    a record is visible ⇔ its mark is

Whoever begins fences whoever was at it, and reads the marks after that: what they say is all that was done. An outcome that
is not known ends it, for the next one finds it out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.errors import translate
from falkirk.connectors.kafka.log import initialised, produce_all
from falkirk.connectors.kafka.reader import BoundedReader
from falkirk.errors import ClusterError, FalkirkError, IdentityError, UnreachableError
from falkirk.stream.records import Headers

PATIENCE = 20.0
"""Seconds that a part of a transaction may take."""

TIMEOUT_MS = 60_000
"""After which the broker ends the transaction of one that has died, if nobody takes its place."""

AGAIN = "start it again: what is written is not written twice"


class Rewritten(NamedTuple):
    """A record to be written."""

    place: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class Rewriter:
    """The one that writes, under a name of which there is one at a time."""

    def __init__(self, cluster: Cluster, owner: OwnerId, marks: TopicPartition, batch_bytes: int) -> None:
        """Fences whoever has the name. Blocks while the cluster cannot be reached."""
        self.owner, self.marks = owner, marks
        self._producer: Producer = initialised(cluster.producer(owner, TIMEOUT_MS, batch_bytes))

    def write(self, records: Sequence[Rewritten], mark: Callable[[Sequence[Offset]], bytes]) -> None:
        """Write records and their mark, which is made of their offsets. Raises IdentityError if another has begun, and
        ClusterError: nothing of it is visible then, or all of it."""
        try:
            self._producer.begin_transaction()
            self._send(self.marks, [Rewritten(self.marks, None, mark(self._written(records)), 0, [])])
            self._producer.commit_transaction(PATIENCE)
        except BaseException as error:
            # Readers would wait for the transaction to time out.
            with suppress(KafkaException):
                self._producer.abort_transaction(PATIENCE)
            if isinstance(error, KafkaException):
                raise self._in_words(error.args[0]) from error
            raise

    def _written(self, records: Sequence[Rewritten]) -> list[Offset]:
        by_place: dict[TopicPartition, list[int]] = {}
        for i, record in enumerate(records):
            by_place.setdefault(record.place, []).append(i)
        found: dict[int, Offset] = {}
        for place, mine in by_place.items():
            found |= dict(zip(mine, self._send(place, [records[i] for i in mine]), strict=True))
        return [found[i] for i in range(len(records))]

    def _send(self, place: TopicPartition, records: Sequence[Rewritten]) -> list[Offset]:
        """Write to one partition, and wait: where each lies."""
        offsets: list[Offset] = []
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(Offset(message.offset() or 0))
            else:
                refused.append(error)

        rows = ((place.partition, r.key, r.value, max(0, r.timestamp), r.headers, delivered) for r in records)
        produce_all(self._producer, place.topic, rows)
        self._producer.flush(PATIENCE)
        if len(offsets) < len(records):
            raise KafkaException(refused[0] if refused else KafkaError(KafkaError._MSG_TIMED_OUT))
        return offsets

    def _in_words(self, cause: KafkaError) -> FalkirkError:
        if cause.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return IdentityError(
                "another replay of this app has begun, and ends this one", where=self.owner, hint=AGAIN
            )
        return translate(cause, self.owner) or ClusterError(
            f"a transaction has failed: {cause.str()}", where=self.owner, hint=AGAIN
        )


def read_marks(cluster: Cluster, place: TopicPartition, *, fenced: bool) -> list[bytes]:
    """What is committed in a partition. If whoever writes it is `fenced`, that is all up to where it ends now, or
    UnreachableError is raised; else what is behind an open transaction is not waited for."""
    reader = BoundedReader(cluster)
    try:
        at, end = reader.watermarks([place], end=False)[place], reader.watermarks([place], end=True)[place]
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE
        while at < end:
            # For some moments after a commit its records are hidden, and who has fenced must see them all.
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
