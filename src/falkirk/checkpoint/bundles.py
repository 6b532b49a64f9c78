"""Records of several tasks for one partition of an edge, sent as one record.

    record    headers   falkirk-bundle: one line for each part, as in the header of a separate record
              value     3 (one byte) · MessagePack array of the values of the parts

Tasks that commit together send to the same partitions. Without bundles an exchange between 100 tasks and 100 tasks sends
10,000 records of one row each in a round, and the cost of a record does not depend on its rows.

A part is what a task's step made. Digests and output ranges cover parts, so it does not matter which parts share a
record: a task that moves to another worker, or that runs a step again, compares the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.steps import HEADER, Maker, maker
from falkirk.wording import counted

BUNDLE = "falkirk-bundle"
MAGIC = b"\x03"
"""The first byte of a bundle."""
LIMIT = 512 << 10
"""Bytes of the parts of one bundle: well below the broker's default for the largest record (1 MiB)."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def bundled(writes: Sequence[Writes]) -> list[Writes]:
    """The writes of one transaction as they are sent: those that can be bundled, by partition, in their order."""
    together: dict[str, dict[int, list[tuple[bytes, int, bytes]]]] = {}
    found = []
    for w in writes:
        if not w.bundles:
            found.append(w)
            continue
        partitions = together.setdefault(w.topic, {})
        for p, value, timestamp, headers in zip(
            w.partitions, w.values, w.timestamps or (), w.headers or (), strict=True
        ):
            ((_, made),) = headers
            partitions.setdefault(p, []).append((value or b"", timestamp, made))
    return found + [_bundled(topic, partitions) for topic, partitions in together.items()]


def _bundled(topic: str, partitions: dict[int, list[tuple[bytes, int, bytes]]]) -> Writes:
    bundles = [(p, bundle) for p, parts in partitions.items() for bundle in _cut(parts)]
    values, headers = [], []
    for _, parts in bundles:
        if len(parts) == 1:
            values.append(parts[0][0])
            headers.append([(HEADER, parts[0][2])])
        else:
            values.append(MAGIC + _encode([value for value, _, _ in parts]))
            headers.append([(BUNDLE, b"\n".join(made for _, _, made in parts))])
    latest = [max(timestamp for _, timestamp, _ in parts) for _, parts in bundles]
    return Writes(topic, [p for p, _ in bundles], [None] * len(bundles), values, latest, headers)


def _cut(parts: list[tuple[bytes, int, bytes]]) -> Iterator[list[tuple[bytes, int, bytes]]]:
    """The fewest bundles for the parts, none above the limit unless it has one part."""
    size, start = 0, 0
    for i, (value, _, _) in enumerate(parts):
        if size + len(value) > LIMIT and i > start:
            yield parts[start:i]
            size, start = 0, i
        size += len(value)
    yield parts[start:]


def parts_of(value: bytes | None) -> list[bytes | None]:
    """The values in a bundle; the value of any other record. Raises msgspec.DecodeError if a bundle is damaged.

    >>> parts_of(MAGIC + _encode([b"a", b"b"])), parts_of(b"a"), parts_of(None)
    ([b'a', b'b'], [b'a'], [None])
    """
    return [*_decode(value[1:])] if value is not None and value.startswith(MAGIC) else [value]


def parts_made(
    headers: Sequence[tuple[str, bytes]] | None, value: bytes | None
) -> list[tuple[Maker | None, bytes | None]]:
    """The maker of each part of a record, and its value. A record that is not a bundle is one part.

    Raises msgspec.DecodeError if a bundle is damaged.

    >>> parts_made([("falkirk-bundle", b"by.k/0 7 0\\nby.k/1 5 0")], MAGIC + _encode([b"a", b"b"]))[1]
    (Maker(task='by.k/1', step=5, sequence=0), b'b')
    >>> parts_made([("falkirk", b"by.k/0 7 0")], b"a"), parts_made(None, b"a")
    ([(Maker(task='by.k/0', step=7, sequence=0), b'a')], [(None, b'a')])
    """
    found = dict(headers or ())
    if BUNDLE not in found:
        return [(maker(found.get(HEADER) or b""), value)]
    lines = found[BUNDLE].split(b"\n")
    values = parts_of(value)
    if len(lines) != len(values):
        raise msgspec.DecodeError(f"a bundle of {counted(len(values), 'part')} names {counted(len(lines), 'step')}")
    return list(zip(map(maker, lines), values, strict=True))
