"""Reading committed records of bounded ranges, in whichever clusters these are."""

from __future__ import annotations

from falkirk.checkpoint.ids import TopicPartition, address, name_of
from falkirk.checkpoint.ports import Ranges, Read
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.places import parted
from falkirk.connectors.kafka.reader import BoundedReader


class CommittedReader:
    """A bounded reader for each cluster that is asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._readers: dict[str, BoundedReader] = {}

    def read(self, ranges: Ranges) -> dict[TopicPartition, Read]:
        """As `falkirk.checkpoint.ports.Log.read_committed`. Blocks while a cluster of them cannot be reached."""
        found: dict[TopicPartition, Read] = {}
        for name, some in parted(ranges).items():
            if name not in self._readers:
                self._readers[name] = BoundedReader(self._cluster.of(name), [True])
            there = {TopicPartition(name_of(p.topic), p.partition): bounds for p, bounds in some.items()}
            for p, read in self._readers[name].read(there, committed=True).items():
                found[TopicPartition(address(name, p.topic), p.partition)] = read
        return found

    def close(self) -> None:
        """Let go of the connections."""
        for reader in self._readers.values():
            reader.close()
