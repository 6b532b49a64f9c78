"""The records of a grouped result that one task writes: of each key, the last is what counts."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

MOST = 400_000
"""Rows that are held, at most twice as many for a moment."""


class Pile:
    """Holds result rows, and lets go of those that a later one of the same key takes the place of.

    >>> pile = Pile()
    >>> rows = pl.DataFrame({"key": [b"a", b"b", b"a"], "value": [b"1", b"2", b"3"]})
    >>> list(pile.take(rows)), [frame["value"].to_list() for frame in pile.close()]
    ([], [[b'2', b'3']])
    """

    def __init__(self) -> None:
        self._held: list[pl.DataFrame] = []
        self._rows = 0

    def take(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Hold rows; if there are too many keys to hold, give back all: what comes behind them brings them together."""
        self._held.append(rows)
        self._rows += rows.height
        if self._rows > MOST:
            self._held = [self._condensed()]
            self._rows = self._held[0].height
            if self._rows > MOST // 2:
                yield from self.close()

    def close(self) -> Iterator[pl.DataFrame]:
        """What is held."""
        if self._rows:
            yield self._condensed()
        self._held, self._rows = [], 0

    def _condensed(self) -> pl.DataFrame:
        return pl.concat(self._held).unique("key", keep="last", maintain_order=True)
