"""Read committed records of bounded ranges, in one or several clusters."""

from __future__ import annotations

from falkirk.checkpoint.ids import TopicPartition, address, name_of
from falkirk.checkpoint.ports import Ranges, Read
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.places import parted
from falkirk.connectors.kafka.reading.reader import CHUNK, BoundedReader


class CommittedReader:
    """A bounded reader for each cluster that is used."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readers: dict[str, BoundedReader] = {}

    def read(self, ranges: Ranges, most: int = CHUNK) -> dict[TopicPartition, Read]:
        """As `BoundedReader.read`, for each cluster. Blocks while one cannot be reached."""
        found: dict[TopicPartition, Read] = {}
        for name, some in parted(ranges).items():
            if name not in self._readers:
                self._readers[name] = BoundedReader(self._cluster.of(name), [True])
            there = {TopicPartition(name_of(p.topic), p.partition): bounds for p, bounds in some.items()}
            for p, read in self._readers[name].read(there, committed=True, most=most).items():
                found[TopicPartition(address(name, p.topic), p.partition)] = read
        return found

    def close(self) -> None:
        """Close the connections."""
        for reader in self._readers.values():
            reader.close()
