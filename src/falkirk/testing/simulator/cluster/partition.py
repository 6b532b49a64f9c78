"""One partition of a topic: records, control markers, and what a reader of either isolation level sees.

    end            one past the last entry (the high watermark)
    stable         the first entry of the first transaction without a marker here, or else end (the last stable offset)
    committed      { e < stable : e has no transaction, or its marker here says COMMITTED }

A marker has its own offset, so offsets count entries and not records.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from falkirk.checkpoint.ids import TopicPartition


class Txn(NamedTuple):
    """One transaction. The number distinguishes two of the same producer epoch."""

    owner: str
    epoch: int
    number: int


class Fate(Enum):
    """The fate of a transaction in one partition."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class OutOfRange(Exception):
    """The requested offset lies below what is kept, or past the end."""


@dataclass(slots=True)
class Entry:
    """A record, or a control marker."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    txn: Txn | None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    marker: bool = False
    horizon: int | None = None
    """For a tombstone: when compaction may drop it. Set by the first compaction that sees it."""


_offset = attrgetter("offset")


@dataclass(slots=True)
class Partition:
    """The log of one partition.

    >>> p, t = Partition(TopicPartition("a", 0)), Txn("w", 0, 0)
    >>> p.append(None, b"x", 0, t), p.end, p.stable
    (0, 1, 0)
    >>> p.mark(t, Fate.COMMITTED, 0); p.end, p.stable
    (2, 2)
    >>> [e.value for e in p.committed(0, p.end)[0]]
    [b'x']
    """

    name: TopicPartition
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    _fates: dict[Txn, Fate] = field(default_factory=dict)
    _firsts: dict[Txn, int] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min((o for t, o in self._firsts.items() if self._fates[t] is Fate.OPEN), default=self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        txn: Txn | None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> int:
        """Add a record; returns its offset."""
        if txn is not None:
            self._fates.setdefault(txn, Fate.OPEN)
            self._firsts.setdefault(txn, self.end)
        return self._add(Entry(self.end, key, value, timestamp, txn, headers or []))

    def mark(self, txn: Txn, fate: Fate, timestamp: int) -> None:
        """Write the control marker that ends a transaction here."""
        self._fates[txn] = fate
        self._add(Entry(self.end, None, None, timestamp, txn, marker=True))

    def _add(self, entry: Entry) -> int:
        self.entries.append(entry)
        self.end += 1
        return entry.offset

    def fate(self, entry: Entry) -> Fate:
        """The fate of the transaction that an entry belongs to."""
        return Fate.COMMITTED if entry.txn is None else self._fates[entry.txn]

    def uncommitted(self, start: int, end: int) -> tuple[list[Entry], int]:
        """The records with start ≤ offset < end, whatever their fate, and the position after them."""
        return [e for e in self._range(start, end) if not e.marker], max(start, min(end, self.end))

    def committed(self, start: int, end: int, *, trimmed: bool = False) -> tuple[list[Entry], int]:
        """The committed records with start ≤ offset < min(end, stable), and the position after them. `trimmed`: also those
        that are deleted, which no reader gets."""
        end = min(end, self.stable)
        entries = self._between(start, end) if trimmed else self._range(start, end)
        found = [e for e in entries if not e.marker and self.fate(e) is Fate.COMMITTED]
        return found, max(start, end)

    def _range(self, start: int, end: int) -> list[Entry]:
        if not self.start <= start <= self.end:
            raise OutOfRange(f"{self.name}: {start} is not in {self.start}..{self.end}")
        return self._between(start, end)

    def _between(self, start: int, end: int) -> list[Entry]:
        first, behind = (bisect_left(self.entries, offset, key=_offset) for offset in (start, end))
        return self.entries[first:behind]

    def compact(self, now: int, delete_retention: int) -> None:
        """Keep the last committed record of each key below the last stable offset, as the log cleaner does.

        A tombstone stays for `delete_retention` ms after the first compaction that saw it, then it is removed: a reader that
        starts from an older state does not learn of the deletion.
        """
        upto = self.stable
        clean = [e for e in self.entries if e.offset < upto and not e.marker and self.fate(e) is Fate.COMMITTED]
        last = {e.key: e.offset for e in clean}
        kept = []
        for e in clean:
            if last.get(e.key) != e.offset:
                continue
            if e.value is None:
                e.horizon = now + delete_retention if e.horizon is None else e.horizon
                if e.horizon <= now:
                    continue
            kept.append(e)
        self.entries = kept + [e for e in self.entries if e.offset >= upto]

    def delete(self, before: int) -> None:
        """Records below `before` are deleted: retention, or a request to delete records."""
        self.start = max(self.start, min(before, self.end))
