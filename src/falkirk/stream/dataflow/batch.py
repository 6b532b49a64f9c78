"""The batches between the operators of a circuit in one step.

Batch      rows with a timestamp each, and, where the edge is not append-only, a weight: a Z-set
Updates    what a grouped result changed: row by row, the old version and the new one

Updates as a Z-set:  Σ (old row, −1) + Σ (new row, +1), without the rows that stayed as they were
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Literal

import polars as pl

from falkirk.state.shards import Hashes
from falkirk.stream.formats import Key

TS = "__falkirk_ts"
"""Milliseconds: the greatest timestamp among the input records that a row comes from in this step."""
WEIGHT = "__falkirk_weight"
"""How often the row comes; negative: how often it is taken back. Int64, and never 0."""
ORIGIN = "__falkirk_origin"
"""Which of the step's messages the row comes from, for errors; missing where it comes from several, as in groups."""


FEW = 1_000
"""Rows up to which expressions are evaluated one after the other."""
_ALSO = "__falkirk_also"
_ONE = pl.Series(WEIGHT, [1], dtype=pl.Int64)


@dataclass(slots=True)
class Batch:
    """Rows, and metadata that the user does not see: timestamps, weights, origins. Both have the same height."""

    rows: pl.DataFrame
    meta: pl.DataFrame

    def __len__(self) -> int:
        return self.meta.height

    @property
    def weights(self) -> pl.Series:
        """How often each row comes, or is taken back."""
        return self.meta[WEIGHT] if WEIGHT in self.meta else _ONE.new_from_index(0, len(self))

    def filter(self, mask: pl.Series) -> Batch:
        """The rows where the mask is true; null is false."""
        return Batch(chosen(self.rows, mask), chosen(self.meta, mask))

    def gather(self, index: pl.Series) -> Batch:
        """The rows at these positions, in their order."""
        return Batch(self.rows[index], self.meta[index])


@dataclass(slots=True)
class Updates:
    """One row for each group that a step touched; `old` and `new` have the same schema and height."""

    old: pl.DataFrame
    new: pl.DataFrame
    had: pl.Series
    """Was there a row before?"""
    has: pl.Series
    """Is there one now?"""
    meta: pl.DataFrame
    columns: tuple[str, ...]
    """Those of the group: the same in `old` and `new`."""
    key: Key
    """The spelling of `key_bytes`, which may be of fewer columns."""
    key_bytes: Sequence[bytes | None]
    hashes: Hashes
    """murmur2 of `key_bytes`, so that a sink of the same key need not hash again."""

    def __len__(self) -> int:
        return self.meta.height

    def changed(self) -> pl.Series:
        """Where the visible row is another than before: new, gone, or of other values."""
        pairs = [(a, self.new[a.name]) for a in self.old if a.name not in self.columns]
        differs = reduce(or_, (_differ(a, b) for a, b in pairs))
        # A group that comes and goes within one step was never visible, whatever its states hold.
        return (self.had != self.has) | (differs & self.has)

    def zset(self) -> Batch:
        """The same as a Z-set: old rows leave, then new rows come."""
        changed = self.changed()
        gone, come = changed & self.had, changed & self.has
        minus, plus = pl.lit(-1, pl.Int64).alias(WEIGHT), pl.lit(1, pl.Int64).alias(WEIGHT)
        return Batch(
            pl.concat([chosen(self.old, gone), chosen(self.new, come)], rechunk=True),
            pl.concat(
                [chosen(self.meta, gone).with_columns(minus), chosen(self.meta, come).with_columns(plus)], rechunk=True
            ),
        )


def _differ(a: pl.Series, b: pl.Series) -> pl.Series:
    """Row by row; null is like null, and NaN like NaN."""
    # A comparison that knows of nulls goes through the query engine, which costs more than the comparison.
    return a.ne_missing(b) if a.null_count() or b.null_count() else a != b


