"""All values of each group, in order, with their counts: min and max need them if the input has retractions.

    key    shard · table · group · value        the best value first: for max, the value's bytes are complemented
    value  the value, and the number of rows that have it

No encoding of a value is a prefix of another. So complements sort exactly in the opposite order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_values, encode_key, encode_keys, encode_values, prefix_end
from falkirk.stream.aggregates.bound import new
from falkirk.stream.aggregates.builtin import BoundExtreme
from falkirk.stream.dataflow.batch import WEIGHT
from falkirk.stream.dataflow.circuit import State

NEVER_ADDED = "a function of a grouped result must give the same rows for the same row, whenever it is called"
"""The hint for rows that are retracted, but were never added."""
_COMPLEMENT = bytes(range(255, -1, -1))


def check_counts(counts: pl.Series, counted: pl.DataFrame, where: str) -> None:
    """Checks that nothing is retracted more often than it was added:  Σ weights ≥ 0.  Raises UserCodeError with the first row
    of `counted` with a negative count; it has one row per count."""
    if counts.len() and counts.min() < 0:  # type: ignore[operator]
        raise UserCodeError(
            f"a row of {counted.row((counts < 0).arg_true()[0], named=True)} is retracted, but was never added",
            where=where,
            hint=NEVER_ADDED,
        )


class Multiset:
    """The values of one aggregate."""

    def __init__(self, bound: BoundExtreme, columns: tuple[str, ...], table: int, where: str) -> None:
        self.bound, self.columns, self.table = bound, list(columns), table
        self.where = f"{bound.name} of {where}"
        self.schema = pl.Schema({"value": bound.dtype, "rows": pl.Int64()})

    def best(
        self,
        state: State,
        frame: pl.DataFrame,
        keys: pl.DataFrame,
        shards: npt.NDArray[np.uint16],
        before: pl.DataFrame,
    ) -> pl.Series:
        """The best value of each group after this step's rows, as a partial. Writes the counts.

        The best value before remains, unless its last row was retracted. Then the best added value takes its place, if it is
        better than all remaining values can be. Only otherwise this reads the table.
        """
        name = self.bound.name
        groups = keys.with_row_index("group")
        changes = (
            frame.select(*self.columns, value=self.bound.argument(), weight=WEIGHT)
            .filter(pl.col("value").is_not_null())
            .group_by(*self.columns, "value", maintain_order=True)
            .agg(pl.col("weight").sum())
            .filter(pl.col("weight") != 0)
            .join(groups, on=self.columns, how="left", nulls_equal=True, maintain_order="left")
        )
        prefixes = encode_keys(self.table, shards, keys.get_columns())
        left = self._count(state, changes, prefixes)
        came = changes.filter(left > 0).group_by("group", maintain_order=True).agg(self._best("value").alias("came"))
        gone = changes.filter(left == 0).select("group", "value").with_columns(gone=True)
        table = (
            groups.select("group", was=before[f"{name}.best"])
            .join(came, on="group", how="left", maintain_order="left")
            .join(gone, left_on=["group", "was"], right_on=["group", "value"], how="left", maintain_order="left")
            .with_columns(best=self.bound.better("was", "came"))
        )
        # The best value before is gone. An added value takes its place only if it is better than that value was.
        unsure = table["gone"].fill_null(False) & (table["came"].is_null() | table["best"].ne_missing(table["came"]))
        best = table["best"].to_list()
        for i in unsure.arg_true().to_list():
            best[i] = self._first(state, prefixes[i])
        return pl.Series(new(name, "best"), best, dtype=self.bound.dtype)

    def _count(self, state: State, changes: pl.DataFrame, prefixes: list[bytes]) -> pl.Series:
        full = [prefixes[g] + tail for g, tail in zip(changes["group"], self._tails(changes["value"]), strict=True)]
        found = [v or None for v in state.get(full)]
        known = decode_values(self.schema, [v for v in found if v is not None])["rows"].to_list()
        counts = iter(known)
        had = pl.Series([0 if v is None else next(counts) for v in found], dtype=pl.Int64)
        rows = had + changes["weight"]
        check_counts(rows, changes.select(*self.columns, "value"), self.where)
        values = encode_values(self.schema, changes.select("value", rows=rows))
        state.put(full, [v if n else None for v, n in zip(values, rows, strict=True)])
        return rows

    def _tails(self, values: pl.Series) -> list[bytes]:
        """The last part of keys: the values' bytes."""
        if values.dtype.is_float() and self.bound.greatest:
            # NaN sorts last among floats, but must never be a maximum. As null it sorts below all values, so it comes last.
            values = values.fill_nan(None)
        head = len(encode_key(self.table, 0, []))
        tails = [key[head:] for key in encode_keys(self.table, np.zeros(len(values), np.uint16), [values])]
        return [tail.translate(_COMPLEMENT) for tail in tails] if self.bound.greatest else tails

    def _first(self, state: State, prefix: bytes) -> Any:
        for _, value in state.scan(prefix, prefix_end(prefix)):
            return decode_values(self.schema, [value])["value"][0]
        return None

    def _best(self, column: str) -> pl.Expr:
        return pl.col(column).max() if self.bound.greatest else pl.col(column).min()
