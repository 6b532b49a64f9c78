"""Producers: how the only one of a transactional id is made, and how records are queued.

A call that serves librdkafka's callbacks while an exception is handled never releases that exception, nor the frames that
it came through. A producer in such a frame is never closed. Its threads continue to look for brokers, and its log lines,
which nobody reads, fill the memory. So producers are called through `failure`, which drops the frames. And no frame that a
failure comes through has a producer among its variables.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.cadence import Cadence
from falkirk.checkpoint.ports import Writes
from falkirk.connectors.kafka.client.clients import Logger, client, client_logger
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.client.connections import fatal_errors
from falkirk.connectors.kafka.client.errors import translate

P = ParamSpec("P")

Row = tuple[
    int, bytes | None, bytes | None, int, list[tuple[str, bytes]], Callable[[KafkaError | None, Message], None] | None
]
"""Partition, key, value, timestamp, headers, and the callback of its delivery."""


LOOK = 0.25
"""Seconds between two looks at a producer that is left behind."""

AT_ONCE, LATER = 20, 0.25
"""So many new producers are made one after the other, then one after so many seconds."""

SAY_AFTER, SAY_EVERY = 10.0, 30.0
"""Seconds until such a wait is logged, and then logged again."""

PURGED = 2.0
"""Seconds to wait until a producer's threads have ended its records."""


def failure(call: Callable[P, object], *args: P.args, **named: P.kwargs) -> KafkaException | None:
    """What a call of a client raises, also a fatal error among its events; None if it returns.

    >>> def refuse() -> None:
    ...     raise KafkaException("no")
    >>> failure(refuse), failure(lambda: 7)
    (KafkaException('no'), None)
    """
    try:
        with fatal_errors():
            call(*args, **named)
    except KafkaException as error:
        return error.with_traceback(None)
    return None


def leave_behind(producer: Producer, stuck: Callable[[], bool]) -> None:
    """Take a producer's log lines for as long as one of its calls does not return. Unread, they would fill the memory, and
    librdkafka looks through all of them for each new one: a minute without the cluster, and most of a core is spent."""

    def serve() -> None:
        while stuck():
            failure(producer.poll, 0)
            time.sleep(LOOK)

    threading.Thread(target=serve, name="falkirk-left-behind", daemon=True).start()


def produce_all(
    producer: Producer, topic: str, rows: Iterable[Row], full: Callable[[int], object] = lambda queued: None
) -> None:
    """Queue rows; if the queue is full, wait for it to drain. While it is, `full` is told now and then how many were queued
    since it was last told, and may raise."""
    produce, queued = producer.produce, 0
    for partition, key, value, timestamp, headers, callback in rows:
        while True:
            try:
                produce(topic, value, key, partition, callback, None, timestamp, headers)  # type: ignore[arg-type]
                queued += 1
                break
            except BufferError:
                pass
            producer.poll(0.05)
            full(queued)
            queued = 0


def last_row(writes: Writes) -> tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes]]]:
    """The last record of some writes."""
    timestamp = writes.timestamps[-1] if writes.timestamps is not None else 0
    headers = writes.headers[-1] if writes.headers is not None else []
    return writes.partitions[-1], writes.keys[-1], writes.values[-1], timestamp, headers


class TransactionalProducer(Producer):
    """A producer of which no thread reads an answer to a record any more when librdkafka destroys it.

    While librdkafka 2.16 destroys a producer, it frees the text of the transaction's last error (`rd_kafka_txns_term`), and
    only then ends the threads that read what brokers answer. If a thread reads meanwhile that the producer is fenced,
    it frees the same text: the heap is corrupted, and the process dies.

        len(producer) = 0  ⇒  no answer to a record is still being read

    A record counts until its delivery is reported, and librdkafka reports it after it has noted the error. `purge` ends all
    records, also those on their way; a thread that learns this reports them, and later drops their answers.
    """

    def __del__(self) -> None:
        if len(self):
            # It does not block: confluent-kafka 2.16 takes this flag for its opposite. If it did, it would do so under the
            # interpreter's lock, for seconds where a thread looks up the name of a broker. `flush` waits without the lock.
            self.purge(blocking=True)
            # Only such a look-up keeps a thread busy for as long as this, and then it has no connection to read from.
            failure(self.flush, PURGED)


def initialised(settings: Mapping[str, Any], log: Logger | logging.Logger = client_logger) -> Producer:
    """A producer whose init_transactions has returned: older producers of the id are fenced, their transactions decided.

    While the coordinator aborts an open transaction (some milliseconds) it answers CONCURRENT_TRANSACTIONS, and librdkafka
    waits 500 ms before it asks again. A new producer asks at once, so this answer ends the attempt. If a partition of that
    transaction has no leader, it answers so for as long: after some attempts, they are made with pauses.
    Blocks while the cluster cannot be reached, and logs why.
    """
    producer = client(TransactionalProducer, settings, log)
    began, attempts, cadence = time.monotonic(), 0, Cadence(SAY_AFTER, SAY_EVERY)
    while (failed := failure(producer.init_transactions, 0.03)) is not None:
        failure(producer.poll, 0)  # its log lines wait in memory until they are read
        cause: KafkaError = failed.args[0]
        if known := translate(cause, f"transactional id {settings['transactional.id']}"):
            del producer
            raise known from failed
        if cadence.due(now := time.monotonic(), began):
            words = "%s has waited for %.0f s for a new producer, which ends what an older one left open: %s"
            logger.warning(words, settings["transactional.id"], now - began, cause.str())
        if cause.code() != KafkaError._TIMED_OUT:
            logger.debug("init of %s: %s", settings["transactional.id"], cause)
            attempts += 1
            if attempts > AT_ONCE:
                time.sleep(LATER)
            producer = client(TransactionalProducer, settings, log)
    return producer
