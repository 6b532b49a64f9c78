"""Appends requests to the topic of one HTTP source.

    requests of a moment ──made into records together──▶ those that fit ──idempotent producer──▶ topic
                              │ does not fit: 400 and why
                              └ no row is left: answered

Requests are decoded by the format of the flow, whose cost is mostly one for each call. So those that come in one turn of the
loop share a call (`falkirk.runtime.gateway.recording`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from falkirk.blame import FAILURES
from falkirk.cadence import Cadence
from falkirk.connectors.http.messages import Reply, refused
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.runtime.gateway.desk import ToAppend
from falkirk.runtime.gateway.recording import Recording
from falkirk.wording import counted

UNKNOWN = refused(
    504, "the cluster did not acknowledge the request in time: it may have been taken",
    hint="ask again with the same Idempotency-Key", again=2,
)  # fmt: skip
"""Told to whoever waits for a request of which it is not known whether it was appended."""

UNREADABLE = refused(400, "the body does not fit: it could not be decoded: see the gateway's log")

AGAIN = 10.0
"""Seconds until the log says again that requests are not appended."""

BUSY = refused(503, "too many requests are waiting for the cluster", again=1)

Failed = Callable[[str, Reply], None]
"""Told of each request that is not appended, or may not be: its key, and the reply."""

Empty = Callable[[ToAppend], None]
"""Told of each request that leaves nothing to append."""


class Appender:
    """Of one source. It is used in the thread of a loop, and calls `failed` there."""

    def __init__(
        self, cluster: Cluster, topic: str, records: Recording, *, largest: int, patience: float, failed: Failed,
        empty: Empty,
    ) -> None:  # fmt: skip
        """`records`: makes records, which have up to `largest` bytes. `patience`: seconds within which the cluster must
        acknowledge one."""
        self._topic, self._records, self._patience = topic, records, max(1.0, patience)
        self._failed, self._empty = failed, empty
        self._settings = {
            "compression.type": "lz4",
            # Requests of one moment share a batch; waiting longer for others would only make them late.
            "linger.ms": 1,
            "message.max.bytes": largest,
            **cluster.settings(),
            "enable.idempotence": True,
            # What is delivered is answered by the flow: nobody waits for the broker's word.
            "delivery.report.only.error": True,
            "message.timeout.ms": int(self._patience * 1000),
            # As in Java's producers: all requests with one key are in one partition.
            "partitioner": "murmur2",
        }
        self._producer = client(Producer, self._settings)
        self._contact = Contact(patience)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[ToAppend] = []
        self._refused, self._log = 0, Cadence(0, AGAIN)
        """Requests not appended that the log does not know of yet."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="falkirk-append", daemon=True)
        self._thread.start()

    def append(self, one: ToAppend) -> None:
        """Append it in this turn of the loop, with others that come in it."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(one)

    def close(self) -> None:
        """Send what is left."""
        self._flush()
        self._closed.set()
        self._thread.join(5)
        _flush(self._producer, 5)

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        for one, value in zip(batch, self._made(batch), strict=True):
            if isinstance(value, Reply):
                self._failed(one.key, value)
            elif value is None:
                self._empty(one)
            else:
                self._send(one.key, value)

    def _made(self, batch: Sequence[ToAppend]) -> Sequence[bytes | Reply | None]:
        try:
            return self._records(batch)
        except FAILURES:  # whatever it is, nobody waits for it
            if len(batch) > 1:  # one of them is to blame, and the others are not
                return [made for one in batch for made in self._made([one])]
            logger.exception("a request to topic %s could not be decoded", self._topic)
            return [UNREADABLE]

    def _send(self, key: str, value: bytes) -> None:
        try:
            self._producer.produce(self._topic, value, key.encode(), on_delivery=partial(self._delivered, key))
        except BufferError:
            self._failed(key, BUSY)
        except KafkaException as error:
            self._told(key, error.args[0])

    def _delivered(self, key: str, error: KafkaError | None, _: Message) -> None:
        """In the thread that polls."""
        if error is not None:
            self._loop.call_soon_threadsafe(self._told, key, error)

    def _told(self, key: str, error: KafkaError) -> None:
        self._refused += 1
        if self._log.due(time.monotonic()):
            requests, self._refused = counted(self._refused, "request"), 0
            logger.warning("%s not appended to topic %s, the last because: %s", requests, self._topic, error.str())
        large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        self._failed(key, refused(413, "the body is larger than its topic accepts") if large else UNKNOWN)

    def _poll(self) -> None:
        while not self._closed.is_set():
            producer = self._producer
            try:
                producer.poll(0.1)
                over = self._contact.lost(producer, self._topic)
            except KafkaException as error:
                # It takes nothing any more: the broker has lost records that it had acknowledged, for example.
                logger.warning(
                    "requests to topic %s are appended by a new producer: %s", self._topic, error.args[0].str()
                )
                over = True
            if over:
                # What the old one still holds fails by its time-out: it goes on until then.
                threading.Thread(target=_flush, args=(producer, self._patience + 1)).start()
                self._producer = client(Producer, self._settings)


def _flush(producer: Producer, seconds: float) -> None:
    with suppress(KafkaException):  # it may be broken for good
        producer.flush(seconds)
