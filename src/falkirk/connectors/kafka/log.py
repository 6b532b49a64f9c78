"""The protocol's log on Kafka: the one class that owns the transaction.

         begin              send, send_offsets             commit returns
 READY ─────────▶ OPEN ◀──────────────────────▶ OPEN ───────────────────────▶ READY
   ▲                │ abortable error: aborted here, then raised as Aborted     │
   │                ▼                                                            │
   │              READY                 fatal error, time-out, fence: Unknown    ▼
   └───────────────────────────── renew ◀───────────────────────────────────── DEAD

Transaction calls come from one thread (the committer); reads and fences may come from another (the recovery).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import repeat

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, Ranges, Read, Unknown, Writes
from falkirk.connectors.kafka.clients import client
from falkirk.connectors.kafka.config import Cluster, Settings, logger
from falkirk.connectors.kafka.errors import translate
from falkirk.connectors.kafka.reader import BoundedReader
from falkirk.errors import IdentityError
from falkirk.state.store import Changes

PATIENCE = 15.0
"""Seconds that a step of a transaction may take before its outcome is called unknown."""

STUCK = 7.0
"""Seconds after which a call that ought to return within 5 is given up."""


class Transaction(Enum):
    """Whether a transaction is open; nobody but `KafkaLog` knows."""

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
        self._producer: Producer | None = None
        self._state = Transaction.DEAD
        self._written: dict[TopicPartition, Offset] = {}
        self._topics: set[str] = set()
        self._cut_off = False

    @property
    def owner(self) -> OwnerId:
        """This worker's transactional id."""
        return self._owner

    async def begin(self) -> None:
        """Open a transaction. Where the cluster has been away since the last one, the producer is not used again: it may
        wait for ever for a coordinator that it knew before (see `_in_time`)."""
        self._live().poll(0)
        if self._cut_off:
            self._state = Transaction.DEAD
        self._written, self._topics = {}, set()
        self._guard(self._live().begin_transaction)
        self._state = Transaction.OPEN

    async def send(self, writes: Writes) -> None:
        """Queue records. Asking for a record's offset costs a call from librdkafka into Python: only the last is asked."""
        producer, topic, last = self._live(), writes.topic, len(writes) - 1
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
        try:
            produce_all(producer, topic, rows)
            if writes.tracked and last >= 0:
                produce_all(producer, topic, [(*last_row(writes), self._delivered)])
        except KafkaException as error:
            raise self._failed(error) from error

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit offsets under the group's metadata."""
        if not offsets:
            raise ValueError("a transaction without offsets is never checked against the group")
        listed = [KafkaPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        producer, group = self._live(), self._group_metadata()
        self._patiently(lambda: self._in_time(lambda: producer.send_offsets_to_transaction(listed, group, 5.0)))

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        """End the transaction. librdkafka flushes first, so the offsets of what was sent are known when it returns.

        Any failure here is Unknown, even one that librdkafka calls abortable: an earlier attempt of the same call may have
        committed. Reading what the log says costs a tenth of a second, and happens rarely.
        """
        producer = self._live()
        try:
            self._patiently(lambda: producer.commit_transaction(5.0))
        except Aborted as error:
            self._state = Transaction.DEAD
            raise Unknown(str(error)) from error
        self._state = Transaction.READY
        return self._written

    async def abort(self) -> None:
        """End the transaction without effect."""
        try:
            self._live().abort_transaction(PATIENCE)
        except KafkaException as error:
            self._state = Transaction.DEAD
            raise Unknown(str(error)) from error
        self._state = Transaction.READY

    async def renew(self) -> None:
        """A new producer with the same id. Blocks until the cluster answers; what was open is decided then."""
        self._state = Transaction.DEAD
        self._producer = None
        producer = initialised(self._settings, self._troubled)
        producer.poll(0)
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

    async def read_uncommitted(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """Everything in the ranges, open and aborted transactions included."""
        return self._reader.read(ranges, committed=False)

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """What is committed in the ranges, up to the first open transaction of each partition."""
        return self._reader.read(ranges, committed=True)

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """Committed changes of a changelog, the last of each key."""
        return self._reader.read_changes(partition, start, end)

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()
        self._producer = None
        self._state = Transaction.DEAD

    # -- inside the transaction ----------------------------------------------------------------------------------------

    def _live(self) -> Producer:
        if self._producer is None or self._state is Transaction.DEAD:
            raise Unknown("the producer is gone; renew it")
        return self._producer

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = TopicPartition(message.topic() or "", message.partition() or 0)
            self._written[place] = Offset(message.offset() or 0)

    def _troubled(self, error: KafkaError) -> None:
        """librdkafka says how its connections are."""
        self._cut_off |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _in_time(self, call: Callable[[], object]) -> None:
        """Wait for a call that has a time-out of its own and does not keep it.

        After a broker was away, a producer may go on waiting for the group's coordinator on a connection that is no more,
        though the broker is back. It cannot be woken: it is left behind with its thread, and never commits anything, for
        only `commit` ends a transaction.
        """
        outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def run() -> None:
            try:
                call()
            except KafkaException as error:
                outcome.put(error)
            else:
                outcome.put(None)

        threading.Thread(target=run, name="falkirk-call", daemon=True).start()
        try:
            error = outcome.get(timeout=STUCK)
        except queue.Empty:
            self._state = Transaction.DEAD
            raise Unknown(f"the producer has not answered for {STUCK:g} s") from None
        if error is not None:
            raise error

    def _guard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._failed(error) from error

    def _patiently(self, call: Callable[[], object]) -> None:
        """Repeat a call while librdkafka says that it may be repeated; then its outcome is unknown."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if error.args[0].retriable() and time.monotonic() < deadline:
                    continue
                raise self._failed(error) from error

    def _failed(self, error: KafkaException) -> Exception:
        """Abort where that is certain and return Aborted; else the producer is dead, and it is Unknown."""
        cause: KafkaError = error.args[0]
        logger.info("transaction of %s failed: %s", self._owner, cause)
        if cause.code() == KafkaError.FENCED_INSTANCE_ID:
            self._state = Transaction.DEAD
            return IdentityError(
                f"another process runs under this worker's identity, {self._owner}",
                hint="was a state directory copied? Start each worker with one of its own",
            )
        if (
            self._state is Transaction.OPEN
            and not cause.fatal()
            and (cause.txn_requires_abort() or not cause.retriable())
        ):
            try:
                self._live().abort_transaction(PATIENCE)
            except KafkaException as second:
                logger.info("abort of %s failed too: %s", self._owner, second.args[0])
            else:
                self._state = Transaction.READY
                return translate(cause, f"a transaction that writes to {', '.join(sorted(self._topics))}") or Aborted(
                    cause.str()
                )
        self._state = Transaction.DEAD
        return Unknown(cause.str())


Row = tuple[
    int, bytes | None, bytes | None, int, list[tuple[str, bytes]], Callable[[KafkaError | None, Message], None] | None
]
"""Partition, key, value, timestamp, headers, and whom to tell of its delivery."""


def produce_all(producer: Producer, topic: str, rows: Iterable[Row]) -> None:
    """Queue rows; where the queue is full, wait for it to drain."""
    produce = producer.produce
    for partition, key, value, timestamp, headers, callback in rows:
        while True:
            try:
                produce(topic, value, key, partition, callback, None, timestamp, headers)  # type: ignore[arg-type]
                break
            except BufferError:
                producer.poll(0.05)


def last_row(writes: Writes) -> tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes]]]:
    """The last record of some writes."""
    timestamp = writes.timestamps[-1] if writes.timestamps is not None else 0
    headers = writes.headers[-1] if writes.headers is not None else []
    return writes.partitions[-1], writes.keys[-1], writes.values[-1], timestamp, headers


def initialised(settings: Settings, troubled: Callable[[KafkaError], None] | None = None) -> Producer:
    """A producer whose init_transactions has returned: older producers of the id are fenced, their transactions decided.

    While the coordinator aborts an open transaction (some milliseconds) it answers CONCURRENT_TRANSACTIONS, and librdkafka
    waits 500 ms before it asks again. A new producer asks at once, so on that answer the attempt is given up.
    Blocks while the cluster cannot be reached.
    """
    told = {**settings, "error_cb": troubled} if troubled else settings
    producer = client(Producer, told)
    while True:
        try:
            producer.init_transactions(0.03)
            return producer
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if known := translate(cause, f"transactional id {settings['transactional.id']}"):
                raise known from error
            if cause.code() != KafkaError._TIMED_OUT:
                logger.debug("init of %s: %s", settings["transactional.id"], cause)
                del producer
                producer = client(Producer, told)
