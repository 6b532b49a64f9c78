"""Records of a topic, in columns.

A client's messages are objects of a few hundred bytes each. If a hundred thousand of them were kept until their step closes,
they would have left the processor's cache by then, and again when they are freed. That costs a fifth of the time for each
record. So this module copies the needed fields out of the messages at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = list[tuple[str, bytes]]


class Message(Protocol):
    """A client's record, for example a `confluent_kafka.Message` that is no error."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def offset(self) -> int: ...
    def partition(self) -> int: ...
    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds)"""
        ...

    def headers(self) -> Headers | None: ...
    def __len__(self) -> int:
        """Bytes of key and value."""
        ...


@dataclass(slots=True)
class Records:
    """Records of one partition, in the order of offsets. `headers` is None if nobody needs them.

    >>> from falkirk.testing.memory import Record
    >>> records = Records.of([Record(0, 7, b"k", b"v", 1_000), Record(0, 9, None, b"w", 1_001)])
    >>> records.offsets, records.keys, records.values, records.times
    ([7, 9], [b'k', None], [b'v', b'w'], [1000, 1001])
    """

    offsets: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """Milliseconds since 1970."""
    headers: list[Headers] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], *, headers: bool = False) -> Records:
        """All of some messages."""
        records = cls(headers=[] if headers else None)
        records.extend(messages)
        return records

    def extend(self, messages: Sequence[Message]) -> None:
        """Add the messages that follow."""
        if not messages:
            return
        first, last = messages[0].offset(), messages[-1].offset()
        # Offsets rise. If their number equals the size of the range, they are exactly the range.
        whole = last - first + 1 == len(messages)
        self.offsets += range(first, last + 1) if whole else [m.offset() for m in messages]
        self.keys += [m.key() for m in messages]
        self.values += [m.value() for m in messages]
        self.times += [m.timestamp()[1] for m in messages]
        if self.headers is not None:
            self.headers += [m.headers() or [] for m in messages]

    def followed_by(self, records: Records) -> Records:
        """These records, then others of the same partition. Changes this object, unless it was empty."""
        if not len(self):
            return records
        self.offsets += records.offsets
        self.keys += records.keys
        self.values += records.values
        self.times += records.times
        if self.headers is not None and records.headers is not None:
            self.headers += records.headers
        return self

    def between(self, start: int, end: int) -> Records:
        """The records from one index to another.

        >>> Records([7, 9, 10], [None] * 3, [None] * 3, [1, 2, 3]).between(1, 3).offsets
        [9, 10]
        """
        some = slice(start, end)
        headers = None if self.headers is None else self.headers[some]
        return Records(self.offsets[some], self.keys[some], self.values[some], self.times[some], headers)

    def __len__(self) -> int:
        return len(self.offsets)
