"""Z-sets that are indexed by iteration: the state of operators inside a loop.

    table[row]            = { iteration → weight }         the weights that the row has gained, or lost, there
    table at iteration i  = { row → Σ table[row][j] for j ≤ i }

    full key  = shard · table · columns of the row         the columns of the key come first: its rows are one scan
    value     = iteration, weight, iteration, weight, …    in MessagePack

A step reads the rows of a key, or the times of single rows. It writes all its changes at its end, in one call. Equal rows
have equal bytes, so the order of a scan depends only on the state.

>>> from falkirk.testing.memory import DictState
>>> state, coding = DictState(), RowCoding([True, True])
>>> table = TimedTable(state, 1, 0, coding)
>>> table.write({("a", 7): {0: 1, 3: -1}})
{}
>>> table.times([("a", 7), ("b", 8)])
[{0: 1, 3: -1}, {}]
>>> list(table.rows(("a",)))
[(('a', 7), {0: 1, 3: -1})]
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from falkirk.state.keys import decode_key, encode_key, prefix_end
from falkirk.state.scalars import INT, SIGN
from falkirk.state.store import State

Row = tuple[Any, ...]
"""The columns of a row, as scalars of state."""
Times = dict[int, int]
"""By iteration: a weight, which is not 0."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class RowCoding:
    """The bytes of rows in keys: as `encode_key` makes them, but quicker where all columns are integers.

    >>> coding = RowCoding([True, True])
    >>> coding.key(1, 0, (7, -1)) == encode_key(1, 0, [7, -1]), coding.row(encode_key(1, 0, [7, None]))
    (True, (7, None))
    """

    def __init__(self, integers: Sequence[bool]) -> None:
        """`integers`: which columns are integers of at most 64 bits."""
        width = next((n for n, integer in enumerate(integers) if not integer), len(integers))
        self._all = width == len(integers)
        self._packs = [struct.Struct(">HB" + "BQ" * n) for n in range(width + 1)]

    def key(self, table: int, shard: int, values: Row) -> bytes:
        """The full key of a row, or the prefix of all rows that begin with these columns."""
        if len(values) < len(self._packs):
            try:
                cells = [cell for value in values for cell in (INT, value + SIGN)]
                return self._packs[len(values)].pack(shard, table, *cells)
            except (TypeError, struct.error):
                pass  # a null, or an integer beyond 64 bits with a sign
        return encode_key(table, shard, values)

    def row(self, key: bytes) -> Row:
        """The columns of a full key."""
        if self._all and len(key) == self._packs[-1].size:
            cells = self._packs[-1].unpack(key)
            if all(tag == INT for tag in cells[2::2]):
                return tuple([cell - SIGN for cell in cells[3::2]])
        return decode_key(key)[2]


class TimedTable:
    """One table in one step."""

    def __init__(self, state: State, table: int, shard: int, coding: RowCoding) -> None:
        self._state, self._table, self._shard, self._coding = state, table, shard, coding

    def rows(self, key: Row) -> Iterator[tuple[Row, Times]]:
        """All rows that begin with these columns, in the order of their bytes."""
        start = self._coding.key(self._table, self._shard, key)
        for full, value in self._state.scan(start, prefix_end(start)):
            yield self._coding.row(full), times_of(value)

    def times(self, rows: Sequence[Row]) -> list[Times]:
        """The times of these rows; none for a row that is not there."""
        found = self._state.get([self._coding.key(self._table, self._shard, row) for row in rows])
        return [{} if value is None else times_of(value) for value in found]

    def write(self, changes: Mapping[Row, Times], known: Mapping[Row, Times] | None = None) -> dict[Row, int]:
        """Add changes. `known`: the times of rows that were read before. Returns the rows with fewer than no rows in the
        end:  Σ weights < 0.  The step must then fail."""
        known = known or {}
        missing = [row for row in changes if row not in known]
        read = dict(zip(missing, self.times(missing), strict=True)) if missing else {}
        keys, values, negative = list[bytes](), list[bytes | None](), dict[Row, int]()
        for row, change in changes.items():
            before = known[row] if row in known else read[row]
            after = added(before, change)
            if after == before:
                continue
            keys.append(self._coding.key(self._table, self._shard, row))
            values.append(bytes_of(after) if after else None)
            if (total := sum(after.values())) < 0:
                negative[row] = total
        self._state.put(keys, values)
        return negative


def added(before: Times, change: Times) -> Times:
    """The sum of two, in the order of iterations."""
    total = dict(before)
    for i, weight in change.items():
        total[i] = total.get(i, 0) + weight
    return {i: total[i] for i in sorted(total) if total[i]}


def times_of(value: bytes) -> Times:
    """The times in a stored value."""
    numbers = _decode(value)
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


def bytes_of(times: Times) -> bytes:
    """The inverse of `times_of`."""
    return _encode([number for entry in times.items() for number in entry])


def until(times: Times, i: int) -> int:
    """The weight at an iteration:  Σ times[j] for j ≤ i."""
    total = 0
    for j, weight in times.items():
        if j <= i:
            total += weight
    return total
