"""Tables whose entries belong to a task, under its first shard, and not to one key: what becomes of them if other tasks take
the shards over.

    an entry of the old tasks  ──within──▶  what is left of it in a new task, which has some of the shards
                               ──both────▶  one entry, where several old tasks had it

Most are in the order of time, so that one scan finds what is due. Each entry then names the key, or the shard, of what it is
about. The mark, an entry without a time, says whether a step has left some that were due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.codec import decode_keys
from falkirk.state.shards import SHARDS, murmur2, shard_of
from falkirk.stream.formats import Key

Pairs = Sequence[tuple[bytes, bytes]]
Shards = npt.NDArray[np.integer]


class TaskTable(ABC):
    """One such table."""

    shared: ClassVar[bool] = False
    """Whether several tasks can have the same entry."""

    @abstractmethod
    def within(self, pairs: Pairs, shards: range) -> list[bytes | None]:
        """The value that each entry has in a task of these shards; None: it has none there. Marks are not among them."""

    def both(self, one: bytes, other: bytes) -> bytes:
        """The value of an entry that two tasks had."""
        return one

    def mark(self, marks: Sequence[bytes | None]) -> bytes | None:
        """The mark of a task, given those of the tasks whose shards it has; None: none."""
        return next((mark for mark in marks if mark is not None), None)


@dataclass(frozen=True, slots=True)
class TimedEntries(TaskTable):
    """Entries that are each about one shard. Their keys have these columns."""

    columns: pl.Schema
    shards: Callable[[pl.DataFrame], Shards]
    """The shard of each of them."""

    def within(self, pairs: Pairs, shards: range) -> list[bytes | None]:
        found = self.shards(decode_keys(self.columns, [key for key, _ in pairs]))
        here = (found >= shards.start) & (found < shards.stop)
        return [value if ours else None for (_, value), ours in zip(pairs, here.tolist(), strict=True)]


def placed_by(key: Key) -> Callable[[pl.DataFrame], Shards]:
    """For entries that have the columns of the key which places their rows.

    >>> placed_by(Key("k"))(pl.DataFrame({"at": [7, 8], "k": ["foobar", "21"]})).tolist()
    [835, 791]
    """
    return lambda entries: shard_of(murmur2(key.encode(entries.select(key.columns))))


def keyed_by(column: str) -> Callable[[pl.DataFrame], Shards]:
    """For entries that have a key of the state in a column. It begins with the shard.

    >>> from falkirk.state.codec import encode_key
    >>> keyed_by("row")(pl.DataFrame({"row": [encode_key(1, 835, ["foobar"])]})).tolist()
    [835]
    """

    def shards(entries: pl.DataFrame) -> Shards:
        return np.array([int.from_bytes(key[:2]) for key in entries[column]], np.int64)

    return shards


class ShardSets(TaskTable):
    """Entries whose values are sets of shards, as bits.

    >>> bits = np.packbits(np.isin(np.arange(SHARDS), [3, 700])).tobytes()
    >>> [value] = ShardSets().within([(b"", bits)], range(512))
    >>> np.flatnonzero(np.unpackbits(np.frombuffer(value, np.uint8))).tolist()
    [3]
    """

    shared: ClassVar[bool] = True

    def within(self, pairs: Pairs, shards: range) -> list[bytes | None]:
        ours = np.packbits((np.arange(SHARDS) >= shards.start) & (np.arange(SHARDS) < shards.stop))
        left = [np.frombuffer(value, np.uint8) & ours for _, value in pairs]
        return [bits.tobytes() if bits.any() else None for bits in left]

    def both(self, one: bytes, other: bytes) -> bytes:
        return (np.frombuffer(one, np.uint8) | np.frombuffer(other, np.uint8)).tobytes()
