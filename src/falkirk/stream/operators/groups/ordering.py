"""The order of the rows in a group, as bytes: the best row has the least.

    order  =  for each column of `by`: is it null? · its bytes, complemented if the greatest is the best
              for each other column: its bytes

Equal bytes are equal rows. No encoding of a value is a prefix of another, so complements sort exactly in the opposite order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from falkirk.state.codec import encode_columns


@dataclass(frozen=True)
class Ordering:
    """How the rows of a group are ordered. Nulls of `by` come last; ties go by the other columns, the least first."""

    by: tuple[str, ...]
    smallest: tuple[bool, ...]
    """For each of them: whether the smallest value is the best."""
    others: tuple[str, ...]

    def of(self, rows: pl.DataFrame) -> pl.Series:
        """The bytes of each row.

        >>> rows = pl.DataFrame({"price": [5, None, 7], "id": [1, 2, 3]})
        >>> Ordering(("price",), (False,), ("id",)).of(rows).arg_sort().to_list()
        [2, 0, 1]
        """
        columns, descending = [], []
        for name, smallest in zip(self.by, self.smallest, strict=True):
            columns += [rows[name].is_null(), _plain(rows[name])]
            descending += [False, not smallest]
        columns += [_plain(rows[name]) for name in self.others]
        descending += [False] * len(self.others)
        if not columns:  # the rows of a group have no other columns, and are all equal
            return pl.Series([b""], dtype=pl.Binary).new_from_index(0, rows.height)
        return pl.Series(encode_columns(columns, descending), dtype=pl.Binary)

    @property
    def words(self) -> str:
        """Of `by`, for fingerprints."""
        return ", ".join(f"{c}{'' if s else ' desc'}" for c, s in zip(self.by, self.smallest, strict=True))

    @property
    def bare(self) -> Ordering:
        """That of `by` alone: rows that are equal in it tie."""
        return Ordering(self.by, self.smallest, ())

    def best(
        self, frame: pl.DataFrame, columns: Sequence[str], k: int, order: str, *, ties: bool = False
    ) -> pl.DataFrame:
        """The k best rows of each group, in order; with `ties`, also those that tie with the last of them. `order`: a name
        for a column that is not in the frame."""
        ordered = frame.with_columns(self.of(frame).alias(order)).sort(order, maintain_order=True)
        if not ties:
            return ordered.group_by(columns, maintain_order=True).head(k).drop(order)
        return ordered.filter(self.rank(ordered, columns, order) <= k).drop(order)

    def rank(self, ordered: pl.DataFrame, columns: Sequence[str], name: str) -> pl.Series:
        """1 + the number of better rows in its group, of each row, given in order. `name`: for a column that is not there.

        >>> rows = pl.DataFrame({"g": [1, 1, 1], "x": [9, 9, 7]})
        >>> Ordering(("x",), (False,), ()).rank(rows, ["g"], "tied").to_list()
        [1, 1, 3]
        """
        place = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(columns)
        tied = ordered.select(*columns, self.bare.of(ordered).alias(name), place.alias(f"{name}.place"))
        return tied.select(pl.col(f"{name}.place").min().over(*columns, name)).to_series()


def _plain(column: pl.Series) -> pl.Series:
    """Times and decimals as the integers behind them."""
    return column.to_physical()
