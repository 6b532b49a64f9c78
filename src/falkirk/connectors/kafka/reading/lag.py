"""How far readers are behind.

lag = high watermark − position         in offsets
    = records that are left             exactly, if they are few: the marker that ends a transaction takes an offset
                                        but is not a record, so an idle reader would seem behind forever
    = 0                                 if there are many offsets, and all are of transactions that were aborted
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
    """Counts the records of short ranges, and finds the long ones without a record, each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._reader = CommittedReader(cluster)
        self._before = set[Remaining]()
        """The ranges of the last look."""
        self._counted: dict[Remaining, int] = {}
        self._long = set[Remaining]()
        """Those with a record, and too long to count."""

    def of(self, all_left: Iterable[Remaining]) -> Mapping[Remaining, int]:
        """How many records the short ranges hold, and which of the long ones hold none: those that are the same as in the
        last look. Blocks while the cluster cannot be reached."""
        ranges = {left for left in all_left if left.position < left.mark}
        few = {left for left in ranges if left.mark - left.position <= FEW}
        # A reader that gets on is not looked after: it costs a fetch. One that does not may be at the end all the same.
        still = (ranges & self._before) - few
        self._before, self._long = ranges, self._long & still
        self._counted = {left: n for left, n in self._counted.items() if left in few | still}
        for left in (few | still) - self._counted.keys() - self._long:
            most = FEW if left in few else 1
            read = self._reader.read({left.place: (left.position, left.mark)}, most)[left.place]
            if read.records and left in still:
                self._long.add(left)
            elif read.position >= left.mark:  # else a transaction is open, and nobody knows yet
                self._counted[left] = len(read.records)
        return self._counted

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
