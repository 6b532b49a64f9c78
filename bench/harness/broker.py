"""The Kafka of a benchmark: embedded, fresh, on loopback, in a folder that goes when it ends."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.console import Console

from falkirk.connectors.embedded import EmbeddedKafka

PARTITIONS = 4
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
"""A deleted topic's files go at once, or a long run would need the disk of all its topics."""

BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
"""The broker stamps every record when it is appended, whatever the client says: one clock for all that is compared."""


class Kafka:
    """One broker, and what is done to its topics."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._node = EmbeddedKafka(folder, console=console, settings=SETTINGS)
        self.brokers = self._node.start()
        self.admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        self._logs = folder / "data"

    @property
    def pid(self) -> int:
        """The JVM's."""
        node = self._node.running()
        assert node is not None
        return node.pid

    def make(self, topic: str, config: Mapping[str, str] | None = None, partitions: int = PARTITIONS) -> None:
        """Create a topic, with four partitions by default."""
        for made in self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))]).values():
            made.result()
        while topic not in self.topics():
            time.sleep(0.02)

    def delete(self, word: str) -> None:
        """All topics with this in their names."""
        if gone := [topic for topic in self.topics() if word in topic]:
            for deleted in self.admin.delete_topics(gone).values():
                deleted.result()

    def topics(self) -> set[str]:
        """Names."""
        return set(self.admin.list_topics(timeout=10).topics)

    def end(self, topic: str) -> int:
        """The high watermarks of all partitions together."""
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        found = self.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return sum(future.result().offset for future in found.values())

    def bytes_of(self, word: str) -> dict[str, int]:
        """Disk space of each topic with this in its name."""
        sizes: dict[str, int] = {}
        for folder in self._logs.glob(f"*{word}*"):
            topic = folder.name.rpartition("-")[0]
            if not folder.name.endswith("-delete"):
                sizes[topic] = sizes.get(topic, 0) + disk_bytes(folder)
        return sizes

    def close(self) -> None:
        """End the broker."""
        self._node.stop()


@contextmanager
def temporary(console: Console) -> Iterator[tuple[Kafka, Path]]:
    """A broker, and the temporary folder that it is in, where there is room for more. Both go at the end."""
    # What the broker has just deleted may go while we delete.
    with tempfile.TemporaryDirectory(prefix="falkirk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with closing(Kafka(folder / "kafka", console)) as kafka:
            yield kafka, folder


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take on the disk; two links to one file take it once."""
    seen: dict[int, int] = {}
    for parent, folders, files in os.walk(folder):  # which passes over folders that are deleted while we count
        for name in (*folders, *files):
            try:
                stat = Path(parent, name).stat()
            except FileNotFoundError:
                continue
            seen[stat.st_ino] = stat.st_blocks * 512
    return sum(seen.values())
