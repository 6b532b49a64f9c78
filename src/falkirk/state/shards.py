"""The shard, partition and task of a key.

    shard(key)       = murmur2(key) >> 22                            one of S = 1,024, by the hash's top bits
    partition(key)   = (murmur2(key) & 0x7fffffff) mod n             Java's producers, and this project's sinks
                     | crc32(key) mod n                              librdkafka's default for records with keys
    shards(task)     = task·S/n ≤ shard < (task+1)·S/n               contiguous, disjoint, and together 0..S

Shards come from the top bits and murmur2 partitions from the bottom ones, so the keys of one partition of a topic
spread over all shards. State, changelog and exchanges are addressed by shard: if the number of tasks changes,
whole ranges of shards move and no key is hashed again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SHARDS = 1024
"""S. Fixed for the life of an app: a shard number is part of every key in state."""

Hashes = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WORD = 0xFFFFFFFF
_FEW = 16
"""Up to so many keys are hashed faster one by one than by numpy."""
_SHARD_SHIFT = 32 - (SHARDS.bit_length() - 1)


def murmur2_of(key: bytes) -> int:
    """The hash of one key, unsigned; Java shows the same bits as a signed int.

    >>> murmur2_of(b"foobar") - 2**32
    -790332482
    """
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _M & _WORD
        h = (h * _M & _WORD) ^ ((k ^ k >> 24) * _M & _WORD)
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


def murmur2(keys: Sequence[bytes | None]) -> Hashes:
    """The hashes of many keys, unsigned, in their order. A null key has the hash of an empty one.

    >>> murmur2([b"foobar", b"21"]).astype("int32").tolist()
    [-790332482, -973932308]
    """
    spelt = [key or b"" for key in keys]
    if len(spelt) <= _FEW:
        return np.array([murmur2_of(key) for key in spelt], np.uint32)
    hashes = np.empty(len(spelt), np.uint32)
    lengths = np.fromiter(map(len, spelt), np.int64, len(spelt))
    starts = np.cumsum(lengths) - lengths
    # With three zero bytes at the end, the last key's tail can be read as a whole word.
    data = np.frombuffer(b"".join(spelt) + b"\0\0\0", np.uint8)
    order = np.argsort(lengths, kind="stable")
    present, first = np.unique(lengths[order], return_index=True)
    for length, rows in zip(present.tolist(), np.split(order, first[1:]), strict=True):
        hashes[rows] = _murmur2_of_length(data, starts[rows], length)
    return hashes


def _murmur2_of_length(data: npt.NDArray[np.uint8], starts: Numbers, length: int) -> Hashes:
    m, r13, r15, r24 = (np.uint32(n) for n in (_M, 13, 15, 24))
    h: Hashes = np.full(len(starts), _SEED ^ length, np.uint32)
    words = _words(data, starts, -(-length // 4))
    for i in range(length // 4):
        k = words[:, i] * m
        h = (h * m) ^ ((k ^ (k >> r24)) * m)
    if rest := length % 4:
        tail = words[:, -1] & np.uint32((1 << 8 * rest) - 1)
        h = (h ^ tail) * m
    h = (h ^ (h >> r13)) * m
    return h ^ (h >> r15)


def _words(data: npt.NDArray[np.uint8], starts: Numbers, count: int) -> npt.NDArray[np.uint32]:
    """`count` little-endian words from each start."""
    gathered = data[starts[:, None] + np.arange(4 * count)]
    words: npt.NDArray[np.uint32] = gathered.view("<u4")
    return words


def crc32(keys: Sequence[bytes]) -> Hashes:
    """librdkafka's hash of many keys.

    >>> crc32([b"foobar"]).tolist()
    [2666930069]
    """
    return np.fromiter(map(zlib.crc32, keys), np.uint32, len(keys))


def murmur2_partition(hashes: Hashes, partitions: int) -> Numbers:
    """Where Java's producers put keys of these murmur2 hashes.

    >>> murmur2_partition(murmur2([b"foobar", b"21"]), 4).tolist()
    [2, 0]
    """
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def crc32_partition(hashes: Hashes, partitions: int) -> Numbers:
    """Where librdkafka's `consistent` partitioners put keys of these crc32 hashes.

    >>> crc32_partition(crc32([b"foobar"]), 4).tolist()
    [1]
    """
    return hashes.astype(np.int64) % partitions


def shard_of(hashes: Hashes) -> npt.NDArray[np.uint16]:
    """The shards of keys of these murmur2 hashes.

    >>> shard_of(murmur2([b"foobar", b"21"])).tolist()
    [835, 791]
    """
    return (hashes >> np.uint32(_SHARD_SHIFT)).astype(np.uint16)


def shard_range(task: int, tasks: int) -> range:
    """The shards of one of `tasks` tasks. Raises ValueError unless 0 ≤ task < tasks ≤ S.

    >>> [shard_range(t, 3) for t in range(3)]
    [range(0, 341), range(341, 682), range(682, 1024)]
    """
    if not 0 <= task < tasks <= SHARDS:
        raise ValueError(f"task {task} of {tasks}: there are {SHARDS} shards, and each task owns at least one")
    return range(task * SHARDS // tasks, (task + 1) * SHARDS // tasks)


def task_of(shards: npt.NDArray[np.integer], tasks: int) -> Numbers:
    """These shards' tasks: the inverse of `shard_range`.

    >>> task_of(np.array([0, 340, 341, 1023]), 3).tolist()
    [0, 0, 1, 2]
    """
    return ((shards.astype(np.int64) + 1) * tasks - 1) // SHARDS
