"""One word for everything that a step wrote, so that a replay can be compared with what was published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from falkirk.checkpoint.ports import Writes


def digest(writes: Sequence[Writes]) -> str:
    """A BLAKE2b-128 over topics, partitions, keys, values and timestamps, in order; lengths keep the parts apart.

    >>> a = Writes("t", [0], [b"k"], [b"v"])
    >>> digest([a]) == digest([Writes("t", [0], [b"k"], [b"v"])]), digest([a]) == digest([])
    (True, False)
    """
    h = hashlib.blake2b(digest_size=16)
    for w in writes:
        h.update(f"{w.topic} {len(w)} ".encode())
        h.update(repr(list(w.partitions)).encode())
        for column in (w.keys, w.values):
            h.update(repr([-1 if v is None else len(v) for v in column]).encode())
            h.update(b"".join([v for v in column if v is not None]))
        h.update(repr(None if w.timestamps is None else list(w.timestamps)).encode())
    return h.hexdigest()
