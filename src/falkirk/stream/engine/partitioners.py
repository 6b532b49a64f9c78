"""Does the topic's partitioner put keys where the flow believes it does?

    ∃ one of murmur2, crc32:  ∀ keys k seen by the task of partition p:  partitioner(k, n) = p

Without that, rows of one key lie in two tasks, and each would keep its own count of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from falkirk.errors import SourceError
from falkirk.state.shards import Hashes, crc32, crc32_partition, murmur2_partition


class Partitioners:
    """Which partitioners are still possible, for all keys that one task has seen. It only ever narrows."""

    def __init__(self, where: str, partition: int, partitions: int) -> None:
        self.where, self.partition, self.partitions = where, partition, partitions
        self.murmur2 = self.crc32 = True

    def check(self, keys: Sequence[bytes | None], hashes: Hashes, which: pl.Series) -> None:
        """Raises SourceError where no one partitioner puts the keys here. Only keys with `which` are looked at: state
        that exists was checked when it was made."""
        if self.partitions == 1:
            return
        rows = which.arg_true().to_numpy()
        some = [keys[i] for i in rows.tolist()]
        if None in some:
            raise self._error(None)
        spelt = [k for k in some if k is not None]
        murmur2_was, crc32_was = self.murmur2, self.crc32
        # One of the two is soon ruled out, and then it is not computed again.
        by_murmur2 = by_crc32 = np.ones(len(spelt), np.bool_)
        if murmur2_was:
            by_murmur2 = murmur2_partition(hashes[rows], self.partitions) == self.partition
            self.murmur2 = bool(by_murmur2.all())
        if crc32_was:
            by_crc32 = crc32_partition(crc32(spelt), self.partitions) == self.partition
            self.crc32 = bool(by_crc32.all())
        if not self.murmur2 and not self.crc32:
            raise self._error(spelt[int(np.flatnonzero(~by_murmur2 | ~by_crc32)[0])])

    def _error(self, key: bytes | None) -> SourceError:
        return SourceError(
            f"key {key!r} is in partition {self.partition} of {self.partitions}, where neither Java's partitioner "
            "(murmur2) nor librdkafka's (crc32) puts all keys of this source",
            where=self.where,
            hint="let Falkirk bring the rows of a key together: give the source repartition=True",
        )
