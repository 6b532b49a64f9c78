"""Where a subscriber is in a sink's topic: an offset for each partition, as one opaque text.

    position(e)[p]  =  offset(e) + 1     if event e is of partition p
                       position(the event before e)[p]     if not
    events from P   =  the committed records r with offset(r) ≥ P[partition(r)], each once, by offset in each partition

So what a subscriber got up to an event, and what it gets from that event's position on, are together what it would have got
without a break: on whichever gateway, since a position is a function of the events alone.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from falkirk.connectors.http.messages import Reply

VERSION = b"\x01"
_CHECK, _TOPIC = 4, 8
"""Bytes of the checksum, and of the topic's digest."""


class Position(NamedTuple):
    """The position of a subscriber.

    >>> position = Position.at("an-id", [7, 300]).after(1, 301)
    >>> position.offsets
    (7, 301)
    >>> Position.parse(position.text()) == position
    True
    >>> Position.parse("n0nsense") is None
    True
    """

    topic: bytes
    """A digest of the topic's id: offsets mean nothing in another topic, or in one that was made again."""
    offsets: tuple[int, ...]
    """Of the next record of each partition. A partition that was added later begins with 0."""

    @classmethod
    def at(cls, topic_id: str, offsets: Sequence[int]) -> Position:
        """A position in a topic."""
        return cls(blake2b(topic_id.encode(), digest_size=_TOPIC).digest(), tuple(offsets))

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """The position that a text says; None: it says none."""
        try:
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError:
            return None
        body, check = data[:-_CHECK], data[-_CHECK:]
        topic, numbers = body[1 : _TOPIC + 1], body[_TOPIC + 2 :]
        width = body[_TOPIC + 1] if len(body) > _TOPIC + 1 else 0
        if body[:1] != VERSION or check != _checksum(body) or not width or not numbers or len(numbers) % width:
            return None
        found = cls(topic, tuple(int.from_bytes(numbers[i : i + width]) for i in range(0, len(numbers), width)))
        # One text for each position: Python's decoder passes over letters that do not count.
        return found if found.text() == text else None

    def text(self) -> str:
        """As a subscriber gets it. It holds letters, digits, dashes and underscores."""
        width = max(1, (max(self.offsets).bit_length() + 7) // 8)
        body = b"".join((VERSION, self.topic, bytes((width,)), *(offset.to_bytes(width) for offset in self.offsets)))
        return urlsafe_b64encode(body + _checksum(body)).rstrip(b"=").decode()

    def after(self, partition: int, following: int) -> Position:
        """Behind what comes before an offset of one partition. It never goes back."""
        offsets = self.offsets
        if following <= offsets[partition]:
            return self
        return Position(self.topic, (*offsets[:partition], following, *offsets[partition + 1 :]))

    def grown(self, partitions: int) -> Position:
        """In a topic with so many partitions: a subscriber has seen nothing of those that were added."""
        return Position(self.topic, self.offsets + (0,) * (partitions - len(self.offsets)))


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECK)


def gone(position: Position, now: Position, first: Sequence[int], end: Sequence[int]) -> Reply | None:
    """Why a subscriber cannot go on from a position; None: it can. `now`: any position in the topic as it is. `first`, `end`:
    where each partition begins and ends.

    >>> now = Position.at("an-id", [0, 0])
    >>> gone(Position.at("an-id", [7, 300]), now, [7, 0], [9, 300]) is None
    True
    >>> lost = gone(Position.at("an-id", [7, 300]), now, [8, 0], [9, 300])
    >>> lost.status, msgspec.json.decode(lost.body)["error"]
    (410, 'records after this position are deleted: partition 0 begins with offset 8, and the position is 7')
    >>> msgspec.json.decode(lost.body)["kept"]
    [{'partition': 0, 'first': 8, 'next': 9}, {'partition': 1, 'first': 0, 'next': 300}]
    """
    if position.topic != now.topic:
        words = "the position is of another topic: the sink's topic was made again, or another sink gave the position"
    elif lost := [p for p, offset in enumerate(position.offsets) if offset < first[p]]:
        p = lost[0]
        words = (
            f"records after this position are deleted: partition {p} begins with offset {first[p]}, and the position is "
            f"{position.offsets[p]}"
        )
    elif beyond := [p for p, offset in enumerate(position.offsets) if offset > end[p]]:
        p = beyond[0]
        words = (
            f"the topic has lost records: partition {p} ends at offset {end[p]}, and the position is "
            f"{position.offsets[p]}"
        )
    else:
        return None
    kept = [{"partition": p, "first": a, "next": b} for p, (a, b) in enumerate(zip(first, end, strict=True))]
    hint = "begin with what is kept: ?from=earliest, without Last-Event-ID"
    return Reply(410, msgspec.json.encode({"error": words, "hint": hint, "kept": kept}))