def chosen(frame: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """The rows where the mask is true; null is false."""
    # A frame's own filter goes through the query engine, a column's does not.
    return pl.DataFrame([column.filter(mask) for column in frame.get_columns()])


def selected(frame: pl.DataFrame, exprs: Iterable[pl.Expr | pl.Series]) -> pl.DataFrame:
    """The values of expressions, and nothing else.

    >>> selected(pl.DataFrame({"a": [1, 2]}), [pl.col("a") + 1, (-pl.col("a")).alias("b")]).rows()
    [(2, -1), (3, -2)]
    """
    # Polars' threads evaluate expressions side by side; on a busy machine a few rows wait longer for them than they take.
    return frame.select_seq(exprs) if frame.height <= FEW else frame.select(exprs)


def extended(frame: pl.DataFrame, exprs: Iterable[pl.Expr | pl.Series]) -> pl.DataFrame:
    """The columns, and the values of expressions; of the same name, these count.

    >>> extended(pl.DataFrame({"a": [1, 2]}), [pl.col("a") + 1, (-pl.col("a")).alias("b")]).rows()
    [(2, -1), (3, -2)]
    """
    return frame.with_columns_seq(exprs) if frame.height <= FEW else frame.with_columns(exprs)


def only(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """These columns, in this order.

    >>> only(pl.DataFrame({"a": [1], "b": [2], "c": [3]}), ["c", "a"]).rows()
    [(3, 1)]
    """
    # A frame's own select goes through the query engine, which costs five times as much as this.
    return pl.DataFrame([frame.get_column(name) for name in names])


def matched(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: Sequence[str],
    *,
    how: Literal["left", "inner", "anti"] = "left",
    suffix: str = "_right",
) -> pl.DataFrame:
    """Polars' join on these columns, in the order of the left rows. Null is equal to null, and NaN to NaN.

    >>> rows = pl.DataFrame({"x": [float("nan")]})
    >>> matched(rows, rows.with_row_index(), ["x"])["index"].to_list()
    [0]
    """
    # One column that is sorted on both sides, as one row always is, Polars merges, and then no NaN is equal to another.
    if alone := len(on) == 1 and left.schema[on[0]].is_float():
        left, right = (frame.with_columns(pl.lit(value=True).alias(_ALSO)) for frame in (left, right))
        on = [*on, _ALSO]
    found = left.join(right, on=on, how=how, nulls_equal=True, maintain_order="left", suffix=suffix)
    return found.drop(_ALSO) if alone else found


def present(values: Sequence[bytes | None], there: pl.Series) -> list[bytes | None]:
    """The values, with None where there is nothing.

    >>> present([b"a", b"b"], pl.Series([True, False]))
    [b'a', None]
    """
    # A series' own iterator costs several times as much as a list's.
    return [*values] if there.all() else [v if t else None for v, t in zip(values, there.to_list(), strict=True)]


def nulls(dtype: pl.DataType, rows: int) -> pl.Series:
    """Nothing, for all rows."""
    return pl.Series([None], dtype=dtype).new_from_index(0, rows)


def everywhere(value: bool, rows: int) -> pl.Series:
    """The same for all rows."""
    return pl.Series([value]).new_from_index(0, rows)


def concatenated(batches: Sequence[Batch], *, weighted: bool) -> Batch:
    """All rows, the first batch's first. With `weighted`, those of append-only batches weigh +1."""
    if len(batches) == 1 and not weighted:
        return batches[0]
    come = pl.lit(1, pl.Int64).alias(WEIGHT)
    metas = [b.meta.with_columns(come) if weighted and WEIGHT not in b.meta.columns else b.meta for b in batches]
    if len(batches) == 1:
        return Batch(batches[0].rows, metas[0])
    # What one of them lacks is needed by nobody behind them.
    shared = [c for c in batches[0].rows.columns if all(c in b.rows.columns for b in batches)]
    rows = pl.concat([b.rows.select(shared) for b in batches], rechunk=True)
    return Batch(rows, pl.concat(metas, how="diagonal", rechunk=True))
