"""A digest of everything that a step wrote, to compare a replay with what was published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from falkirk.checkpoint.ports import Writes


def digest(writes: Sequence[Writes]) -> str:
    """BLAKE2b-128 of topics, partitions, keys, values and timestamps, in order, in MessagePack, which keeps the parts
    apart.

    >>> a = Writes("t", [0], [b"k"], [b"v"])
    >>> digest([a]) == digest([Writes("t", [0], [b"k"], [b"v"])]), digest([a]) == digest([])
    (True, False)
    """
    h = hashlib.blake2b(digest_size=16)
    for w in writes:
        times = None if w.timestamps is None else list(w.timestamps)
        h.update(msgspec.msgpack.encode((w.topic, list(w.partitions), list(w.keys), list(w.values), times)))
    return h.hexdigest()
