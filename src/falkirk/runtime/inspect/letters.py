"""Dead letters as they are read: what they say, which are chosen, and which records have been written again.

Where a record was replayed to is known, so a letter of that place is one of a record that has failed again:

    settled(letter) ⇔ its record was replayed          attempts(letter) = how often its record had been when it failed
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

HEADER = "falkirk-replayed"
"""Says of a record that was written again how often it has been."""


class Address(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Letter(msgspec.Struct, frozen=True):
    """A dead letter, as `falkirk.stream.dataflow.failures` writes it.

    >>> record = '"source":"in","topic":"t","partition":0,"offset":3'
    >>> letter = decoded(f'{{"app":"a","stage":"s","reason":"?","timestamp":7,{record}}}'.encode())
    >>> letter.address
    Address(topic='t', partition=0, offset=3)
    >>> decoded(b"17") is None
    True
    """

    app: str
    stage: str
    reason: str
    timestamp: int
    """Of the record, or the row: milliseconds since 1970."""
    source: str | None = None
    """None: no record of a source is known."""
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None
    payload: bytes | None = None
    operator: str | None = None
    """None: the record does not decode."""
    row: Any = None

    @property
    def address(self) -> Address | None:
        """Of its record; None where that is not known."""
        if self.source is None or self.topic is None or self.partition is None or self.offset is None:
            return None
        return Address(self.topic, self.partition, self.offset)

    @property
    def kind(self) -> str:
        """Its reason without what differs from record to record.

        >>> letter = decoded(b'{"app":"a","stage":"s","reason":"cannot read \\'x\\' as Int64 at 17","timestamp":7}')
        >>> letter.kind
        'cannot read … as Int64 at …'
        """
        return re.sub(
            r"'[^']*'(?= as )|(?<![A-Za-z0-9])\d+", "…", re.sub(r"(not a JSON object: ).*", r"\1…", self.reason)
        )


def decoded(value: bytes | None) -> Letter | None:
    """A letter; None for what is none."""
    try:
        return None if value is None else _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant. What is None does not matter."""

    stage: str | None = None
    reason: str | None = None
    """A part of it."""
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """From the first to the last."""

    def __contains__(self, letter: Letter) -> bool:
        """Whether a letter is among them.

        >>> letter = Letter("a", "s", "null value", 0, "in", "t", 0, 3)
        >>> letter in Choice(), letter in Choice(reason="null", offsets=(3, 9)), letter in Choice(partition=1)
        (True, True, False)
        """
        wanted = ((self.stage, letter.stage), (self.topic, letter.topic), (self.partition, letter.partition))
        low, high = self.offsets or (0, 0)
        return (
            all(one in (None, other) for one, other in wanted)
            and (self.reason is None or self.reason in letter.reason)
            and (self.offsets is None or (letter.offset is not None and low <= letter.offset <= high))
        )


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A record that was written again."""

    origin: Address
    now: Address
    attempt: int
    """1: for the first time."""


class Replayed(msgspec.Struct, frozen=True, tag="replayed"):
    """Some records were written again, in the transaction that this was written in."""

    at: int
    """Milliseconds since 1970."""
    host: str
    moves: list[Move]


@dataclass(slots=True)
class Marks:
    """What has been replayed."""

    moves: dict[Address, Move] = field(default_factory=dict)
    """By where the record had been."""
    attempts: dict[Address, int] = field(default_factory=dict)
    """Of records that were written again, by where they are now."""

    def take(self, moves: Iterable[Move]) -> None:
        """Take note."""
        for move in moves:
            self.moves[move.origin] = move
            self.attempts[move.now] = move.attempt

    def settled(self, letter: Letter) -> bool:
        """Whether its record has been written again."""
        return letter.address in self.moves

    def attempt(self, letter: Letter) -> int:
        """How often its record had been replayed when it failed."""
        return 0 if letter.address is None else self.attempts.get(letter.address, 0)

    def due(self, letter: Letter, *, again: bool) -> bool:
        """Whether a replay is to write its record: once, and what failed again only if that is asked for."""
        return letter.address is not None and not self.settled(letter) and (again or not self.attempt(letter))


# Made at import: a type's first decoding builds what is known of it, and two threads that do so at once can crash.
_decode = msgspec.json.Decoder(Letter).decode
encode_mark = msgspec.json.Encoder().encode
decode_mark = msgspec.json.Decoder(Replayed).decode
