"""Rows for a table of Delta Lake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.durations import duration_text
from falkirk.stream.dataflow.operator import Runner, TaskContext
from falkirk.stream.definition.outlets import DeltaPlan
from falkirk.stream.operators.sinks.keyed import YEARS, KeyedRunner, KeyedSink, Unfit, null_keys, out_of_years, within


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
            mask = within(column, out_of_years)
            if mask is not None and mask.any():
                yield Unfit(mask, f"column {column.name!r} has {YEARS}", column.name in key)
