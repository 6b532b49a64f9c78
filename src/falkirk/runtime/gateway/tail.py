"""Reads the topic of answers of one HTTP source: committed records into the table, and then to those who wait.

read_committed shows a record only when the step that wrote it has committed, with all of that step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.http.app import MADE_UP
from falkirk.connectors.kafka.client.clients import client, give_up
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.contact import Contact
from falkirk.connectors.kafka.reading.reader import poll_batch
from falkirk.connectors.kafka.reading.stalls import watch
from falkirk.runtime.gateway.answers import decode
from falkirk.runtime.gateway.table import Heard, Table
from falkirk.stream.definition.requests import MARGIN

MOST = 2000
"""Records of one turn."""

SWEEP = 10.0
"""Seconds between two looks for expired answers."""


class Tail:
    """Of one source, in a thread of its own."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        table: Table,
        keep: int,
        heard: Callable[[list[Heard]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`keep`: milliseconds for which keys count. `heard` is called with records that are in the table, `failed` with what
        ends the reading; both in the thread of the tail."""
        self._topic, self._partitions, self._table, self._keep = topic, range(partitions), table, keep
        self._heard, self._failed = heard, failed
        self._watch = watch(cluster)
        # Answers that the topic no longer has are older than their keys count.
        self._settings = {**cluster.source(ends=True), "auto.offset.reset": "earliest"}
        self._behind = set(self._partitions)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="falkirk-answers", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether each partition has been read to its end since the start."""
        return not self._behind

    def close(self) -> None:
        """End."""
        self._closed.set()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            consumer, contact, swept = self._opened(), Contact(), 0.0
            while not self._closed.is_set():
                messages = poll_batch(consumer, MOST)
                if messages:
                    contact.heard()
                    self._take(messages)
                lost = not messages and contact.lost(consumer, self._topic)
                if lost or self._stalled(drained=len(messages) < MOST):
                    give_up(consumer)
                    consumer = self._opened()
                if time.monotonic() - swept > SWEEP:
                    before = int(time.time() * 1000) - self._keep - MARGIN
                    swept = 0.0 if self._table.sweep(before) else time.monotonic()
            consumer.close()
        except Exception as error:  # noqa: BLE001  # whatever it is, the gateway ends with it
            self._failed(error)

    def _stalled(self, *, drained: bool) -> bool:
        """Whether the client has stopped reading a partition."""
        return self._watch.due() and bool(self._watch.stalled(self._positions(), drained=drained))

    def _positions(self) -> dict[TopicPartition, Offset]:
        at = self._table.positions()
        return {TopicPartition(self._topic, p): Offset(at.get(p, OFFSET_BEGINNING)) for p in self._partitions}

    def _opened(self) -> Consumer:
        consumer = client(Consumer, self._settings)
        consumer.assign([KafkaPartition(*place, at) for place, at in self._positions().items()])
        self._watch.renewed()
        return consumer

    def _take(self, messages: Sequence[Message]) -> None:
        heard: list[Heard] = []
        positions: dict[int, int] = {}
        ended: set[int] = set()
        for message in messages:
            partition = message.partition() or 0
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    logger.warning("reading %s: %s", self._topic, error)
                continue
            positions[partition] = (message.offset() or 0) + 1
            if (one := heard_in(message.key(), message.value(), message.timestamp()[1])) is not None:
                heard.append(one)
        if positions:
            # Nobody asks again for a request whose name is made up.
            self._table.add((one for one in heard if not one.key.startswith(MADE_UP)), positions)
        if heard:
            self._heard(heard)
        # Not before its records are in the table.
        self._behind -= ended


def heard_in(key: bytes | str | None, value: bytes | str | None, at: int) -> Heard | None:
    """A record of the topic of answers; None: it is something else.

    >>> heard_in(b"k", b'{"digest":"d","rows":[{"n":1}]}', 7)
    Heard(key='k', digest='d', rows=b'[{"n":1}]', at=7)
    >>> heard_in(None, b"x", 7)
    """
    try:
        said = decode(value or b"")
        name = key.decode() if isinstance(key, bytes) else key
    except (msgspec.DecodeError, UnicodeDecodeError):
        name = None
    if name is None:
        return None
    rows = bytes(said.rows)
    return Heard(name, said.digest, rows or None, at)
