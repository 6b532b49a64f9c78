"""Rows for a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.stream.dataflow.operator import Runner, TaskContext
from falkirk.stream.definition.outlets import TablePlan
from falkirk.stream.operators.sinks.keyed import YEARS, KeyedRunner, KeyedSink, Unfit, null_keys, out_of_years, within

LONGEST_KEY = 2_500
"""Bytes of text and binary in a key. PostgreSQL's index holds up to 2,704 in all."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PostgresSink(KeyedSink):
    """Rows in a table."""

    kind: ClassVar[str] = "sink_postgres"
    plan: TablePlan

    @property
    def exact_words(self) -> str:
        return f"{self.plan.database}, {self.plan.table}, {', '.join(self.plan.key)}"

    @property
    def written(self) -> str:
        by = f", by {', '.join(self.plan.key)}" if self.plan.key else ""
        return f"rows {self.id}: table {self.plan.table} of database {self.plan.database}{by}"

    def runner(self, task: TaskContext) -> Runner:
        return PostgresRunner(self, task)


class PostgresRunner(KeyedRunner):
    """Writes one sink for one task."""

    def unfit(self, rows: pl.DataFrame) -> Iterator[Unfit]:
        """Rows with a null in the key, with a value that PostgreSQL does not hold, or with too long a key."""
        key = self.sink.plan.key
        yield from null_keys(rows, key)
        for column in rows:
            for found, what in ((with_nul, "text with the character U+0000"), (out_of_years, YEARS)):
                mask = within(column, found)
                if mask is not None and mask.any():
                    why = f"column {column.name!r} has a value that PostgreSQL does not hold: {what}"
                    yield Unfit(mask, why, column.name in key)
        sized = [rows[name] for name in key if rows.schema[name] in (pl.String(), pl.Binary())]
        if sized:
            lengths = [c.str.len_bytes() if c.dtype == pl.String() else c.bin.size() for c in sized]
            long = sum((length.fill_null(0).cast(pl.Int64) for length in lengths), pl.Series([0])) > LONGEST_KEY
            if long.any():
                why = f"its key has more than {LONGEST_KEY:,} bytes, and PostgreSQL's index does not hold that"
                yield Unfit(long, why, True)


def with_nul(column: pl.Series) -> pl.Series | None:
    """Which texts have the character U+0000; None if it has another type.

    >>> with_nul(pl.Series(["a", "a\\0b", None])).to_list(), with_nul(pl.Series([1]))
    ([False, True, False], None)
    """
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return None
    return column.cast(pl.String).str.contains("\0", literal=True).fill_null(value=False)
