"""Rows for a table of Delta Lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import ClassVar

import polars as pl

from falkirk.durations import duration_text
from falkirk.stream.dataflow.operator import Runner, TaskContext
from falkirk.stream.definition.outlets import DeltaPlan
from falkirk.stream.operators.sinks.keyed import YEARS, KeyedRunner, KeyedSink, Unfit, null_keys, out_of_years


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DeltaSink(KeyedSink):
    """Rows in a table of Delta Lake."""

    kind: ClassVar[str] = "sink_delta"
    plan: DeltaPlan

    @property
    def exact_words(self) -> str:
        return f"{self.plan.url}, {', '.join(self.plan.key)}"

    @property
    def written(self) -> str:
        by = f", by {', '.join(self.plan.key)}" if self.plan.key else ""
        return f"rows {self.id}: Delta table in {self.plan.url}{by}, every {duration_text(self.plan.every)}"

    def runner(self, task: TaskContext) -> Runner:
        return DeltaRunner(self, task)


class DeltaRunner(KeyedRunner):
    """Writes one sink for one task."""

    def unfit(self, rows: pl.DataFrame) -> Iterator[Unfit]:
        """Rows with a null in the key, or with a time that readers of the table do not know."""
        key = self.sink.plan.key
        yield from null_keys(rows, key)
        for column in rows:
            mask = late_or_early(column)
            if mask is not None and mask.any():
                yield Unfit(mask, f"column {column.name!r} has {YEARS}", column.name in key)


def late_or_early(column: pl.Series) -> pl.Series | None:
    """Which rows have a date or time outside of the years 1 to 9999, within lists and structs, too. None: the type has none.

    >>> from datetime import date
    >>> column = pl.Series([[date(1, 1, 1)], None, []])
    >>> late_or_early(column).to_list(), late_or_early(pl.Series([1]))
    ([False, False, False], None)
    """
    match column.dtype:
        case pl.Date() | pl.Datetime():
            return out_of_years(column)
        case pl.Array():
            return late_or_early(column.arr.to_list())
        case pl.List():
            flat = pl.DataFrame({"row": range(len(column)), "value": column}).explode("value")
            found = late_or_early(flat["value"])
            rows = pl.Series("row", range(len(column)), dtype=flat.schema["row"])
            return None if found is None else rows.is_in(flat["row"].filter(found).implode())
        case pl.Struct():
            masks = [mask for part in column.struct.unnest() if (mask := late_or_early(part)) is not None]
            return reduce(or_, masks) if masks else None
    return None
