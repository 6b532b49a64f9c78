"""The rows of a result: the sum of its changes, and how they look on a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl

from falkirk.wording import counted

WEIGHT = "weight"


class Results:
    """The rows that are there, by all their changes.

    >>> results = Results({"k": pl.Int64(), "who": pl.String()}, [("k", True)])
    >>> results.take([{"k": 1, "who": "ann", "weight": 1}, {"k": 2, "who": None, "weight": 2}])
    >>> results.take([{"k": 2, "who": None, "weight": -1}])
    >>> print("\\n".join(results.lines()))
    k | who
    --+----
    2 | –
    1 | ann
    (2 rows)
    """

    def __init__(self, schema: Mapping[str, pl.DataType], order: Sequence[tuple[str, bool]]) -> None:
        self._schema, self._order = schema, order
        self._rows: dict[str, tuple[int, tuple[Any, ...]]] = {}
        self.changes = 0
        """How many have come."""

    def take(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Some more changes: rows with their weights."""
        for change in changes:
            row = tuple(change[column] for column in self._schema)
            key = repr(row)
            count = self._rows.get(key, (0, row))[0] + change[WEIGHT]
            self.changes += 1
            if count:
                self._rows[key] = (count, row)
            else:
                self._rows.pop(key, None)

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, in the order that was asked for, or else as they came."""
        rows = [row for count, row in self._rows.values() for _ in range(count)]
        names = list(self._schema)
        for column, descending in reversed(self._order):
            at = names.index(column)
            there = [row for row in rows if row[at] is not None]
            there.sort(key=lambda row: _place(row[at]), reverse=descending)
            rows = there + [row for row in rows if row[at] is None]
        return rows

    def lines(self, most: int | None = None, width: int | None = None) -> list[str]:
        """A table; with `most`, of as many rows: the last ones, or the first if they are sorted."""
        rows = self.rows()
        shown = rows if most is None or len(rows) <= most else rows[:most] if self._order else rows[-most:]
        cells = [[spelt(value) for value in row] for row in shown]
        table = aligned(list(self._schema), cells, [dtype.is_numeric() for dtype in self._schema.values()])
        left = len(rows) - len(shown)
        note = f"({counted(len(rows), 'row')}{f', of which {left:,} are not shown' if left else ''})"
        return [line if width is None or len(line) <= width else line[: width - 1] + "…" for line in [*table, note]]


def _place(value: Any) -> Any:
    """What sorts values, those in lists and structs too. Nulls in them come last."""
    if isinstance(value, list | Mapping):
        parts = value.values() if isinstance(value, Mapping) else value
        return [(part is None, 0 if part is None else _place(part)) for part in parts]
    return value


def aligned(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Names, a line, and rows, in columns."""
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]

    def line(cells: Sequence[str], to_right: Sequence[bool]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, to_right, strict=True)]
        return " | ".join(padded).rstrip()

    return [
        line(names, [False] * len(widths)),
        "-+-".join("-" * w for w in widths),
        *(line(row, right) for row in rows),
    ]


def spelt(value: Any) -> str:
    """A value for people.

    >>> spelt(None), spelt("a\\nb"), spelt([1, 2]), spelt(Decimal("1.50"))
    ('–', 'a b', '[1,2]', '1.50')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return " ".join(value.splitlines())
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, bool | date | int | float | Decimal):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return msgspec.json.encode(value).decode()
