"""How the soak's tools read a cluster: patiently, from the beginnings, at read_committed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.soak.check.seen import Tp

PATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,  # else the reader is what a recovery waits for
    "log_level": 0,
}

STANDSTILL_S = 6.0
"""Seconds for which a client has read nothing of a partition with more. What it has not read is trimmed after 20."""

Asked = dict[TopicPartition, Future[Any]]


def told(asked: Future[Any]) -> int:
    """An offset that was asked for. Raises KafkaException where no broker answers: the client says -1001 then."""
    offset: int = asked.result().offset
    if offset < 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset


class Following:
    """Reads partitions from their beginnings on, with one client after another. It keeps for itself how far it has read
    each: a client that has read nothing of a partition yet does not say where it is."""

    def __init__(self, brokers: str, partitions: Iterable[Tp]) -> None:
        self._brokers, self.consumer = brokers, _consumer(brokers)
        self.positions = dict.fromkeys(partitions, OFFSET_BEGINNING)
        self._assign()

    def consume(self, most: int, patience: float) -> list[Message]:
        """What has come, or comes within `patience` seconds."""
        messages = self.consumer.consume(most, patience)
        for message in messages:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                # Where there is an address at all, the client's types allow for there being none.
                tp, offset = Tp(message.topic() or "", message.partition() or 0), message.offset() or 0
                self.positions[tp] = offset + (error is None)
        return messages

    def renew(self) -> None:
        """Read on with another client. This one may have stopped reading a partition, as librdkafka's do now and then when a
        broker has come back: what it does not read would look like a task that gives nothing."""
        old, self.consumer = self.consumer, _consumer(self._brokers)
        self._assign()
        threading.Thread(target=old.close, daemon=True).start()  # it may never have done with a partition

    def _assign(self) -> None:
        self.consumer.assign([TopicPartition(*tp, position) for tp, position in self.positions.items()])


class Cluster:
    """What is read of one cluster."""

    def __init__(self, brokers: str) -> None:
        self.brokers = brokers
        self.admin = self._admin()
        self.all: list[Tp] = []
        self.followed = Following(brokers, [])

    def read(self, partitions: Iterable[Tp]) -> None:
        """Read these from their beginnings."""
        self.followed = Following(self.brokers, partitions)

    def wait_for(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each has, once they are there."""
        while True:
            try:
                found = self.admin.list_topics(timeout=5).topics
            except KafkaException:
                found = {}
            if all(topic in found and found[topic].partitions for topic in topics):
                return {topic: len(found[topic].partitions) for topic in topics}
            time.sleep(0.1)

    def behind(self) -> dict[Tp, int]:
        """Records between its positions and the ends that came with the last answers."""
        told = self.followed.consumer.get_watermark_offsets
        return {
            tp: max(0, told(TopicPartition(*tp), cached=True)[1] - position)
            for tp, position in self.followed.positions.items()
            if position >= 0
        }

    def ask(self, *, committed: bool = False) -> Asked:
        """Ask for the ends of all partitions. Not `committed`, as a rule: the last stable offset may lag behind a commit
        whose records have been read elsewhere."""
        wanted = {TopicPartition(*tp): OffsetSpec.latest() for tp in self.all}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked: Asked = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=5)
        return asked

    def answer(self, asked: Asked) -> dict[Tp, int] | None:
        """The high watermarks; None where the broker does not answer."""
        try:
            return {Tp(tp.topic, tp.partition): told(future) for tp, future in asked.items()}
        except KafkaException:
            # The client goes on asking with the leader epochs of before a restart of the broker, and is refused for ever.
            self.admin = self._admin()
            return None

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers, **PATIENT})


class Ahead:
    """Reads what the app trims, in a thread of its own: however long the checking takes, it is here before it is gone. It
    reads on with another client when its own has stopped reading a partition."""

    def __init__(self, brokers: str, partitions: Sequence[Tp]) -> None:
        self._followed, self._stands = Following(brokers, partitions), Standstills(brokers, partitions)
        self._renewing = threading.Event()
        self._here: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def taken(self) -> list[Message]:
        """What has come since the last call."""
        return [self._here.get() for _ in range(self._here.qsize())]

    def waiting(self) -> int:
        """How many were read and not taken."""
        return self._here.qsize()

    def renew(self) -> None:
        """Read on with another client."""
        self._renewing.set()

    def close(self) -> None:
        """Read no more."""
        self._closing.set()
        self._thread.join()
        self._followed.consumer.close()

    def _read(self) -> None:
        while not self._closing.is_set():
            for message in self._followed.consume(1000, 0.1):
                self._here.put(message)
            if self._renewing.is_set() or self._stands.any(self._followed.positions):
                self._renewing.clear()
                self._followed.renew()


class Standstills:
    """Notices a partition in which a client stands still, though there is more."""

    def __init__(self, brokers: str, partitions: Iterable[Tp]) -> None:
        self._cluster = Cluster(brokers)
        self._cluster.all = list(partitions)
        self._asked: Asked | None = None
        self._ask_at = 0.0
        self._since: dict[Tp, tuple[int, float]] = {}
        """Of those with more: where it stands, and since when."""

    def any(self, positions: Mapping[Tp, int]) -> bool:
        """Whether there is one. After a yes, the time to notice begins again."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._ask_at:
                self._asked, self._ask_at = self._cluster.ask(committed=True), now + STANDSTILL_S / 4
            return False
        if not all(future.done() for future in self._asked.values()):
            return False
        ends, self._asked = self._cluster.answer(self._asked), None
        if ends is None:
            return False
        more = {tp: at for tp, at in positions.items() if at < ends[tp]}
        was = self._since
        self._since = {tp: was[tp] if tp in was and was[tp][0] == at else (at, now) for tp, at in more.items()}
        if all(now - since < STANDSTILL_S for _, since in self._since.values()):
            return False
        self._since = {}
        return True


def _consumer(brokers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "falkirk-soak-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A record that was deleted before we read it must not be passed over in silence.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 20,
            **PATIENT,
        }
    )
