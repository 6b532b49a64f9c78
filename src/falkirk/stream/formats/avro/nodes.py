"""What a writer's schema becomes: a tree that reads the columns that are wanted, and passes over the rest.

Each node reads the next value of some datums, or passes over it. Values of bad datums are there too, and mean nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from falkirk.stream.formats.avro.cursor import Cursor, Ints, Rows
from falkirk.stream.formats.avro.walk import Lost, Walk
from falkirk.stream.formats.types import type_name


class Node(ABC):
    """A part of the writer's schema."""

    least: int
    """The bytes that a value has at least: so a count that no datum could hold is known before anything is made for it."""

    @abstractmethod
    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        """The next value of each of `rows`."""

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Pass over it."""
        self.read(cursor, rows)

    @abstractmethod
    def past(self, walk: Walk) -> None:
        """Pass over the next value of one datum. Raises Lost for one that is bad: `read` says why."""


@dataclass
class Number(Node):
    """An int or a long, as any column that is a number underneath."""

    where: str
    dtype: pl.DataType
    low: int
    high: int
    factor: int = 1
    least = 1

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        numbers = cursor.longs(rows, self.where)
        wrong = (numbers < self.low) | (numbers > self.high)
        if wrong.any():
            cursor.fail(rows, wrong, self.where, lambda i: f"cannot read {numbers[i]} as {type_name(self.dtype)}")
            numbers[wrong] = 0
        column = pl.Series(numbers * self.factor if self.factor != 1 else numbers)
        if column.dtype == self.dtype:
            return column
        return (column.cast(pl.Int32) if self.dtype == pl.Date() else column).cast(self.dtype)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.longs(rows, self.where)

    def past(self, walk: Walk) -> None:
        walk.long()


@dataclass
class Float(Node):
    """A float (4 bytes) or a double (8)."""

    where: str
    dtype: pl.DataType
    least: int

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        words = cursor.words(rows, self.least, self.where)
        floats = words.astype(np.uint32).view(np.float32) if self.least == 4 else words.view(np.float64)
        return pl.Series(floats).cast(self.dtype)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.fixed(rows, self.least, self.where)

    def past(self, walk: Walk) -> None:
        walk.bytes(self.least)


@dataclass
class Boolean(Node):
    """A byte, 0 or 1."""

    where: str
    least = 1

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        byte = cursor.words(rows, 1, self.where)
        if (byte > 1).any():
            cursor.fail(rows, byte > 1, self.where, lambda i: f"{byte[i]} is not a boolean")
        return pl.Series(byte == 1)

    def past(self, walk: Walk) -> None:
        if walk.bytes(1)[0] > 1:
            raise Lost


@dataclass
class Bytes(Node):
    """Bytes, a string, or a fixed."""

    where: str
    dtype: pl.DataType
    size: int | None = None

    @property
    def least(self) -> int:  # type: ignore[override]
        return 1 if self.size is None else self.size

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        if isinstance(self.dtype, pl.Decimal):
            return cursor.decimals(rows, self.where, self.dtype, self.size)
        if self.dtype == pl.String():
            return cursor.texts(rows, self.where)
        return cursor.binaries(rows, self.where, self.size)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        cursor.spans(rows, self.where, self.size)

    def past(self, walk: Walk) -> None:
        walk.bytes(walk.long() if self.size is None else self.size)


@dataclass
class Symbol(Node):
    """An enum's symbol, as text."""

    where: str
    symbols: Sequence[str]
    known: Sequence[str | None]
    """What each is to the reader; None: nothing."""
    least = 1

    @cached_property
    def _texts(self) -> pl.Series:
        return pl.Series([*(symbol or "" for symbol in self.known)], dtype=pl.String)

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        numbers = self._numbers(cursor, rows)
        unknown = np.array([symbol is None for symbol in self.known])
        if unknown.any():
            wrong = unknown[numbers]
            cursor.fail(rows, wrong, self.where, lambda i: f"{self.symbols[numbers[i]]} is not in the reader's schema")
        return self._texts.gather(numbers)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        self._numbers(cursor, rows)

    def _numbers(self, cursor: Cursor, rows: Rows) -> Ints:
        return _one_of(cursor, rows, self.where, "symbol", len(self.symbols))

    def past(self, walk: Walk) -> None:
        walk.number(len(self.symbols))


