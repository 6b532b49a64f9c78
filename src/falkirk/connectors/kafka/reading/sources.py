"""Read inputs in one or several clusters: a consumer for each, because none can be of two."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from falkirk.checkpoint.ids import Offset, TopicPartition, cluster_of
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.places import by_cluster, parted
from falkirk.connectors.kafka.reading.source import Runs, SourceReader
from falkirk.errors import SourceError


class SourceReaders:
    """Like one `SourceReader`, for partitions in any clusters; it connects only to the clusters that it needs."""

    def __init__(self, cluster: Cluster, *, ends: bool = False, gathers: bool = False) -> None:
        """`cluster` is the app's own, which knows the others; `ends`: whether `at_end` will be asked; `gathers`: whether
        records may wait a tenth of a second for others."""
        self._cluster, self._ends, self._gathers = cluster, ends, gathers
        self._readers: dict[str, SourceReader] = {}
        """By the clusters' names; the reader that last gave something comes first."""

    def add(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Begin to read partitions at the given offsets. Raises ConfigError if a cluster is not known."""
        for name, some in parted(positions).items():
            if name not in self._readers:
                self._readers[name] = SourceReader(self._cluster.of(name), ends=self._ends, gathers=self._gathers)
            self._readers[name].add(some)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions; what was fetched ahead is dropped."""
        for name, some in by_cluster(partitions).items():
            if name in self._readers:
                self._readers[name].remove(some)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more of these partitions until they are resumed."""
        for name, some in by_cluster(partitions).items():
            if name in self._readers:
                self._readers[name].pause(some)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where it stopped."""
        for name, some in by_cluster(partitions).items():
            if name in self._readers:
                self._readers[name].resume(some)

    def poll(self, timeout: float) -> tuple[Runs, int]:
        """Runs of messages of one partition each, and how many in all; see `SourceReader.poll`.

        Of several consumers, the one that last gave something is waited for first; once something has come, none is: so an
        idle one does not delay the others.
        """
        if not self._readers:
            time.sleep(timeout)
        found: Runs = []
        total, share = 0, timeout / max(len(self._readers), 1)
        for name, reader in list(self._readers.items()):
            runs, count = reader.poll(0 if total else share)
            if count and not total:
                self._readers = {name: reader, **self._readers}
            found += runs
            total += count
        return found, total

    @property
    def ends(self) -> Mapping[TopicPartition, Offset]:
        """Where the end of a partition was last reached, since it was added."""
        return {place: at for reader in self._readers.values() for place, at in reader.ends.items()}

    @property
    def unreadable(self) -> Mapping[TopicPartition, SourceError]:
        """Partitions whose position is no longer in the log, and why."""
        return {place: error for reader in self._readers.values() for place, error in reader.unreadable.items()}

    def at_end(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the end of each of these partitions has been reached since it was added."""
        some = by_cluster(partitions)
        return all(name in self._readers and self._readers[name].at_end(places) for name, places in some.items())

    def marks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The ends of partitions as of the last fetch, if there was one: without a request."""
        asked = [place for place in partitions if cluster_of(place.topic) in self._readers]
        return {p: at for name, some in by_cluster(asked).items() for p, at in self._readers[name].marks(some).items()}

    def close(self) -> None:
        """Close the consumers."""
        for reader in self._readers.values():
            reader.close()
