"""Stopping a worker at the worst moment: while it has a transaction open.

Seen from outside, a transaction is open on a partition where the last stable offset is below the high watermark. Of a
worker that runs, that is so for milliseconds; of one that is stopped, for as long as nobody fences it.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence

import psutil
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.soak.consumers import PATIENT, told
from tests.soak.system import signal_to

TRIES = 20
"""How often one worker is looked at. One that has just come back owns its tasks, but opens no transaction for seconds."""
HELD_S = 0.15
"""A transaction that stays open for so long is that of the stopped worker: the others' are over by then."""


class Freezer:
    """Looks at topics of which every worker writes to some."""

    def __init__(self, brokers: str, topics: Sequence[str], partitions: int) -> None:
        self.brokers = brokers
        self.partitions = [TopicPartition(topic, p) for topic in topics for p in range(partitions)]
        self.admin = self._connect()

    def freeze(self, worker: psutil.Process, dice: random.Random) -> bool:
        """Stop the worker (SIGSTOP), within a transaction if possible; say whether it was. If not, it runs on."""
        for _ in range(TRIES):
            signal_to(worker, signal.SIGSTOP)
            time.sleep(0.02)
            held = self._held()
            if held:
                time.sleep(HELD_S)
                if held & self._held():
                    return True
            signal_to(worker, signal.SIGCONT)
            time.sleep(dice.uniform(0.005, 0.05))
        return False

    def _held(self) -> set[tuple[TopicPartition, int]]:
        """Partitions with an open transaction, each with its last stable offset."""
        try:
            stable, ends = self._offsets(IsolationLevel.READ_COMMITTED), self._offsets(IsolationLevel.READ_UNCOMMITTED)
        except KafkaException:
            self.admin = self._connect()
            return set()
        return {(p, offset) for p, offset in stable.items() if offset < ends[p]}

    def _offsets(self, isolation: IsolationLevel) -> dict[TopicPartition, int]:
        wanted = {partition: OffsetSpec.latest() for partition in self.partitions}
        asked = self.admin.list_offsets(wanted, isolation_level=isolation, request_timeout=5)
        return {place: told(future) for place, future in asked.items()}

    def _connect(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers, **PATIENT})
