"""What a separate reader finds in a topic."""

from __future__ import annotations

from typing import NamedTuple

from tests.reading import read_topics


class Found(NamedTuple):
    """A record."""

    offset: int
    key: bytes
    value: bytes | None
    """None: a tombstone."""


def read_committed(brokers: str, topic: str) -> dict[int, list[Found]]:
    """The committed records of each partition that has some, in their order."""
    found: dict[int, list[Found]] = {}
    for m in read_topics(brokers, topic):
        found.setdefault(m.partition() or 0, []).append(Found(m.offset() or 0, m.key() or b"", m.value()))
    return found
