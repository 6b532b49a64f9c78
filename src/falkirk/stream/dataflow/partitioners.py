"""Checks that the topic's partitioner puts keys into the partitions that the flow expects.

    ∃ one of murmur2, crc32:  ∀ keys k seen by the task of partition p:  partitioner(k, n) = p

Otherwise two tasks would have rows of one key, and each would keep its own count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import SourceError
from falkirk.state.shards import Hashes, crc32, crc32_partition, murmur2, murmur2_partition
from falkirk.state.store import State

Mask = npt.NDArray[np.bool_]

REPARTITION = (
    "let Falkirk bring the rows of a key together: give the source repartition=True, and the flow another name, for its "
    "tasks are others then"
)

EVERYTHING = b"", b"\xff\xff"
"""The bounds of a scan of all state."""
SOME = 256
"""The number of keys of the state to check. Each agrees with the wrong partitioner by chance with probability 1/n."""


def some_keys(state: State, tables: Set[int]) -> list[bytes]:
    """Full keys of some rows that the task has in these tables."""
    return list(islice((key for key, _ in state.scan(*EVERYTHING) if key[2] in tables), SOME))


class Partitioners:
    """Which partitioners are still possible, for all keys that one task has seen. It only ever narrows."""

    def __init__(self, where: str, partition: int, partitions: int) -> None:
        self.where, self.partition, self.partitions = where, partition, partitions
        self.murmur2 = self.crc32 = True
        self._recalled = False

    def recall(self, known: Callable[[], Sequence[bytes | None]]) -> None:
        """Check keys of state that an earlier run made, once. Otherwise nobody would notice that a source's writers changed
        to the other partitioner between two runs, and each key would be in two tasks."""
        if self._recalled or self.partitions == 1:
            return
        self._recalled = True
        keys = [k for k in known() if k is not None]
        self.murmur2, self.crc32 = (bool(by.all()) for by in self._agree(keys, murmur2(keys)))

    def check(
        self, keys: Sequence[bytes | None], hashes: Hashes, which: pl.Series, row_of: Callable[[int], str]
    ) -> None:
        """Raises SourceError if no single partitioner puts the keys here. Only keys with `which` are checked: existing state
        was checked when it was made. `row_of` gives the place of a key in the input."""
        if self.partitions == 1:
            return
        rows = which.arg_true().to_numpy()
        some = [keys[i] for i in rows.tolist()]
        if None in some:
            raise self._no_key(row_of(int(rows[some.index(None)])))
        spelt = [k for k in some if k is not None]
        agree = self._agree(spelt, hashes[rows])
        if any(by.all() for by in agree):
            self.murmur2, self.crc32 = (bool(by.all()) for by in agree)
            return
        # The likely partitioner is the one that most keys agree with. Report a key that does not agree with it.
        odd = int(np.flatnonzero(~max(agree, key=np.count_nonzero))[0])
        raise self._misplaced(spelt[odd], row_of(int(rows[odd])))

    def _agree(self, keys: list[bytes], hashes: Hashes) -> tuple[Mask, Mask]:
        """For each key, whether murmur2 puts it here, and whether crc32 does. False for a partitioner that is ruled out."""
        # One of the two is soon ruled out. Its hash is then not computed any more.
        nowhere = np.zeros(len(keys), np.bool_)
        by_murmur2 = murmur2_partition(hashes, self.partitions) == self.partition if self.murmur2 else nowhere
        by_crc32 = crc32_partition(crc32(keys), self.partitions) == self.partition if self.crc32 else nowhere
        return by_murmur2, by_crc32

    def _misplaced(self, key: bytes, row: str) -> SourceError:
        return SourceError(
            f"key {key!r} is in partition {self.partition} of {self.partitions}, where the partitioner that explains "
            "the other keys does not put it: neither Java's (murmur2) nor librdkafka's (crc32) explains all",
            where=f"{self.where}, {row}" if row else self.where,
            hint=REPARTITION,
        )

    def _no_key(self, row: str) -> SourceError:
        return SourceError(
            "a row has no key: its key column is null, and such rows may be in any partition",
            where=f"{self.where}, {row}" if row else self.where,
            hint=f"leave such rows out with a filter, or {REPARTITION}",
        )
