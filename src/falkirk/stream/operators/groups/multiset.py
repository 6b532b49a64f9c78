"""All values of each group, in order, with their counts: the table of each aggregate that needs every value.

    key    shard · table · group · value        the best value first: for max and last, the value's bytes are complemented
    value  the value, if it is read back, and the number of rows that have it

No encoding of a value is a prefix of another. So complements sort exactly in the opposite order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_values, encode_columns, encode_keys, encode_values, prefix_end
from falkirk.state.store import State
from falkirk.stream.aggregates.bound import NEVER_ADDED, new
from falkirk.stream.aggregates.values import Counted, OfValues
from falkirk.stream.dataflow.batch import WEIGHT, matched, present
from falkirk.stream.dataflow.operator import RESERVED
from falkirk.stream.definition.frames import frame_of

_VALUE, _ROWS, _WEIGHT, _GROUP = (f"{RESERVED}.{name}" for name in ("value.", "rows", "weight", "group"))
"""Columns beside those of the group, which may have any other name."""


def check_counts(counts: pl.Series, counted: pl.DataFrame, where: str) -> None:
    """Checks that nothing is retracted more often than it was added:  Σ weights ≥ 0.  Raises UserCodeError with the first row
    of `counted` with a negative count; it has one row per count."""
    if counts.len() and counts.min() < 0:  # type: ignore[operator]
        raise UserCodeError(
            f"a row of {counted.row((counts < 0).arg_true()[0], named=True)} is retracted, but was never added",
            where=where,
            hint=NEVER_ADDED,
        )


def counts_in(found: Sequence[bytes | None], schema: pl.Schema, column: str) -> pl.Series:
    """The counts in stored values of this schema: 0 where nothing is stored.

    >>> schema = pl.Schema({"rows": pl.Int64()})
    >>> (three,) = encode_values(schema, pl.DataFrame({"rows": [3]}))
    >>> counts_in([None, three], schema, "rows").to_list()
    [0, 3]
    """
    known = iter(decode_values(schema, [v for v in found if v is not None])[column].to_list())
    return pl.Series([0 if v is None else next(known) for v in found], dtype=pl.Int64)


class Multiset:
    """The values of one aggregate."""

    def __init__(
        self,
        bound: OfValues,
        columns: Sequence[str],
        in_state: Iterable[str],
        table: int,
        where: str,
        *,
        weighted: bool,
    ) -> None:
        """`in_state`: the columns of the group as they follow each other in keys of state."""
        self.bound, self.columns, self.in_state, self.table = bound, list(columns), list(in_state), table
        self.where = f"{bound.name} of {where}"
        self.value = pl.Schema(bound.valued)
        self.stored = list(bound.valued) if bound.restored else []
        self.schema = pl.Schema({**{c: self.value[c] for c in self.stored}, _ROWS: pl.Int64()})
        self.names = [f"{_VALUE}{c}" for c in self.value]
        self.reading = [e.alias(name) for name, e in zip(self.names, bound.value(), strict=True)]
        self.weight = (pl.col(WEIGHT) if weighted else pl.lit(1, pl.Int64)).alias(_WEIGHT)

    def partials(
        self,
        state: State,
        frame: pl.DataFrame,
        keys: pl.DataFrame,
        shards: npt.NDArray[np.uint16],
        before: pl.DataFrame,
    ) -> list[pl.Series]:
        """The aggregate's partials after this step's rows, one row per group. Writes the counts."""
        changes = (
            frame.select(*self.columns, *self.reading, self.weight)
            .filter(pl.col(self.names[0]).is_not_null())
            .group_by(*self.columns, *self.names, maintain_order=True)
            .agg(pl.col(_WEIGHT).sum())
            .filter(pl.col(_WEIGHT) != 0)
            .pipe(matched, keys.with_row_index(_GROUP), self.columns)
        )
        prefixes = encode_keys(self.table, shards, [keys[c] for c in self.in_state])
        values = changes.select(pl.col(n).alias(c) for n, c in zip(self.names, self.value, strict=True))
        order = self._order(values)
        groups = changes[_GROUP].to_list()
        had = self._count(state, [prefixes[g] + tail for g, tail in zip(groups, order, strict=True)], changes)
        counted = Counted(
            group=changes[_GROUP], values=values, order=order, before=had, after=had + changes[_WEIGHT],
            order_of=self._order, first=lambda groups: self._first(state, [prefixes[g] for g in groups]),
        )  # fmt: skip
        return [
            column.alias(new(self.bound.name, part)) for part, column in self.bound.of_values(counted, before).items()
        ]

    def _count(self, state: State, full: Sequence[bytes], changes: pl.DataFrame) -> pl.Series:
        """Changes the counts of these values; returns the counts before."""
        had = counts_in(state.get(full), self.schema, _ROWS)
        rows = had + changes[_WEIGHT]
        shown = [pl.col(n).alias(f"{self.bound.name}.{c}") for n, c in zip(self.names, self.value, strict=True)]
        check_counts(rows, changes.select(*self.columns, *shown), self.where)
        stored = pl.DataFrame([*(changes[f"{_VALUE}{c}"].alias(c) for c in self.stored), rows.alias(_ROWS)])
        state.put(full, present(encode_values(self.schema, stored), rows != 0))
        return had

    def _order(self, values: pl.DataFrame) -> list[bytes]:
        """The last part of keys: the values' bytes."""
        columns = values.get_columns()
        if columns[0].dtype.is_float() and self.bound.descending:
            # NaN sorts last among floats, but must never be a maximum. As null it sorts below all values, so it comes last.
            columns[0] = columns[0].fill_nan(None)
        return encode_columns(columns, [self.bound.descending] * len(columns))

    def _first(self, state: State, prefixes: Sequence[bytes]) -> pl.DataFrame:
        firsts = [next((v for _, v in state.scan(p, prefix_end(p))), None) for p in prefixes]
        nothing = frame_of([{}], self.schema)
        (none,) = encode_values(self.schema, nothing)
        return decode_values(self.schema, [none if v is None else v for v in firsts]).select(self.stored)
