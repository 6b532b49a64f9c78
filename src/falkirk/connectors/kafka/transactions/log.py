"""The protocol's log on Kafka: only this class owns the transaction.

         begin              send, send_offsets             commit returns
 READY ─────────▶ OPEN ◀──────────────────────▶ OPEN ───────────────────────▶ READY
   ▲                │ abortable error: aborted here, then raised as Aborted     │
   │                ▼                                                            │
   │              READY      fatal error, time-out, fence, a connection broke,   ▼
   └───────────────────────────── renew ◀───────────────────────────────────── DEAD
                             or a call was repeated: Unknown

    READY  ⇒  every request of earlier transactions was answered         (`falkirk.connectors.kafka.client.connections`)

Transaction calls come from one thread (the committer); reads and fences may come from another (the recovery).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import repeat

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, Fenced, Ranges, Read, Unknown, Writes
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.connections import Connections, watched
from falkirk.connectors.kafka.client.errors import FENCED, refused_in, translate, why
from falkirk.connectors.kafka.client.producing import failure, initialised, last_row, leave_behind, produce_all
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.transactions import delivery
from falkirk.connectors.kafka.transactions.delivery import Delivery
from falkirk.connectors.kafka.transactions.marks import Marks
from falkirk.connectors.kafka.transactions.standstills import Standstills
from falkirk.errors import ClusterError
from falkirk.state.store import Changes

LOOK = 0.25
"""Seconds between two looks at a transaction's progress."""

ABORT = 2.0
"""Seconds of one attempt to abort. librdkafka 2.16 may queue a batch again that was on its way when another one was refused,
and then waits in vain until it is sent. The next attempt drops it."""

_TOO_LATE = (KafkaError._STATE, KafkaError._FATAL)
"""What a call says, whatever the reason, once the transaction has failed, or the producer."""


class Transaction(Enum):
    """Whether a transaction is open; only `KafkaLog` knows."""

    READY = "ready"
    OPEN = "open"
    DEAD = "dead"


