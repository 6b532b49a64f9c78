"""How far readers are behind.

lag = high watermark − position         in offsets
    = records that are left             exactly, if they are few: the marker that ends a transaction takes an offset
                                        but is not a record, so an idle reader would seem behind forever
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.committed import CommittedReader
from falkirk.errors import SourceError

FEW = 10
"""So few are looked at one by one."""


class Remaining(NamedTuple):
    """What a reader has left in one partition."""

    place: TopicPartition
    position: Offset
    mark: Offset


def lag(left: Remaining, counted: Mapping[Remaining, int]) -> int:
    """Records that are left, as far as known.

    >>> left = Remaining(TopicPartition("bids", 0), Offset(7), Offset(8))
    >>> lag(left, {}), lag(left, {left: 0})
    (1, 0)
    """
    return counted.get(left, max(0, left.mark - left.position))


def deleted_unread(at: Offset, first: Offset, where: str) -> SourceError:
    """Retention, or a person, has passed a reader at this position: what it has not read begins at `first` now."""
    return SourceError(
        f"records were deleted before they were read: those from offset {at} to {first - 1}",
        where=where,
        hint="to start from scratch on what is left, give the flow another name, or give falkirk reset; and let the topic's "
        "retention outlast any time that the app may stand still",
    )


class Counts:
    """Counts the records of short ranges, each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._reader = CommittedReader(cluster)
        self._counted: dict[Remaining, int] = {}

    def of(self, all_left: Iterable[Remaining]) -> Mapping[Remaining, int]:
        """How many records the short ranges hold. Blocks while the cluster cannot be reached."""
        few = {left for left in all_left if 0 < left.mark - left.position <= FEW}
        counted = {left: n for left, n in self._counted.items() if left in few}
        for left in few - counted.keys():
            read = self._reader.read({left.place: (left.position, left.mark)})[left.place]
            if read.position >= left.mark:  # else a transaction is open, and nobody knows yet
                counted[left] = len(read.records)
        self._counted = counted
        return counted

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
