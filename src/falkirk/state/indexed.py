"""Indexed Z-sets: the rows of each key, with weights, in a task's state. A join's inputs are kept like this.

    index'[k] = index[k] + change[k]            Σ of weights, row by row

    key, 0  →  number of rows (Σ weights) · number of entries (distinct rows) · number of blocks · block 0
    key, n  →  block n                          for 0 < n < number of blocks
    block   =  { row's bytes → (weight, time) } as MessagePack

A row's block is chosen by linear hashing, with the CRC-32 of its bytes. A key with more than 64 entries a block gets one
more block: half of the rows of one other block move there. A key with fewer than 16 loses its last block. So a change of a
row reads and writes one block and the head, even where a key has a million rows; the number of rows of a key is in its
head; and to read a key's rows costs only these rows.

The alternative is one entry for each row under its key, found by a scan of that prefix. Milliseconds of CPU for a step with
1,000 changes, over RocksDB with 1,000,000 rows, all in its cache:

    |                                        | blocks | one entry for each row |
    |---|---|---|
    | 5 rows a key: change                   | 32     | 7                      |
    | 5 rows a key: change, read 1,000 keys  | 28     | 30                     |
    | 10,000 rows a key: change              | 50     | 6                      |
    | 10,000 rows a key: change, read 2 keys | 64     | 39                     |

Entries are cheaper to change, because a block is decoded and written as a whole. Blocks need no scan, so the number of reads
is known before, all of them are one call, and rows that were deleted cost a later read nothing.

An index that is ordered by time can use the same heads: a block then is a span of time instead of a part of the hashes, and
expiry deletes whole blocks from the first one on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol
from zlib import crc32

import msgspec

from falkirk.state.codec import encode_key

ROWS = 64
"""Entries a block: a key with more gets another block."""
FEWEST = 16
"""A key with fewer entries a block loses one. Far below `ROWS`, so that a key does not split and merge all the time."""

Entry = tuple[int, int]
"""Weight, and the greatest timestamp (milliseconds) among the changes of the row."""
Block = dict[bytes, Entry]
"""By the row's bytes."""

BLOCK = "__falkirk_block"
"""The last column of keys in state: the number of the block."""
_HEAD = len(encode_key(0, 0, []))


