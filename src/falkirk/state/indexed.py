"""Indexed Z-sets: the rows of each key, with weights, in a task's state. Joins keep their inputs like this.

    index'[k] = index[k] + change[k]            Σ of weights, row by row

    key, ""     →  FEW  · Σ weights · entries one after another            while they are few bytes
                   MANY · Σ weights · number of entries · their bytes      when they are more
    key, order  →  entry                                                   of a key with many: one for each row
    entry       =  weight · time · place · length · row's bytes
    order       =  place · digest of the row                               rows of a key are in the order of their places

A key with few rows is one value. Both a change and a read of it are one `get`, all keys of a step in one call, and a row that
comes is appended without a look at the others. A key with many rows has an entry for each: a change reads and writes the head
and that entry, whatever the number of rows, and a read scans the key's prefix, or a span of places within it. Equal rows are
one entry in a key with many; in a key with few they may be several, until one is taken back or the value is full.

Why so: over RocksDB, in its cache, a get takes 2 to 4 µs of CPU, one of a missing key 1 to 2, a put 1.5, a scan 10 and 0.6
for each row of it. So with entries alone a read of a key with one row would take three times as long.

A scan passes over entries that were deleted and are not compacted away yet: 0.14 µs each, where a row costs 1 µs with its
decoding. To read 1,000 rows that are left of 100,000 takes 14 ms, and 0.6 ms after a compaction. Spans of places that hold no
deleted entries do not pay for it. A key that shrinks to a quarter of what is few gets one value again, and is not scanned.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from falkirk.state.codec import encode_key, prefix_end
from falkirk.state.entries import HEAD, Entries, Numbers, Rows, order, placed, unpacked, walk
from falkirk.state.scalars import TEXT_END, encode_scalar
from falkirk.state.store import State

FEW_BYTES = 512
"""Bytes of a head with its rows. With more, each row gets an entry."""

ORDER = "__falkirk_order"
"""The last column of keys in state: nothing for a head."""

_PREFIX = len(encode_key(0, 0, []))
_HEAD = encode_scalar(b"")
_AFTER = bytes([_HEAD[0] + 1])
"""All orders of a key begin before this."""
_FEW, _MANY = 1, 2
_Few, _Many = struct.Struct("<Bq"), struct.Struct("<Bqqq")
_NOTHING = _Few.pack(_FEW, 0)


class Found(NamedTuple):
    """Rows of several keys, key by key."""

    rows: Rows
    firsts: Numbers
    """For each key, the number of its first row."""
    counts: Numbers


class Index:
    """An indexed Z-set during one step.

    A key is what `encode_keys` makes of shard and columns, with any table.

    >>> from falkirk.testing.memory import DictState
    >>> key, state, one = encode_key(0, 3, ["a"]), DictState(), np.array([1])
    >>> index = Index(state, table=1)
    >>> index.open([key])
    >>> index.add([key, key], Rows([b"row", b"row"], np.array([2, -1]), np.array([7, 9]), np.array([0, 0])))
    >>> index.sums([key]), index.read([key]).rows.packed
    (array([1]), [b'row'])
    """

    def __init__(self, state: State, table: int) -> None:
        self._state, self._table = state, bytes([table])
        self._heads: dict[bytes, bytes] = {}
        self._names: dict[bytes, bytes] = {}
        """The full keys of heads, by key."""

    def open(self, keys: Iterable[bytes]) -> None:
        """Read the heads of these different keys, in one call."""
        # RocksDB finds neighbours in half the time.
        new = sorted(keys)
        names = [key[: _PREFIX - 1] + self._table + key[_PREFIX:] + _HEAD for key in new]
        self._names = dict(zip(new, names, strict=True))
        self._heads = {key: value or _NOTHING for key, value in zip(new, self._state.get(names), strict=True)}

    def has(self, key: bytes) -> bool:
        """Whether an open key has rows."""
        return self._heads[key] != _NOTHING

    def sums(self, keys: Iterable[bytes]) -> Numbers:
        """Σ weights of open keys."""
        heads = self._heads
        parts = b"".join([heads[key][1 : _Few.size] for key in keys])
        return np.frombuffer(parts, "<i8").astype(np.int64)

    def has_many(self, key: bytes) -> bool:
        """Whether the rows of an open key have entries of their own."""
        return self._heads[key][0] == _MANY

    def read(
        self, keys: Sequence[bytes], spans: Sequence[tuple[int, int]] | None = None, limits: Sequence[int] | None = None
    ) -> Found:
        """The rows of open keys, in an order that depends only on the state. With a span for each, those with
        first ≤ place ≤ last, in the order of places; then a key may come several times. `limits`: at least so many of the
        first rows of a span are enough."""
        parts, owners = list[bytes](), list[int]()
        for i, key in enumerate(keys):
            head = self._heads[key]
            if head[0] == _MANY:
                pairs = self._scan(key, None if spans is None else spans[i])
                found = [value for _, value in (pairs if limits is None else islice(pairs, limits[i]))]
                parts += found
                owners += [i] * len(found)
            elif len(head) > _Few.size:
                parts.append(head[_Few.size :])
                owners.append(i)
        rows, places = unpacked(parts)
        slots = np.array(owners, np.int64)[places]
        if spans is not None:
            bounds = np.array(spans, np.int64).reshape(-1, 2)[slots]
            within = np.flatnonzero((bounds[:, 0] <= rows.places) & (rows.places <= bounds[:, 1]))
            order = within[np.lexsort((rows.places[within], slots[within]))]
            rows, slots = rows.chosen(order), slots[order]
        counts = np.bincount(slots, minlength=len(keys))
        return Found(rows, np.cumsum(counts) - counts, counts)

    def drop(self, keys: Sequence[bytes], spans: Sequence[tuple[int, int]], most: int) -> int:
        """Remove the rows of open keys with first ≤ place ≤ last, key by key, until about `most` are removed. Returns how
        many keys are done."""
        heads, gone, done, removed = self._heads, list[bytes](), 0, 0
        there = {key for key in keys if heads[key] != _NOTHING}
        few: list[int] = []
        for i, (key, span) in enumerate(zip(keys, spans, strict=True)):
            if removed >= most:
                break
            if heads[key] == _NOTHING:
                done += 1
                continue
            if heads[key][0] == _MANY:
                found = list(islice(self._scan(key, span), most - removed))
                gone += [full for full, _ in found]
                removed += len(found)
                total, count, size = _Many.unpack(heads[key])[1:]
                total -= sum(HEAD.unpack_from(value)[0] for _, value in found)
                left = count - len(found)
                size -= sum(len(value) for _, value in found)
                heads[key] = _Many.pack(_MANY, total, left, size) if left else _NOTHING
                if removed >= most:
                    break  # There may be more.
            else:
                few.append(i)
                removed += 1
            done += 1
        self._drop_few([keys[i] for i in few], np.array([spans[i] for i in few], np.int64).reshape(-1, 2))
        changed = [key for key in dict.fromkeys(keys[: done + 1]) if key in there]
        values = [None if heads[key] == _NOTHING else heads[key] for key in changed]
        self._state.put([*(self._names[key] for key in changed), *gone], [*values, *[None] * len(gone)])
        return done

    def _drop_few(self, keys: Sequence[bytes], spans: Numbers) -> None:
        rows, part = unpacked([entries_in(self._heads[key]) for key in keys])
        kept = (rows.places < spans[part, 0]) | (spans[part, 1] < rows.places)
        for key in keys:
            self._heads[key] = _NOTHING
        left = rows.chosen(kept)
        for i, entry, weight in zip(part[kept].tolist(), left.entries(), left.weights.tolist(), strict=True):
            head = self._heads[keys[i]]
            self._heads[keys[i]] = _Few.pack(_FEW, _Few.unpack_from(head)[1] + weight) + head[_Few.size :] + entry

    def add(self, keys: Sequence[bytes | None], rows: Rows) -> bytes | None:
        """Add rows to open keys, and stage what has changed; a row without a key is left out. Returns a row that would have a
        negative weight: it is taken back, but was never added. The step must then fail, because the index is incomplete.
        None: all is well."""
        heads, later = self._heads, dict[bytes, list[int]]()
        taken = {keys[i] for i in np.flatnonzero(rows.weights < 0).tolist()}
        grown = dict[bytes, None]()
        for i, (key, entry, weight) in enumerate(zip(keys, rows.entries(), rows.weights.tolist(), strict=True)):
            if key is None:
                continue
            head = heads[key]
            no_room = len(head) > _Few.size and len(head) + len(entry) > FEW_BYTES
            if no_room or head[0] == _MANY or key in taken or key in later:
                later.setdefault(key, []).append(i)
                continue
            _, total = _Few.unpack_from(head)
            heads[key] = _Few.pack(_FEW, total + weight) + head[_Few.size :] + entry
            grown[key] = None
        change = _Change(self, later, rows)
        if change.missing is None:
            changed = [*grown, *(key for key in later if key not in grown)]
            values = [None if heads[key] == _NOTHING else heads[key] for key in changed]
            full = [self._names[key] for key in changed]
            self._state.put([*full, *change.entries], [*values, *change.entries.values()])
            self._shrink(change.few)
        return change.missing

    def _shrink(self, keys: Sequence[bytes]) -> None:
        """Of these keys, few rows are left of many: each gets one value again."""
        for key in keys:
            found = list(self._scan(key))
            total = _Many.unpack(self._heads[key])[1]
            self._heads[key] = _Few.pack(_FEW, total) + b"".join(value for _, value in found)
            gone = [full for full, _ in found]
            self._state.put([self._names[key], *gone], [self._heads[key], *[None] * len(gone)])

    def _scan(self, key: bytes, span: tuple[int, int] | None = None) -> Iterator[tuple[bytes, bytes]]:
        full = self._full(key)
        if span is None:
            return self._state.scan(full + _HEAD + b"\0", full + _AFTER)
        first, last = (full + encode_scalar(placed(place))[: -len(TEXT_END)] for place in span)
        return self._state.scan(first, prefix_end(last))

    def _full(self, key: bytes) -> bytes:
        return self._names[key][: -len(_HEAD)]


class _Change:
    """Changes of keys that have many rows, get many, or lose some. Heads are changed at once; `entries` is to be staged."""

    def __init__(self, index: Index, changes: Mapping[bytes, Sequence[int]], rows: Rows) -> None:
        self.index = index
        self.missing: bytes | None = None
        self.entries: dict[bytes, bytes | None] = {}
        self.few: list[bytes] = []
        """Keys with few rows of many."""
        numbers = np.column_stack([rows.weights, rows.times, rows.places]).tolist()
        many = dict[bytes, dict[bytes, Entries]]()
        for key, which in changes.items():
            net = Entries()
            head = index._heads[key]
            if head[0] == _FEW:
                for entry in walk(head[_Few.size :]):
                    net.add(*entry)
            for i in which:
                net.add(rows.packed[i], *numbers[i])
            if head[0] == _MANY:
                many[key] = net.by_order(index._full(key))
            elif (missing := net.missing()) is not None:
                self.missing = missing
                return
            else:
                self._few(key, net)
        self._many(many)

    def _few(self, key: bytes, net: Entries) -> None:
        """A key that had few rows has these now."""
        packed, total = net.packed()
        size = sum(map(len, packed.values()))
        if _Few.size + size <= FEW_BYTES or len(packed) == 1:
            self.index._heads[key] = _Few.pack(_FEW, total) + b"".join(packed.values())
            return
        self.index._heads[key] = _Many.pack(_MANY, total, len(packed), size)
        full = self.index._full(key)
        self.entries.update((full + order(row, place), entry) for (row, place), entry in packed.items())

    def _many(self, changes: Mapping[bytes, dict[bytes, Entries]]) -> None:
        """Change entries of keys that have many."""
        wanted = sorted(full for change in changes.values() for full in change)
        found = dict(zip(wanted, self.index._state.get(wanted), strict=True)) if wanted else {}
        for key, change in changes.items():
            _, total, count, size = _Many.unpack(self.index._heads[key])
            for full, net in change.items():
                was = found[full]
                before = net.total()
                if was is not None:
                    net.add(*next(walk(was)))
                if (missing := net.missing()) is not None:
                    self.missing = missing
                    return
                packed, _ = net.packed()
                now = next(iter(packed.values()), None)
                total += before
                count += (now is not None) - (was is not None)
                size += len(now or b"") - len(was or b"")
                self.entries[full] = now
            self.index._heads[key] = _Many.pack(_MANY, total, count, size) if count else _NOTHING
            if count and (size <= FEW_BYTES // 4 or count == 1):
                self.few.append(key)


def few(entries: Sequence[bytes], total: int) -> bytes | None:
    """A head with these entries, however many they are; None if there are none."""
    return _Few.pack(_FEW, total) + b"".join(entries) if entries else None


def entries_in(head: bytes) -> bytes:
    """The entries in a head: none, if its key has many."""
    return head[_Few.size :] if head[0] == _FEW else b""


def has_many(head: bytes) -> bool:
    """Whether a key has entries of its own, given its head."""
    return head[0] == _MANY


def entries_of(head_key: bytes) -> tuple[bytes, bytes]:
    """The first and the last key of the scan for entries of a key, given the full key of its head."""
    return head_key + b"\0", head_key[: -len(_HEAD)] + _AFTER
