"""Where the JVM's default partitioner puts a key, worked out here so that nothing under test is believed."""

from __future__ import annotations

from functools import lru_cache

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` with Kafka's seed, unsigned.

    >>> murmur2(b"21") - (1 << 32), murmur2(b"foobar") - (1 << 32), murmur2(b"abc")
    (-973932308, -790332482, 479470107)
    """
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=1 << 20)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition that a JVM producer would choose for `key`.

    >>> [partition_of(str(i).encode(), 4) for i in range(6)]
    [0, 3, 0, 3, 1, 2]
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
