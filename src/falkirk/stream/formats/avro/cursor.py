"""Reading many datums at once: a place in each, moved on over all of them by one operation on arrays.

    start(i) ≤ pos(i) ≤ end(i)        a datum is good only if pos(i) = end(i) when all of it is read

So what becomes of a datum depends on its own bytes alone, however many are read together: none is read beyond its end, and
one that is bad is set aside, with the first reason found, while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Rows = Ints
"""Numbers of datums, each once, ascending."""
Mask = npt.NDArray[np.bool_]

ENDS_EARLY = "ends too early"

_PAD = 16
"""Zero bytes around the datums: words that begin before the first or end behind the last can be read without a look."""
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
_INLINE = 12
"""A view of so many bytes holds them itself."""
_THIRTY_TWO = np.uint64(32)


class Cursor:
    """A place in each of many datums.

    >>> cursor = Cursor([b"\\x02\\x04ab", b"\\x7f"])
    >>> cursor.longs(cursor.all, "n").tolist(), cursor.texts(cursor.all, "s").to_list()
    ([1, -64], ['ab', ''])
    >>> cursor.bad
    {1: "field 's': ends too early"}
    """

    def __init__(self, datums: Sequence[bytes], start: int = 0) -> None:
        """`start` bytes of each datum are passed over."""
        pad = bytes(_PAD)
        self.data = np.frombuffer(b"".join([pad, *datums, pad]), np.uint8)
        sizes = np.fromiter(map(len, datums), np.int64, len(datums))
        self.end: Ints = np.cumsum(sizes) + _PAD
        self.pos: Ints = self.end - sizes + start
        self.all: Rows = np.arange(len(datums))
        self.bad: dict[int, str] = {}
        self._words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))

    def fail(self, rows: Rows, wrong: Mask, where: str, reason: str | Callable[[int], str]) -> None:
        """Those of `rows` that are `wrong` are bad, unless they were so before. A callable is given the index in `rows`."""
        for i in np.flatnonzero(wrong).tolist():
            row = int(rows[i])
            if row not in self.bad:
                said = reason if isinstance(reason, str) else reason(i)
                self.bad[row] = f"field {where!r}: {said}" if where else said
        failed = rows[wrong]
        self.pos[failed] = self.end[failed]

    def within(self, starts: Ints, ends: Ints) -> Cursor:
        """One over parts of these datums, as if they were datums."""
        inner = copy(self)
        inner.pos, inner.end, inner.all, inner.bad = starts.copy(), ends, np.arange(len(starts)), {}
        return inner

    def finish(self) -> None:
        """All is read: what is left over of a datum is none of it."""
        left = self.end - self.pos
        self.fail(self.all, left > 0, "", lambda i: f"extra bytes follow the datum: {left[i]}")

    def longs(self, rows: Rows, where: str) -> Ints:
        """The next int or long of each; 0 where it is bad."""
        at, end = self.pos[rows], self.end[rows]
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        at += 1
        more, shift = np.flatnonzero(byte & 0x80), 0
        overlong = np.zeros(len(rows), np.bool_)
        while more.size:
            shift += 7
            if shift > 63:
                overlong[more] = True
                break
            byte = self.data[at[more]]
            if shift == 63:
                overlong[more] = (byte & 0x7F) > 1
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[(byte & 0x80) != 0]
        short = at > end
        self.pos[rows] = at
        # What a datum that is cut off seems to say depends on what lies behind it.
        self._check(rows, short, overlong & ~short, where, "an integer of more than 64 bits")
        found = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        found[short | overlong] = 0
        return found

    def sizes(self, rows: Rows, where: str, least: int = 1) -> Ints:
        """The next length of each, of things of `least` bytes each; 0 where it is bad: they must be there."""
        sizes = self.longs(rows, where)
        left = (self.end[rows] - self.pos[rows]) // least
        negative = sizes < 0
        self._check(rows, ~negative & (sizes > left), negative, where, lambda i: f"a length of {sizes[i]}")
        return np.where((sizes < 0) | (sizes > left), 0, sizes)

    def fixed(self, rows: Rows, size: int, where: str) -> tuple[Ints, Mask]:
        """Where the next `size` bytes of each begin, and of which they are missing: that is then some other place."""
        at = self.pos[rows]
        short = at + size > self.end[rows]
        self.pos[rows] = at + size
        if short.any():
            self.fail(rows, short, where, ENDS_EARLY)
            at[short] = _PAD
        return at, short

    def words(self, rows: Rows, size: int, where: str) -> npt.NDArray[np.uint64]:
        """The next 1, 4 or 8 bytes of each, as one little-endian number; 0 where they are missing."""
        at, short = self.fixed(rows, size, where)
        found: npt.NDArray[np.uint64] = self._words[at] & _MASKS[size]
        found[short] = 0
        return found

    def spans(self, rows: Rows, where: str, size: int | None = None) -> tuple[Ints, Ints]:
        """Begin and length of the next bytes of each, `size` of them or as many as a length before them says."""
        if size is not None:
            at, short = self.fixed(rows, size, where)
            return at, np.where(short, 0, size)
        sizes = self.sizes(rows, where)
        at = self.pos[rows]
        self.pos[rows] = at + sizes
        return at, sizes

    def binaries(self, rows: Rows, where: str, size: int | None = None) -> pl.Series:
        """The next bytes of each."""
        return self._views(*self.spans(rows, where, size))

    def texts(self, rows: Rows, where: str) -> pl.Series:
        """The next string of each. One that is not UTF-8 is bad."""
        found = self.binaries(rows, where)
        try:
            return found.cast(pl.String)
        except pl.exceptions.PolarsError:
            # Only whole columns are checked at once.
            wrong = np.fromiter((not _is_utf8(value) for value in found.to_list()), np.bool_, len(rows))
        self.fail(rows, wrong, where, "not UTF-8")
        return pl.DataFrame({"": found, "wrong": wrong}).select(
            pl.when(~pl.col("wrong")).then("").otherwise(pl.lit(b"")).cast(pl.String)
        )[""]

    def decimals(self, rows: Rows, where: str, dtype: pl.Decimal, size: int | None = None) -> pl.Series:
        """The next decimal of each: an integer, big-endian, to be divided by a power of ten."""
        at, sizes = self.spans(rows, where, size)
        long = sizes > _PAD
        if long.any():
            places = zip(at[long].tolist(), sizes[long].tolist(), strict=True)
            long[long] = [not _is_padded(self.data[start : start + size].tobytes()) for start, size in places]
        last, kept = at + sizes, np.minimum(sizes, _PAD)
        high, low = (self._words[last - n].byteswap() for n in (16, 8))
        # Of what lies before the first byte, nothing counts but its sign.
        negative = (self.data[last - kept] > 0x7F) & (kept > 0)
        ones = np.where(negative, ~np.uint64(0), np.uint64(0))
        low_mask, high_mask = _MASKS[np.minimum(kept, 8)], _MASKS[np.clip(kept - 8, 0, 8)]
        low, high = (low & low_mask) | (ones & ~low_mask), ((high & high_mask) | (ones & ~high_mask)).view(np.int64)
        wrong = long | _above(high, low, 10**dtype.precision - 1) | _above(~high, ~low, 10**dtype.precision - 2)
        self.fail(rows, wrong, where, f"a decimal of more than {dtype.precision} digits")
        pairs = np.column_stack([low, high.view(np.uint64)])
        pairs[wrong] = 0
        import pyarrow as pa  # not above: flows without Avro, and their workers, start sooner without it

        kind = pa.decimal128(dtype.precision, dtype.scale)
        return pl.Series(pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(pairs)]))

    def _check(self, rows: Rows, short: Mask, wrong: Mask, where: str, reason: str | Callable[[int], str]) -> None:
        if short.any():
            self.fail(rows, short, where, ENDS_EARLY)
        if wrong.any():
            self.fail(rows, wrong, where, reason)

    def _views(self, at: Ints, sizes: Ints) -> pl.Series:
        """Bytes that stay where they are: of each, its length and up to twelve bytes, or four and where it begins."""
        import pyarrow as pa

        first = self._words[at] & _MASKS[np.minimum(sizes, 8)]
        views = np.empty((len(at), 2), np.uint64)
        views[:, 0] = sizes.astype(np.uint64) | (first << _THIRTY_TWO)
        rest = self._words[at + 8] & _MASKS[np.clip(sizes - 8, 0, 4)]
        views[:, 1] = np.where(
            sizes <= _INLINE, (first >> _THIRTY_TWO) | (rest << _THIRTY_TWO), at.astype(np.uint64) << _THIRTY_TWO
        )
        buffers: list[Any] = [None, pa.py_buffer(views), pa.py_buffer(self.data)]
        return pl.Series(pa.Array.from_buffers(pa.binary_view(), len(at), buffers))


def _above(high: Ints, low: npt.NDArray[np.uint64], most: int) -> Mask:
    """Of numbers of 128 bits, which are larger. −x−1 = ~x, so that x < −m is ~x > m − 1."""
    above: Mask = (high > most >> 64) | ((high == most >> 64) & (low > np.uint64(most & ((1 << 64) - 1))))
    return above


def _is_padded(value: bytes) -> bool:
    """Whether a number needs no more than the last of its bytes."""
    number = int.from_bytes(value, "big", signed=True)
    return -(1 << 127) <= number < 1 << 127


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
