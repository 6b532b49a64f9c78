"""What a step stages over the store, before its transaction is decided.

    state(n+1) = store ⊕ overlay(n) ⊕ overlay(n+1)        n committing, n+1 running

The store takes overlay(n) only when n has committed: if the worker is killed at any moment, the store is the fold of
a prefix of the committed steps. When n aborts, both overlays are dropped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter

from falkirk.state.store import Reader

TAIL = 512
"""How many keys are inserted one by one; with more, all are sorted together."""


class Overlay:
    """Staged changes over a reader: a store, or the overlay of the step before.

    >>> below = Overlay(EmptyReader())
    >>> below.put([b"a", b"b"], [b"1", b"2"])
    >>> above = Overlay(below)
    >>> above.put([b"a"], [None])
    >>> above.get([b"a", b"b", b"c"]), list(above.scan(b"a", b"z"))
    ([None, b'2', None], [(b'b', b'2')])
    """

    __slots__ = ("_indexed", "_sorted", "_tail", "below", "changes")

    def __init__(self, below: Reader) -> None:
        self.below = below
        self.changes: dict[bytes, bytes | None] = {}
        """Only grows: a deleted key has the value None."""
        self._indexed = 0
        """So many keys, the first in `changes`, are in order in `_sorted` and `_tail`."""
        self._sorted: list[bytes] = []
        self._tail: list[bytes] = []

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of full keys, in the same order."""
        changes = self.changes
        if not changes:
            return self.below.get(keys)
        missing = [key for key in keys if key not in changes]
        if not missing:
            return [changes[key] for key in keys]
        if len(missing) == len(keys):
            return self.below.get(keys)
        found = iter(self.below.get(missing))
        return [changes[key] if key in changes else next(found) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end in the order of keys, with staged changes. The cost is by the pairs taken and the
        keys staged since the last scan."""
        self._index()
        ordered, first, last = self._sorted, bisect_left(self._sorted, start), bisect_left(self._sorted, end)
        recent = self._tail[bisect_left(self._tail, start) : bisect_left(self._tail, end)]
        if first == last and not recent:
            yield from self.below.scan(start, end)
            return
        changes = self.changes
        keys = merge(map(ordered.__getitem__, range(first, last)), recent)
        staged = ((key, changes[key]) for key in keys)
        before = None
        # Of equal keys the staged one comes first.
        for key, value in merge(staged, self.below.scan(start, end), key=itemgetter(0)):
            if key != before and value is not None:
                yield key, value
            before = key

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stage new values; None deletes."""
        self.changes.update(zip(keys, values, strict=True))

    def _index(self) -> None:
        """Sort the keys that were staged since the last scan in among the others.

        Most steps scan nothing, so `put` does not do it. A running scan keeps the lists that it began with.
        """
        new = list(islice(reversed(self.changes), len(self.changes) - self._indexed))
        self._indexed = len(self.changes)
        if len(self._tail) + len(new) > TAIL:
            self._sorted, self._tail = sorted([*self._sorted, *self._tail, *new]), []
        else:
            for key in new:
                insort(self._tail, key)


class EmptyReader:
    """A reader that holds nothing."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """None for every key."""
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Nothing."""
        return iter(())