class KafkaLog:
    """`falkirk.checkpoint.ports.Log` on a Kafka cluster."""

    def __init__(
        self,
        cluster: Cluster,
        owner: OwnerId,
        group_metadata: Callable[[], object],
        *,
        transaction_timeout_ms: int = 60_000,
        batch_bytes: int = 1_000_000,
    ) -> None:
        self._owner, self._group_metadata = owner, group_metadata
        self._settings = cluster.producer(owner, transaction_timeout_ms, batch_bytes)
        self._reader = BoundedReader(cluster)
        self._marks = Marks(cluster, self._reader)
        self._standstills = Standstills(2 * transaction_timeout_ms / 1000)
        self._producer: Producer | None = None
        self._state = Transaction.DEAD
        self._written: dict[TopicPartition, Offset] = {}
        self._topics: set[str] = set()
        self._cut_off = False
        self._connections = Connections(self._settings)
        self._broken_before = 0
        self._repeated = False
        self.delivery = Delivery(transaction_timeout_ms / 1000)

    @property
    def owner(self) -> OwnerId:
        """This worker's transactional id."""
        return self._owner

    async def begin(self) -> None:
        """Open a transaction. If the cluster has been away since the last one, the producer is not used again: it may wait
        forever for a coordinator that it knew before (see `_in_time`)."""
        self._called(lambda: self._live().poll(0))
        if self._cut_off:
            self._state = Transaction.DEAD
        self._written, self._topics = {}, set()
        self._broken_before, self._repeated = self._connections.broken, False
        self._called(lambda: self._live().begin_transaction())
        self._state = Transaction.OPEN
        self.delivery.begin()

    async def send(self, writes: Writes) -> None:
        """Queue records. A record's offset costs a call from librdkafka into Python: only the last one is asked for."""
        topic, last, told = writes.topic, len(writes) - 1, 0

        def full(queued: int) -> None:
            nonlocal told
            if queued:
                self.delivery.sent(queued)
                told += queued
            self._look()

        self._topics.add(topic)
        rows = zip(
            writes.partitions,
            writes.keys,
            writes.values,
            writes.timestamps if writes.timestamps is not None else repeat(0),
            writes.headers if writes.headers is not None else repeat([]),
            repeat(None, last) if writes.tracked else repeat(None),
            strict=False,  # what repeats has no end
        )
        self._called(lambda: produce_all(self._live(), topic, rows, full))
        if writes.tracked and last >= 0:
            self._called(lambda: produce_all(self._live(), topic, [(*last_row(writes), self._delivered)], full))
        self.delivery.sent(len(writes) - told)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit offsets under the group's metadata."""
        if not offsets:
            raise ValueError("a transaction without offsets is never checked against the group")
        listed = [KafkaPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        group = self._group_metadata()
        self._patiently(lambda: self._in_time(lambda: self._live().send_offsets_to_transaction(listed, group, 5.0)))

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        """End the transaction when all of it is acknowledged: so the offsets of what was sent are known.

        Any failure here is Unknown, even one that librdkafka calls abortable: an earlier attempt of the same call may have
        committed. To read the log then costs a tenth of a second, and is rare.
        """
        try:
            self._called(lambda: self._live().flush(LOOK))
            while len(self._live()):
                self._look()
                self._called(lambda: self._live().flush(LOOK))
            self._patiently(lambda: failure(lambda: self._live().commit_transaction(5.0)))
        except Aborted as error:
            self._state = Transaction.DEAD
            raise Unknown(error.cause.what, error.cause.why) from error
        self.delivery.committed()
        self._ended()
        return self._written

    async def abort(self) -> None:
        """End the transaction without effect."""
        if (error := self._abort()) is not None:
            self._state = Transaction.DEAD
            raise Unknown(str(error)) from error
        self._ended()

    async def renew(self) -> None:
        """A new producer with the same id. Blocks until the cluster answers; then what was open is decided."""
        self._state = Transaction.DEAD
        self._producer = None
        self._connections = Connections(self._settings)
        producer = self._initialised()
        producer.poll(0)
        self._connections.check()
        self._producer, self._cut_off = producer, False
        self._state = Transaction.READY

    async def fence(self, owner: OwnerId) -> None:
        """End another worker's producer."""
        logger.info("fencing %s", owner)
        initialised({**self._settings, "transactional.id": owner})

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The first offset still kept in each partition."""
        return self._reader.watermarks(partitions, end=False)

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks, asked at read_uncommitted."""
        return self._reader.watermarks(partitions, end=True)

    async def mark(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Where partitions end, each by a record that is written there."""
        return self._marks.write(partitions)

    async def read_uncommitted(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """Everything in the ranges, also of open and aborted transactions."""
        return self._reader.read(ranges, committed=False)

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """What is committed in the ranges, up to the first open transaction of each partition."""
        return self._reader.read(ranges, committed=True)

    def report_obstacle(self, partition: TopicPartition, position: Offset, mark: Offset, obstacle: str) -> None:
        """A read makes no progress."""
        self._standstills.note(partition, position, mark, obstacle)

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """Committed changes of a changelog, the last of each key."""
        return self._reader.read_changes(partition, start, end)

    def serve(self) -> None:
        """Take librdkafka's events while no transaction is open. It keeps its log lines until then, and while the cluster
        is away it has many. The next call gets a fatal error again."""
        self._marks.serve()
        if self._producer is not None:
            failure(self._producer.poll, 0)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        self._producer = None
        self._state = Transaction.DEAD

    # -- inside the transaction ----------------------------------------------------------------------------------------

    def _live(self) -> Producer:
        if self._producer is None or self._state is Transaction.DEAD:
            raise Unknown("the producer is gone; renew it")
        return self._producer

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return
        place = TopicPartition(message.topic() or "", message.partition() or 0)
        if (offset := message.offset()) is None:  # see `UNPLACED`
            self._repeated = True
        else:
            self._written[place] = Offset(offset)

    def _troubled(self, error: KafkaError) -> None:
        """librdkafka reports an error."""
        self._cut_off |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _ended(self) -> None:
        """The transaction's end was acknowledged. Raises Unknown if one of its requests may still be on its way: it would act
        on the next transaction, which has the same epoch. A new producer has a new one."""
        self._called(lambda: self._live().poll(0))  # librdkafka logs from its own threads; its lines reach us here
        if self._repeated or self._connections.broken > self._broken_before:
            self._state = Transaction.DEAD
            why = "a call was repeated" if self._repeated else "a connection broke"
            logger.info("%s during a transaction of %s: a new producer takes its place", why, self._owner)
            raise Unknown(f"{why}, and a request may still be on its way")
        self._state = Transaction.READY

    def _initialised(self) -> Producer:
        """With the time-out that transactions need by now, if the broker allows it."""
        told = {"error_cb": self._troubled, "throttle_cb": self.delivery.throttled}
        timeout = {"transaction.timeout.ms": int(1000 * self.delivery.timeout)}
        try:
            return initialised({**watched(self._settings), **timeout, **told}, self._connections)
        except ClusterError:
            if not self.delivery.shorten():
                raise
        return self._initialised()

    def _in_time(self, call: Callable[[], object]) -> KafkaException | None:
        """Wait for a call that has its own time-out but does not keep it, as long as the transaction makes progress.

        After a broker was away, a producer may still wait for the group's coordinator on a connection that is gone, although
        the broker is back. It cannot be woken. It is left behind with its thread and never commits, because only `commit`
        ends a transaction.
        """
        outcome: queue.SimpleQueue[KafkaException | None] = queue.SimpleQueue()
        threading.Thread(target=lambda: outcome.put(failure(call)), name="falkirk-call", daemon=True).start()
        while True:
            try:
                return outcome.get(timeout=LOOK)
            except queue.Empty:
                pass
            try:
                self._look(delivery.STUCK)
            except Exception:
                assert self._producer is not None
                leave_behind(self._producer, outcome.empty)
                raise

    def _look(self, patience: float | None = None) -> None:
        """Raises Unknown if the transaction is not waited for any longer; then the producer is dead. `patience`: seconds,
        once all that was sent is acknowledged."""
        self._called(lambda: self._live().poll(0))
        waiting = len(self._live())
        if given_up := self.delivery.given_up(waiting, delivery.PATIENCE if patience is None else patience):
            self._state = Transaction.DEAD
            raise given_up

    def _called(self, call: Callable[[], object]) -> None:
        """Call the producer. Raises what `_failed` makes of the call's error."""
        if (error := failure(call)) is not None:
            raise self._failed(error) from error

    def _patiently(self, attempt: Callable[[], KafkaException | None]) -> None:
        """Repeat a call while librdkafka allows it and the transaction makes progress. After a repeat the outcome is
        unknown."""
        while (error := attempt()) is not None:
            if not error.args[0].retriable():
                raise self._failed(error) from error
            logger.debug("%s tries again: %s", self._owner, error.args[0])
            self._repeated = True
            self._look()
            time.sleep(0.01)  # it may say so at once

    def _abort(self) -> KafkaException | None:
        """Why the transaction could not be aborted. After a second attempt a request of the first may still be on its way."""
        deadline = time.monotonic() + delivery.PATIENCE
        while (error := failure(lambda: self._live().abort_transaction(ABORT))) is not None:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                return error
            self._repeated = True
        return None

    def _cause(self, error: KafkaException) -> KafkaError:
        """Why a call failed. While records are still being queued, a record before them may have been refused: then `produce`
        says only that it is too late. A call that is out of place changes nothing, and says why the transaction failed."""
        cause: KafkaError = error.args[0]
        if cause.code() in _TOO_LATE and self._state is Transaction.OPEN and self._producer is not None:
            told = failure(self._producer.begin_transaction)
            if told is not None and told.args[0].code() not in _TOO_LATE:
                cause = told.args[0]
        return cause

    def _failed(self, error: KafkaException) -> Exception:
        """Abort if that is certain, and return Aborted; else the producer is dead, and it is Unknown."""
        cause = self._cause(error)
        logger.info("transaction of %s failed: %s", self._owner, cause)
        # FENCED_INSTANCE_ID is an abort like the others: the sender may be this worker itself, as the member that it was
        # before its session timed out and it joined again. Whether a rival runs, the group says (`Membership.poll`).
        if (
            self._state is Transaction.OPEN
            and not cause.fatal()
            and (cause.txn_requires_abort() or not cause.retriable())
        ):
            if (second := self._abort()) is not None:
                logger.info("abort of %s failed too: %s", self._owner, second.args[0])
            else:
                where = refused_in(cause) or f"a transaction that writes to {', '.join(sorted(self._topics))}"
                if known := translate(cause, where):
                    return known
                try:
                    self._ended()
                except Unknown as doubt:
                    return Unknown(f"{cause.str()}; {doubt}", why(cause))
                return Aborted(cause.str(), why(cause))
        self._state = Transaction.DEAD
        return Fenced(cause.str()) if cause.code() in FENCED else Unknown(cause.str(), why(cause))
