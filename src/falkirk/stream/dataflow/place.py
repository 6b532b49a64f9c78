"""The origin of rows in a batch, as bytes that sort in the order of reading."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

_PLACE = struct.Struct(">HHIQ")


class Place(NamedTuple):
    """The origin of rows: a piece (level 0), or a bucket of an earlier level.

    >>> place = Place(0, 1, 7, 250_000)
    >>> Place.of(place.orders(0, 2)[1]) == place
    True
    >>> Place(0, 1, 7, 250_000).orders(300, 1) < Place(0, 1, 8, 0).orders(0, 1) < Place(1, 0, 0, 0).orders(0, 1)
    True
    """

    level: int
    number: int
    """Of the source, or of the exchange."""
    part: int
    """Partition, or bucket."""
    start: int
    """First offset, or 0."""

    def orders(self, first: int, count: int) -> list[bytes]:
        """The `order` of the rows from this place, numbered from `first`. The bytes sort like the numbers."""
        start = _PLACE.pack(*self)
        return [start + number for number in np.arange(first, first + count, dtype=">u4").view("V4").tolist()]

    @classmethod
    def of(cls, order: bytes) -> Place:
        """The place in an `order`."""
        return cls(*_PLACE.unpack_from(order))
