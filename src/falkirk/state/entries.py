"""Rows of an index as bytes. Where they are in state: `falkirk.state.indexed`.

entry  =  weight · time · place · length · row's bytes
order  =  place · digest of the row
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from falkirk.state.cells import rows_of
from falkirk.state.scalars import SIGN, encode_scalar

FARTHEST = (1 << 63) - 1
"""All places are between this and its negative."""

Numbers = npt.NDArray[np.int64]

_LAYOUT = np.dtype([("weight", "<i8"), ("time", "<i8"), ("place", "<i8"), ("length", "<u4")])
HEAD = struct.Struct("<qqqI")
"""Of an entry: all but the row's bytes."""


class Rows(NamedTuple):
    """Rows with what is known of each."""

    packed: Sequence[bytes]
    weights: Numbers
    times: Numbers
    """The greatest timestamp among the changes of a row (milliseconds)."""
    places: Numbers
    """Where a row stands among the rows of its key."""

    def entries(self) -> list[bytes]:
        """As in state."""
        heads = np.empty(len(self.packed), _LAYOUT)
        heads["weight"], heads["time"], heads["place"] = self.weights, self.times, self.places
        heads["length"] = np.fromiter(map(len, self.packed), np.int64, len(self.packed))
        return list(map(add, rows_of(heads.view(np.uint8).reshape(len(heads), _LAYOUT.itemsize)), self.packed))

    def chosen(self, which: npt.NDArray[np.bool_] | Numbers) -> Rows:
        """Some of them."""
        at = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Rows([self.packed[i] for i in at.tolist()], self.weights[at], self.times[at], self.places[at])


class Entries:
    """Rows of one key by their bytes and places: weights add up, and the greatest time counts."""

    def __init__(self) -> None:
        self.net: dict[tuple[bytes, int], tuple[int, int]] = {}

    def add(self, row: bytes, weight: int, time: int, place: int) -> None:
        had, latest = self.net.get((row, place), (0, time))
        self.net[row, place] = had + weight, max(time, latest)

    def missing(self) -> bytes | None:
        """A row with a negative weight."""
        return next((row for (row, _), (weight, _) in self.net.items() if weight < 0), None)

    def total(self) -> int:
        """Σ weights."""
        return sum(weight for weight, _ in self.net.values())

    def packed(self) -> tuple[dict[tuple[bytes, int], bytes], int]:
        """The entries that are left, and Σ weights."""
        left = {at: entry for at, entry in self.net.items() if entry[0]}
        return {(row, place): HEAD.pack(weight, time, place, len(row)) + row
                for (row, place), (weight, time) in left.items()}, self.total()  # fmt: skip

    def by_order(self, full: bytes) -> dict[bytes, Entries]:
        """Each row by itself, under the key of its entry."""
        parts = dict[bytes, Entries]()
        for (row, place), (weight, time) in self.net.items():
            parts[full + order(row, place)] = one = Entries()
            one.add(row, weight, time, place)
        return parts


def order(row: bytes, place: int) -> bytes:
    """The last column of an entry's key."""
    return encode_scalar(placed(place) + digest(row))


def digest(row: bytes) -> bytes:
    """Rows of one key and place are in the order of their digests."""
    return blake2b(row, digest_size=16).digest()


def placed(place: int) -> bytes:
    """A place as bytes that sort as places do."""
    return (place + SIGN).to_bytes(8, "big")


def unpacked(parts: Sequence[bytes]) -> tuple[Rows, Numbers]:
    """The rows of entries that follow each other in these parts, and the part of each row.

    >>> a, b = Rows([b"a", b"bb"], np.array([1, 2]), np.array([7, 8]), np.array([0, 0])).entries()
    >>> rows, part = unpacked([a + b, b""])
    >>> rows.packed, rows.weights.tolist(), part.tolist()
    ([b'a', b'bb'], [1, 2], [0, 0])
    """
    whole = b"".join(parts)
    buffer = np.frombuffer(whole, np.uint8)
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    at = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(parts) else ends
    left = np.flatnonzero(at < ends)
    width, found = np.arange(_LAYOUT.itemsize), list[tuple[Numbers, Numbers, npt.NDArray[np.void]]]()
    # The first row of each part, then the second of each: a part has few, or is one entry.
    while len(left):
        starts = at[left]
        heads = buffer[starts[:, None] + width].view(_LAYOUT).ravel()
        found.append((left, starts + _LAYOUT.itemsize, heads))
        at[left] = starts + _LAYOUT.itemsize + heads["length"]
        left = left[at[left] < ends[left]]
    if not found:
        nothing = np.zeros(0, np.int64)
        return Rows([], nothing, nothing, nothing), nothing
    part, start = (np.concatenate(columns) for columns in zip(*(each[:2] for each in found), strict=True))
    heads = np.concatenate([each[2] for each in found])
    if len(found) > 1:
        by_part = np.argsort(part, kind="stable")
        part, start, heads = part[by_part], start[by_part], heads[by_part]
    spans = zip(start.tolist(), (start + heads["length"]).tolist(), strict=True)
    packed = [whole[first:last] for first, last in spans]
    weights, times, places = (heads[name].astype(np.int64) for name in ("weight", "time", "place"))
    return Rows(packed, weights, times, places), part


def walk(entries: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Row, weight, time and place of entries that follow each other."""
    at = 0
    while at < len(entries):
        weight, time, place, length = HEAD.unpack_from(entries, at)
        at += HEAD.size + length
        yield entries[at - length : at], weight, time, place
