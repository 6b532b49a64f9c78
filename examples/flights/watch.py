"""Follows the app as any reader at read_committed could: through its steps topic, where each task records its progress.

Partition t holds what became of task t:  named(a) · step by a · step by a · … · named(b) · step by b · …
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition
from data import PARTITIONS, TOPIC

from falkirk.checkpoint.ids import OwnerId, worker_of
from falkirk.checkpoint.records import Named, StepRecord, decode

STEPS = "falkirk.flights.steps"
SOURCE_STAGES = ("by-carrier", "flights.lazy")


@dataclass(slots=True)
class Death:
    """Something that was killed, and how long its tasks were silent."""

    what: str
    silent: dict[str, str]
    """Those of its tasks that have not committed since, each with its ownership at that moment."""
    tasks: int
    """How many it had."""
    at: float = field(default_factory=time.monotonic)
    seconds: float | None = None
    """From the kill to the first committed step of the last of its tasks, as a read_committed reader sees it."""


class Watch:
    """A thread that reads the steps topic."""

    def __init__(self, brokers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "watch",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._owner: dict[str, tuple[str, OwnerId]] = {}
        self._read: dict[tuple[str, int], int] = {}
        self._stepped: dict[str, str] = {}
        self.deaths: list[Death] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def processed(self) -> dict[str, int]:
        """How many flights each stage that reads them has committed."""
        with self._lock:
            return {stage: sum(self._read.get((stage, p), 0) for p in range(PARTITIONS)) for stage in SOURCE_STAGES}

    def at_work(self) -> set[int]:
        """The workers that have tasks, once every task has committed a step under its present owner; else none."""
        with self._lock:
            if any(self._stepped.get(task) != nonce for task, (nonce, _) in self._owner.items()):
                return set()
            return {_number(owner) for _, owner in self._owner.values()}

    def killed(self, what: str, worker: int | None) -> Death:
        """Note a death: of one worker, or, for None, of all."""
        with self._lock:
            mine = {t: n for t, (n, owner) in self._owner.items() if worker in (None, _number(owner))}
            self.deaths.append(death := Death(what, mine, len(mine)))
            return death

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        while not self._stop.is_set() and not self._assigned():
            self._stop.wait(0.1)
        while not self._stop.is_set():
            messages = self._consumer.consume(500, 0.05)
            now = time.monotonic()
            with self._lock:
                for message in messages:
                    # A record without a value marks an end.
                    if message.error() is None and (value := message.value()) is not None:
                        self._see(value, (message.key() or b"").decode(), now)

    def _assigned(self) -> bool:
        """Whether the app has made its steps topic already."""
        partitions = self._consumer.list_topics(timeout=5).topics
        if STEPS not in partitions or partitions[STEPS].error is not None:
            return False
        self._consumer.assign([TopicPartition(STEPS, p, 0) for p in partitions[STEPS].partitions])
        return True

    def _see(self, value: bytes, task: str, now: float) -> None:
        record = decode(value)
        if isinstance(record, Named):
            self._owner[task] = record.nonce, record.owner
        elif isinstance(record, StepRecord):
            self._stepped[task] = record.nonce
            stage = task.rpartition("/")[0]
            for r in record.division:
                if r.partition.topic == TOPIC:
                    self._read[stage, r.partition.partition] = r.end
            for death in self.deaths:
                if death.silent.get(task, record.nonce) != record.nonce:
                    del death.silent[task]
                    if not death.silent:
                        death.seconds = now - death.at


def _number(owner: OwnerId) -> int:
    """Of the worker that an owner belongs to: each part of a worker is an owner of its own."""
    return int(worker_of(owner).rpartition("-")[2])
