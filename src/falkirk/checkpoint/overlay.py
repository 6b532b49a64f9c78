"""What a step has staged over the store, before its transaction is decided.

    state(n+1) = store ⊕ overlay(n) ⊕ overlay(n+1)        n committing, n+1 running

The store takes overlay(n) when n has committed, and only then: kill the worker at any moment and the store is the fold
of a prefix of the committed steps. When n aborts, both overlays go.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from falkirk.state.store import Reader


class Overlay:
    """Staged changes over a reader: a store, or the overlay of the step before.

    >>> below = Overlay(EmptyReader())
    >>> below.put([b"a", b"b"], [b"1", b"2"])
    >>> above = Overlay(below)
    >>> above.put([b"a"], [None])
    >>> above.get([b"a", b"b", b"c"]), list(above.scan(b"a", b"z"))
    ([None, b'2', None], [(b'b', b'2')])
    """

    __slots__ = ("below", "changes")

    def __init__(self, below: Reader) -> None:
        self.below = below
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values under full keys, in the order asked."""
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
        """Pairs with start ≤ key < end in the order of keys, staged changes included."""
        staged = sorted((k, v) for k, v in self.changes.items() if start <= k < end)
        if not staged:
            yield from self.below.scan(start, end)
            return
        hidden = {k for k, _ in staged}
        below = ((k, v) for k, v in self.below.scan(start, end) if k not in hidden)
        live = ((k, v) for k, v in staged if v is not None)
        yield from heapq.merge(below, live)

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stage new values; None deletes."""
        self.changes.update(zip(keys, values, strict=True))


class EmptyReader:
    """A reader that holds nothing."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """None for every key."""
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Nothing."""
        return iter(())
