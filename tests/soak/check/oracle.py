"""What the flows must give, in plain Python: a dict per operator, fed row by row.

An oracle is a task's whole state. `run` is one step: rows in (topic, partition, offset) order at the step's clock give,
for each output, the values of each key in their order.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from tests.soak.check.seen import Tp

Row = dict[str, Any]
UNREADABLE = "unreadable"
"""Of a record that does not decode: its value. Its row has no columns."""


class Arrived(NamedTuple):
    """A row of a step's input."""

    offset: int
    timestamp: int
    row: Row


class Due(NamedTuple):
    """One record that a step must emit."""

    value: Any
    timestamp: int | None = None
    """Milliseconds; None where the oracle does not say."""


Emits = dict[str, dict[bytes, list[Due]]]
"""Output → key → records in order."""


class Oracle(Protocol):
    """One task of one stage."""

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """The records that a step over these rows must emit."""
        ...


class Whole(Protocol):
    """The final table over the whole input, whatever the steps were."""

    def fold(self, row: Row, tp: Tp) -> None: ...
    def table(self) -> dict[bytes, Any]: ...


class GroupBy:
    """`filter(price > above).group_by(column).agg(n=len, top=max(price), total=sum(price))`, to one sink.

    >>> bids = GroupBy("auction", "stats")
    >>> bids.run(0, [Arrived(0, 5, {"auction": 7, "price": 150}), Arrived(1, 6, {"auction": 7, "price": 170})])
    {'stats': {b'7': [Due(value={'auction': 7, 'n': 2, 'top': 170, 'total': 320}, timestamp=6)]}}
    """

    def __init__(self, column: str, output: str, *, above: int = -1) -> None:
        self.column, self.output, self.above = column, output, above
        self.groups: dict[Any, list[int]] = {}

    def fold(self, row: Row, tp: Tp | None = None) -> None:
        """Count one row in, whatever its partition."""
        if UNREADABLE not in row and row["price"] > self.above:
            n, top, total = self.groups.get(row[self.column], (0, row["price"], 0))
            self.groups[row[self.column]] = [n + 1, max(top, row["price"]), total + row["price"]]

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """One record for each group that a row of the step belongs to."""
        newest: dict[Any, int] = {}
        for _, timestamp, row in rows:
            self.fold(row)
            if row["price"] > self.above:
                newest[row[self.column]] = max(timestamp, newest.get(row[self.column], 0))
        changed = {_key(group): [Due(self._value(group), at)] for group, at in newest.items()}
        return {self.output: changed} if changed else {}

    def table(self) -> dict[bytes, Any]:
        """Every group's value now, by its key."""
        return {_key(group): self._value(group) for group in self.groups}

    def _value(self, group: Any) -> Row:
        n, top, total = self.groups[group]
        return {self.column: group, "n": n, "top": top, "total": total}


class Exchange:
    """`repartition`: every row goes on to the task of its column's value, unchanged."""

    def __init__(self, column: str, output: str, columns: Iterable[str], *, above: int = -1) -> None:
        self.column, self.output, self.columns, self.above = column, output, tuple(columns), above

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """Every row, by the column that it is sent by."""
        sent: dict[bytes, list[Due]] = {}
        for _, timestamp, row in rows:
            if row["price"] > self.above:
                due = Due({c: row[c] for c in self.columns}, timestamp)
                sent.setdefault(_key(row[self.column]), []).append(due)
        return {self.output: sent} if sent else {}


class Passed:
    """`with_regime`: every row goes on to the task of the same partition, unchanged."""

    def __init__(self, output: str, columns: Iterable[str]) -> None:
        self.output, self.columns = output, tuple(columns)

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """Every row, in one order."""
        sent = [Due({c: row[c] for c in self.columns}, timestamp) for _, timestamp, row in rows]
        return {self.output: {b"": sent}} if sent else {}


class Readable:
    """An operator behind a source whose unreadable records are buried: `letters` is their output."""

    def __init__(self, behind: Oracle, letters: str, topic: str, column: str) -> None:
        self.behind, self.letters, self.topic, self.column = behind, letters, topic, column

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """What the operator makes of the others, and a letter for each of those."""
        rows = list(rows)
        emits = dict(self.behind.run(clock, [row for row in rows if UNREADABLE not in row.row]))
        buried: dict[bytes, list[Due]] = {}
        for offset, timestamp, row in rows:
            if UNREADABLE in row:
                payload = base64.b64encode(row[UNREADABLE]).decode()
                due = Due({"topic": self.topic, "offset": offset, "payload": payload}, timestamp)
                buried.setdefault(_key(row[self.column]), []).append(due)
        return {**emits, self.letters: buried} if buried else emits


class Together:
    """Several operators over one source, fused into one stage."""

    def __init__(self, *parts: Oracle) -> None:
        self.parts = parts

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """What all parts emit; each has outputs of its own."""
        rows = list(rows)
        emits: Emits = {}
        for part in self.parts:
            emits |= part.run(clock, rows)
        return emits


def group_by(column: str, output: str, **options: Any) -> Callable[[], GroupBy]:
    """Makes a fresh GroupBy for each task."""
    return lambda: GroupBy(column, output, **options)


def differs(expected: Mapping[bytes, Any], got: Mapping[bytes, Any]) -> list[str]:
    """In words, every key whose value is not the expected one.

    >>> differs({b"a": 1, b"b": 2}, {b"a": 1, b"b": 3})
    ["key b'b': 3 instead of 2"]
    """
    keys = [*expected, *(key for key in got if key not in expected)]
    return [
        f"key {key!r}: {got.get(key)} instead of {expected.get(key)}"
        for key in keys
        if got.get(key) != expected.get(key)
    ]


def _key(value: Any) -> bytes:
    return str(value).encode()
