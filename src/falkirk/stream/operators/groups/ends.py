"""What is to be deleted when time has passed: entries in the order of time, under the task's first shard.

key    shard · table · time · more columns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import polars as pl

from falkirk.state.codec import encode_key, encode_keys, prefix_end
from falkirk.state.entries import FARTHEST
from falkirk.state.store import State


class Ends:
    """The table of one operator in one task."""

    def __init__(self, table: int, first_shard: int) -> None:
        self.table, self.first_shard = table, first_shard
        self.more = encode_key(table, first_shard, [None])
        """Is there while the last step has left entries that were due."""

    def left(self, state: State) -> bool:
        """Whether the last step has left entries that were due."""
        return state.get([self.more]) != [None]

    def keys(self, times: pl.Series, *columns: pl.Series) -> list[bytes]:
        """The keys of entries. Times are integers."""
        return encode_keys(self.table, np.full(len(times), self.first_shard), [times, *columns])

    def add(self, state: State, keys: Sequence[bytes]) -> None:
        """Add entries."""
        state.put(keys, [b""] * len(keys))

    def first(self, state: State) -> bytes | None:
        """The first entry."""
        end = prefix_end(encode_key(self.table, self.first_shard, []))
        return next((key for key, _ in state.scan(self.more + b"\0", end)), None)

    def before(self, state: State, time: int, most: int) -> list[bytes]:
        """The first entries with an earlier time, in the order of time: one more than `most`, if there are more."""
        return [key for key, _ in islice(self.scan(state, time), most + 1)]

    def scan(self, state: State, time: int) -> Iterator[tuple[bytes, bytes]]:
        """The entries with an earlier time and their values, in the order of time."""
        until = encode_key(self.table, self.first_shard, [max(-FARTHEST, min(FARTHEST, time))])
        return state.scan(self.more + b"\0", until)

    def delete(self, state: State, found: Sequence[bytes], done: int) -> None:
        """Delete the first `done` of the entries that `before` has found."""
        self.leave(state, left=len(found) > done)
        state.put(found[:done], [None] * done)

    def leave(self, state: State, *, left: bool) -> None:
        """Note whether this step leaves entries that were due."""
        if left != self.left(state):
            state.put([self.more], [b"" if left else None])
