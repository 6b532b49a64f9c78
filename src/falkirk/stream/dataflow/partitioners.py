"""Does the topic's partitioner put keys where the flow believes it does?

    ∃ one of murmur2, crc32:  ∀ keys k seen by the task of partition p:  partitioner(k, n) = p

Without that, rows of one key lie in two tasks, and each would keep its own count of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from itertools import islice

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import SourceError
from falkirk.state.shards import Hashes, crc32, crc32_partition, murmur2, murmur2_partition
from falkirk.stream.dataflow.circuit import State

Mask = npt.NDArray[np.bool_]

REPARTITION = (
    "let Falkirk bring the rows of a key together: give the source repartition=True, and the flow another name, for its "
    "tasks are others then"
)

EVERYTHING = b"", b"\xff\xff"
"""The bounds of a scan of all state."""
SOME = 256
"""So many keys of the state are looked at: each agrees with the wrong partitioner by chance once in n."""


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
        """Take in, once, keys of state that an earlier run made. Without them a source whose writers have gone over from
        one partitioner to the other between two runs would be believed, and its keys would be in two tasks each."""
        if self._recalled or self.partitions == 1:
            return
        self._recalled = True
        keys = [k for k in known() if k is not None]
        self.murmur2, self.crc32 = (bool(by.all()) for by in self._agree(keys, murmur2(keys)))

    def check(
        self, keys: Sequence[bytes | None], hashes: Hashes, which: pl.Series, row_of: Callable[[int], str]
    ) -> None:
        """Raises SourceError where no one partitioner puts the keys here. Only keys with `which` are looked at: state
        that exists was checked when it was made. `row_of` says where in the input a key is."""
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
        # The partitioner that most keys agree with is the likely one, and a key that it does not explain the odd one out.
        odd = int(np.flatnonzero(~max(agree, key=np.count_nonzero))[0])
        raise self._misplaced(spelt[odd], row_of(int(rows[odd])))

    def _agree(self, keys: list[bytes], hashes: Hashes) -> tuple[Mask, Mask]:
        """Key by key, whether murmur2 puts it here, and whether crc32 does; False for what is ruled out already."""
        # One of the two is soon ruled out, and then it is not computed again.
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
