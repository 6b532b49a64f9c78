"""The order of the rows in a group, as bytes: the best row has the least.

    order  =  for each column of `by`: is it null? · its bytes, complemented if the greatest is the best
              for each other column: its bytes

Equal bytes are equal rows. No encoding of a value is a prefix of another, so complements sort exactly in the opposite order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from falkirk.state.codec import encode_key, encode_keys

COMPLEMENT = bytes(range(255, -1, -1))
_HEAD = len(encode_key(0, 0, []))


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
        parts: list[list[bytes]] = []
        for name, smallest in zip(self.by, self.smallest, strict=True):
            parts.append(_encoded([rows[name].is_null()]))
            value = _encoded([rows[name]])
            parts.append(value if smallest else [cell.translate(COMPLEMENT) for cell in value])
        if self.others:
            parts.append(_encoded([rows[name] for name in self.others]))
        return pl.Series(list(map(b"".join, zip(*parts, strict=True))), dtype=pl.Binary)

    def best(self, frame: pl.DataFrame, columns: Sequence[str], k: int, order: str) -> pl.DataFrame:
        """The k best rows of each group, in order. `order`: a name for a column that is not in the frame."""
        ordered = frame.with_columns(self.of(frame).alias(order)).sort(order, maintain_order=True)
        return ordered.group_by(columns, maintain_order=True).head(k).drop(order)


def _encoded(columns: Sequence[pl.Series]) -> list[bytes]:
    # Times and decimals are the integers behind them.
    physical = [c.to_physical() for c in columns]
    shards = np.zeros(len(columns[0]), np.uint16)
    return [key[_HEAD:] for key in encode_keys(0, shards, physical)]