class Values(Protocol):
    """State."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None: ...


class Head(msgspec.Struct, array_like=True):
    """What is known of a key without its rows; and its first block, as it is stored."""

    rows: int
    """Σ weights."""
    entries: int
    """Distinct rows."""
    blocks: int
    first: msgspec.Raw


_EMPTY = msgspec.Raw(msgspec.msgpack.encode({}))
_head = msgspec.msgpack.Decoder(Head).decode
_block = msgspec.msgpack.Decoder(Block).decode
_stored = msgspec.msgpack.Decoder(Head | Block).decode
_encode = msgspec.msgpack.Encoder().encode


class Index:
    """An indexed Z-set during one step: open the keys, load what the changes touch, add them, save.

    A key is what `encode_keys` makes of shard and columns, with any table.

    >>> from falkirk.testing.memory import DictState
    >>> key, state = encode_key(0, 3, ["a"]), DictState()
    >>> index = Index(state, table=1)
    >>> index.open([key])
    >>> index.load({key: {b"row": (2, 1000)}})
    >>> index.add({key: {b"row": (2, 1000)}})
    >>> index.rows(key), list(index.entries(key))
    (2, [(b'row', (2, 1000))])
    >>> index.save()
    """

    def __init__(self, state: Values, table: int) -> None:
        self._state, self._table = state, bytes([table])
        self._heads: dict[bytes, Head] = {}
        self._blocks: dict[tuple[bytes, int], Block] = {}
        self._changed: dict[tuple[bytes, int], None] = {}

    def open(self, keys: Iterable[bytes]) -> None:
        """Read the heads of these keys, in one call."""
        new = [key for key in dict.fromkeys(keys) if key not in self._heads]
        for key, value in zip(new, self._state.get([self._full(key, 0) for key in new]), strict=True):
            self._heads[key] = Head(0, 0, 1, _EMPTY) if value is None else _head(value)

    def rows(self, key: bytes) -> int:
        """The number of rows of an open key: Σ weights."""
        return self._heads[key].rows

    def load(self, changes: Mapping[bytes, Block], whole: Iterable[bytes] = ()) -> None:
        """Read, in one call, the blocks that these changes touch, and all blocks of the keys `whole`. All are open."""
        wanted = dict.fromkeys((key, n) for key in whole for n in range(self._heads[key].blocks))
        wanted |= dict.fromkeys((key, n) for key, change in changes.items() for n in self._touched(key, change))
        wanted = {at: None for at in wanted if at not in self._blocks}
        for key, n in wanted:
            if n == 0:
                self._blocks[key, 0] = _block(self._heads[key].first)
        later = [at for at in wanted if at[1]]
        for at, value in zip(later, self._state.get([self._full(*at) for at in later]), strict=True):
            self._blocks[at] = {} if value is None else _block(value)

    def entries(self, key: bytes) -> Iterator[tuple[bytes, Entry]]:
        """All rows of a key that was loaded as a whole, in an order that depends only on the state."""
        for n in range(self._heads[key].blocks):
            yield from self._blocks[key, n].items()

    def add(self, changes: Mapping[bytes, Block]) -> bytes | None:
        """Add changes that are loaded. Returns a row that would have a negative weight: it is taken back, but was never
        added. The step must then fail, because the index is incomplete. None: all is well."""
        for key, change in changes.items():
            head = self._heads[key]
            for row, (weight, time) in change.items():
                at = key, _place(row, head.blocks)
                block = self._blocks[at]
                had, latest = block.get(row, (0, time))
                left = had + weight
                if left < 0:
                    return row
                if left:
                    block[row] = left, max(time, latest)
                else:
                    del block[row]
                head.rows += weight
                head.entries += (left > 0) - (had > 0)
                self._changed[at] = None
            self._resize(key, head, _blocks_for(head.entries, head.blocks))
        return None

    def save(self) -> None:
        """Write what has changed, in one call."""
        keys, values = list[bytes](), list[bytes | None]()
        for key in dict.fromkeys(key for key, _ in self._changed):
            head = self._heads[key]
            head.first = (
                msgspec.Raw(_encode(block)) if (block := self._blocks.get((key, 0))) is not None else head.first
            )
            keys.append(self._full(key, 0))
            values.append(_encode(head) if head.entries else None)
        for key, n in self._changed:
            if n:
                found = self._blocks.get((key, n))
                keys.append(self._full(key, n))
                values.append(_encode(found) if found else None)
        self._changed = {}
        self._state.put(keys, values)

    def _full(self, key: bytes, block: int) -> bytes:
        return key[: _HEAD - 1] + self._table + key[_HEAD:] + _tail(block)

    def _touched(self, key: bytes, change: Block) -> Iterator[int]:
        """The blocks that a change may read: those of its rows, and those that splits and merges move rows from or to."""
        head = self._heads[key]
        come = sum(weight > 0 for weight, _ in change.values())
        most = _blocks_for(head.entries + come, head.blocks)
        least = _blocks_for(head.entries - len(change) + come, head.blocks)
        yield from {_place(row, head.blocks) for row in change}
        yield from {_origin(n, head.blocks) for n in range(head.blocks, most)}
        for n in range(least, head.blocks):
            yield n
            yield _origin(n, least)

    def _resize(self, key: bytes, head: Head, blocks: int) -> None:
        """Change the number of blocks, and move rows from the blocks that are split or removed."""
        new, gone = range(head.blocks, blocks), range(blocks, head.blocks)
        for n in new:
            self._blocks[key, n] = {}
        moving = list[tuple[bytes, Entry]]()
        for n in dict.fromkeys((*(_origin(n, head.blocks) for n in new), *gone)):
            moving += self._blocks[key, n].items()
            self._blocks[key, n] = {}
            self._changed[key, n] = None
        head.blocks = blocks
        for row, entry in moving:
            at = key, _place(row, blocks)
            self._blocks[at][row] = entry
            self._changed[at] = None


@lru_cache(1 << 12)
def _tail(block: int) -> bytes:
    """The last column of a key."""
    return encode_key(0, 0, [block])[_HEAD:]


def _place(row: bytes, blocks: int) -> int:
    """The block of a row, among this many: linear hashing."""
    span = 1 << (blocks - 1).bit_length()
    at = crc32(row) & (span - 1)
    return at if at < blocks else at - (span >> 1)


def _origin(block: int, blocks: int) -> int:
    """Where rows of a block are, or were, when there are only so many blocks."""
    while block >= blocks:
        block -= 1 << (block.bit_length() - 1)
    return block


def _blocks_for(entries: int, blocks: int) -> int:
    """The number of blocks for so many entries, if there were `blocks` before."""
    if entries > ROWS * blocks:
        return -(-entries // ROWS)
    if entries < FEWEST * blocks:
        return max(1, entries // FEWEST)
    return blocks


def block_of(value: bytes) -> Block:
    """The rows in a stored value: a head's first block, or another block."""
    stored = _stored(value)
    return _block(stored.first) if isinstance(stored, Head) else stored


def one_block(rows: Block) -> bytes | None:
    """The stored head of a key with these rows, which are few, in this order; None if there are none."""
    if not rows:
        return None
    return _encode(Head(sum(count for count, _ in rows.values()), len(rows), 1, msgspec.Raw(_encode(rows))))


def blocks_of(value: bytes) -> int:
    """The number of blocks of a key, given its stored head."""
    return _head(value).blocks


def block_key(key: bytes, block: int) -> bytes:
    """The full key of a block, given that of the head."""
    return key[: len(key) - len(_tail(0))] + _tail(block)
