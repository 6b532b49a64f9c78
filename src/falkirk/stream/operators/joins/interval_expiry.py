"""When rows of an interval join leave the state.

    end of a row          =  its place + how long it is kept          in units of places
    bucket                =  ⌊end / size⌋
    bucket is past        ⇔  (bucket + 1) · size ≤ watermark

.ends    bucket, side, join key     under the task's first shard: one scan finds the keys with rows to drop
.ends    null                       the first bucket that is not past, and whether the ones before it have rows left

No row comes for a bucket that is past: a row is kept no shorter than until the watermark is at its time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice

import numpy as np
import polars as pl

from falkirk.state.codec import decode_key, encode_key, encode_keys
from falkirk.state.entries import FARTHEST
from falkirk.state.indexed import Index
from falkirk.state.store import State
from falkirk.stream.dataflow.event_time import BEGINNING
from falkirk.stream.dataflow.task_tables import TimedEntries, keyed_by
from falkirk.stream.operators.joins.join_side import Change, SideRunner

ENDS = ".ends"
AT_ONCE = 20_000
"""Rows that one step drops, about. The next step goes on."""
PARTS = 8
"""Buckets in the time that a row is kept, at least."""
BUCKETS = pl.Schema({"bucket": pl.Int64(), "side": pl.Int64(), "key": pl.Binary()})
"""The columns of an entry."""
_AT = struct.Struct("<q?")


class Expiry:
    """The rows of both sides of one join in one task."""

    def __init__(
        self, sides: Sequence[SideRunner], kept: tuple[int, int], unit: int, table: int, first_shard: int, *,
        sign: int = 1, keep_last: bool = False,
    ) -> None:  # fmt: skip
        """`kept`: how long rows of each side are kept. `unit`: of a millisecond. `sign`: a time is sign · place.
        `keep_last`: of the right side, the last row of each key stays, and what has its time."""
        self.sign, self.keep_last = sign, keep_last
        self.sides, self.kept, self.unit, self.table, self.first_shard = sides, kept, unit, table, first_shard
        self.size = bucket_size(kept, unit)
        self.mark = encode_key(table, first_shard, [None])

    def has_more(self, state: State) -> bool:
        """Whether rows of past buckets are left."""
        (found,) = state.get([self.mark])
        return found is not None and bool(_AT.unpack(found)[1])

    def note(self, state: State, changes: Sequence[Change]) -> None:
        """Rows have come."""
        for port, (change, kept) in enumerate(zip(changes, self.kept, strict=True)):
            buckets = ((self.sign * change.kept.places + kept) // self.size).tolist()
            new = dict.fromkeys((b, key) for b, key in zip(buckets, change.keys, strict=True) if key is not None)
            if new:
                columns = [
                    pl.Series([bucket for bucket, _ in new], dtype=pl.Int64),
                    pl.Series([port]).new_from_index(0, len(new)),
                    pl.Series([key for _, key in new], dtype=pl.Binary),
                ]
                full = encode_keys(self.table, np.full(len(new), self.first_shard), columns)
                state.put(full, [b""] * len(full))

    def expire(self, state: State, watermark: int) -> None:
        """Drop rows of past buckets, in their order."""
        end = max(watermark, BEGINNING // self.unit) * self.unit // self.size
        (mark,) = state.get([self.mark])
        begin, more = (None, False) if mark is None else _AT.unpack(mark)
        if begin == end and not more:
            return
        # Not from the first bucket: a scan over what was deleted costs.
        start = self.mark + b"\0" if begin is None else encode_key(self.table, self.first_shard, [begin])
        entries = list(islice(state.scan(start, encode_key(self.table, self.first_shard, [end])), AT_ONCE))
        left = self._drop(state, [full for full, _ in entries])
        more = left is not None or len(entries) == AT_ONCE
        at = end
        if more:
            at = left if left is not None else _bucket(entries[-1][0])
        state.put([self.mark], [_AT.pack(at, more)])

    def _drop(self, state: State, entries: Sequence[bytes]) -> int | None:
        """Drop the rows of these entries; the first bucket with rows left, or None."""
        wanted: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        parts = [decode_key(full)[2] for full in entries]
        for bucket, port, key in parts:
            wanted[port][key] = bucket  # type: ignore[index,assignment]
        done: tuple[set[bytes], set[bytes]] = (set(), set())
        for port, (side, kept, last_of) in enumerate(zip(self.sides, self.kept, wanted, strict=True)):
            index, keys = Index(state, side.table), list(last_of)
            index.open(keys)
            ends = [(last_of[key] + 1) * self.size - 1 - kept for key in keys]
            if self.keep_last and port == 1:
                found = index.read(keys, [(-end, FARTHEST) for end in ends], [1] * len(keys))
                firsts = np.append(found.rows.places, 0)[np.minimum(found.firsts, len(found.rows.places))]
                ends = np.where(found.counts > 0, -firsts - 1, -FARTHEST).tolist()
            spans = [(-FARTHEST, end) if self.sign > 0 else (-end, FARTHEST) for end in ends]
            count = index.drop(keys, spans, AT_ONCE)
            done[port].update(keys[:count])
        gone = [f for f, (_, port, key) in zip(entries, parts, strict=True) if key in done[port]]  # type: ignore[index]
        state.put(gone, [None] * len(gone))
        over = set(gone)
        return next((_bucket(full) for full in entries if full not in over), None)


class Buckets(TimedEntries):
    """The entries of the buckets, for another number of tasks."""

    def __init__(self) -> None:
        super().__init__(BUCKETS, keyed_by("key"))

    def mark(self, marks: Sequence[bytes | None]) -> bytes | None:
        """From the first bucket on that any of these tasks has not dropped."""
        at = [None if mark is None else _AT.unpack(mark) for mark in marks]
        more = any(found is not None and found[1] for found in at)
        if None in at and not more:
            return None
        return _AT.pack(min(-FARTHEST if found is None else found[0] for found in at), more)


def bucket_size(kept: tuple[int, int], unit: int) -> int:
    """How long a bucket is, in units."""
    return max(sum(kept) // PARTS, 1_000 * unit)


def _bucket(full: bytes) -> int:
    bucket = decode_key(full)[2][0]
    assert isinstance(bucket, int)
    return bucket
