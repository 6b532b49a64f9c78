"""Arrays and maps: values that have parts of one kind, as many as each says.

Parts of many datums are read together, the first of each, then the second of each. Of a few datums with many parts, one
datum is read after the other: a walk finds where its parts begin, and then all of its parts are read together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from falkirk.stream.formats.avro.cursor import Cursor, Ints, Rows
from falkirk.stream.formats.avro.nodes import Node
from falkirk.stream.formats.avro.walk import Lost, Walk

FEW, MANY = 32, 64
"""Fewer datums, with more items still, are read one after the other."""
BYTELESS = 4_096
"""Items of no bytes, nulls for one, that a block may have: nothing else bounds what a few bytes may claim."""


@dataclass
class Items(Node):
    """An array, or a map: then an item is a key and a value. They come in blocks, the last of which is empty."""

    where: str
    item: Node
    least = 1

    def read(self, cursor: Cursor, rows: Rows) -> pl.Series:
        owners, parts = list[Ints](), list[pl.Series]()
        for active, counts in self._blocks(cursor, rows):
            for left, more in self._by_number(active, counts):
                if not more:
                    parts.append(self.item.read(cursor, rows[left]))
                    owners.append(left)
                    continue
                for at, count in zip(left.tolist(), more, strict=True):
                    for items in self._of_one(cursor, int(rows[at]), count):
                        parts.append(items)
                        owners.append(np.full(len(items), at))
        if not parts:
            empty = self.item.read(cursor, rows[:0])
            return pl.Series([[]], dtype=pl.List(empty.dtype)).new_from_index(0, len(rows))
        items, owner = pl.concat(parts), np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        lists = (
            pl.DataFrame({"owner": owner[order], "": items.gather(order)})
            .group_by("owner", maintain_order=True)
            .agg("")
        )
        places = np.full(len(rows), lists.height)
        places[lists["owner"].to_numpy()] = np.arange(lists.height)
        return pl.concat([lists[""], pl.Series("", [[]], dtype=lists[""].dtype)]).gather(places)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        for active, counts in self._blocks(cursor, rows):
            for left, more in self._by_number(active, counts):
                if not more:
                    self.item.skip(cursor, rows[left])
                    continue
                for row, count in zip(rows[left].tolist(), more, strict=True):
                    if self._starts(cursor, row, count)[1] < count:
                        self.item.skip(cursor, np.array([row]))

    def past(self, walk: Walk) -> None:
        while count := walk.long():
            if count < 0:
                walk.long()
                count = -count
            if count < 0 or count > self._most(walk.left):
                raise Lost
            for _ in range(count):
                self.item.past(walk)

    def _by_number(self, active: Ints, counts: Ints) -> Iterator[tuple[Ints, list[int]]]:
        """The datums that have a first item, a second one, and so on. At the end perhaps a few datums that have many more,
        and how many more each has: an operation on a few costs as much as one on a hundred."""
        for k in range(int(counts.max(initial=0))):
            here = counts > k
            left = active[here]
            if len(left) < FEW and counts.max() - k > MANY:
                yield left, (counts[here] - k).tolist()
                return
            yield left, []

    def _of_one(self, cursor: Cursor, row: int, count: int) -> Iterator[pl.Series]:
        """The next items of one datum."""
        starts, found = self._starts(cursor, row, count)
        if found:
            inner = cursor.within(starts[:-1], starts[1:])
            yield self.item.read(inner, inner.all)
            if inner.bad:
                only = np.array([row])
                return cursor.fail(only, np.array([True]), "", inner.bad[min(inner.bad)])
        if found < count:
            yield self.item.read(cursor, np.array([row]))

    def _starts(self, cursor: Cursor, row: int, count: int) -> tuple[Ints, int]:
        """Where the next whole items of a datum begin, and where the last one ends; their number. The cursor moves behind
        them."""
        begin = int(cursor.pos[row])
        walk = Walk(cursor.data[begin : cursor.end[row]].tobytes())
        starts = [0]
        with suppress(Lost):
            for _ in range(count):
                self.item.past(walk)
                starts.append(walk.at)
        cursor.pos[row] = begin + starts[-1]
        return np.array(starts) + begin, len(starts) - 1

    def _most(self, left: Any) -> Any:
        """The items that a block may have, of so many bytes that are left."""
        return left // self.item.least if self.item.least else BYTELESS

    def _blocks(self, cursor: Cursor, rows: Rows) -> Any:
        """Of each block, by its number: which of `rows` have it, and how many items are in it."""
        active = np.arange(len(rows))
        while active.size:
            counts = cursor.longs(rows[active], self.where)
            sized = active[counts < 0]
            # The size of such a block is for who wants none of it: it says nothing that its items do not.
            cursor.longs(rows[sized], self.where)
            counts = np.abs(counts)
            left = cursor.end[rows[active]] - cursor.pos[rows[active]]
            wrong = (counts < 0) | (counts > self._most(left))
            cursor.fail(rows[active], wrong, self.where, "more items than there are bytes")
            counts[wrong] = 0
            active, counts = active[counts > 0], counts[counts > 0]
            yield active, counts