@dataclass
class Nothing(Node):
    """A null."""

    dtype: pl.DataType
    least = 0

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        return _nulls(self.dtype, rows)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Nothing is there."""

    def past(self, walk: Walk) -> None:
        """Nothing is there."""


@dataclass
class Refused(Node):
    """What the reader has no place for: a datum that holds it is bad."""

    where: str
    dtype: pl.DataType
    reason: str
    before: Node
    """What is there all the same."""

    @property
    def least(self) -> int:  # type: ignore[override]
        return self.before.least

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        cursor.fail(rows, np.ones(len(rows), np.bool_), self.where, self.reason)
        return _nulls(self.dtype, rows)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        self.before.skip(cursor, rows)

    def past(self, walk: Walk) -> None:
        self.before.past(walk)


@dataclass
class Union(Node):
    """One of several, after its number."""

    where: str
    dtype: pl.DataType
    branches: Sequence[Node]
    least = 1

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        number = self._numbers(cursor, rows)
        parts = [(n, np.flatnonzero(number == n)) for n in np.unique(number).tolist()]
        read: list[tuple[Ints, pl.Series]] = [(at, self.branches[n].read(cursor, rows[at])) for n, at in parts]
        if len(read) == 1:
            return read[0][1]
        if not read:
            return pl.Series([], dtype=self.dtype)
        places = np.empty(len(rows), np.int64)
        places[np.concatenate([at for at, _ in read])] = np.arange(len(rows))
        together: pl.Series = pl.concat([series for _, series in read])
        return together.gather(places)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        number = self._numbers(cursor, rows)
        for n in np.unique(number).tolist():
            self.branches[n].skip(cursor, rows[number == n])

    def _numbers(self, cursor: Cursor, rows: Rows) -> Ints:
        return _one_of(cursor, rows, self.where, "branch", len(self.branches))

    def past(self, walk: Walk) -> None:
        self.branches[walk.number(len(self.branches))].past(walk)


@dataclass
class Record(Node):
    """Fields, in the writer's order."""

    fields: Sequence[tuple[str | None, Node]]
    """With the column that each becomes, if any."""
    missing: Mapping[str, pl.Series]
    """Columns that the writer lacks: of each, its default."""
    columns: Sequence[str]
    """All, in the reader's order."""

    @cached_property
    def least(self) -> int:  # type: ignore[override]
        return sum(node.least for _, node in self.fields)

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        return self.frame(cursor, rows).to_struct()

    def frame(self, cursor: Cursor, rows: Rows) -> pl.DataFrame:
        """The columns."""
        found = {name: default.new_from_index(0, len(rows)) for name, default in self.missing.items()}
        for name, node in self.fields:
            if name is None:
                node.skip(cursor, rows)
            else:
                found[name] = node.read(cursor, rows)
        return pl.DataFrame([found[name].alias(name) for name in self.columns])

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        for _, node in self.fields:
            node.skip(cursor, rows)

    def past(self, walk: Walk) -> None:
        for _, node in self.fields:
            node.past(walk)


def _nulls(dtype: pl.DataType, rows: Rows) -> pl.Series:
    return pl.Series([None], dtype=dtype).new_from_index(0, len(rows))


def _one_of(cursor: Cursor, rows: Rows, where: str, what: str, count: int) -> Ints:
    """The next number of each, which must be one of `count`; 0 where it is bad."""
    numbers = cursor.longs(rows, where)
    wrong = (numbers < 0) | (numbers >= count)
    if wrong.any():
        cursor.fail(rows, wrong, where, lambda i: f"{what} {numbers[i]} of {count}")
        numbers[wrong] = 0
    return numbers
