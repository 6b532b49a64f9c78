"""Rows for a table of PostgreSQL. A publisher writes them there after the step has committed (`falkirk.checkpoint.outlets`).

    no key   each row is added
    key      each row replaces the row of its key; of rows that change, a step has one row for each key: the row after it, or,
             marked as gone, one that it removed

A row that no table can hold fails here, in its step. Later it would hold up all rows that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import ClassVar

import polars as pl

from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.catching import Catching, Misfit
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.outlets import GONE, TablePlan
from falkirk.stream.operators.sinks.outlet import OutletLog, OutletSink
from falkirk.stream.operators.sinks.sink_changes import final_rows

LONGEST_KEY = 2_500
"""Bytes of text and binary in a key. PostgreSQL's index holds up to 2,704 in all."""
HINT = (
    "leave such rows out, or change them, for instance with fill_null; to continue without such rows: "
    "on_error=fk.DeadLetter()"
)
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PostgresSink(OutletSink):
    """Rows in a table."""

    kind: ClassVar[str] = "sink_postgres"
    log: ClassVar[str] = "rows"
    can_refuse: ClassVar[bool] = True
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


class PostgresRunner(Runner):
    """Writes one sink for one task."""

    def __init__(self, sink: PostgresSink, task: TaskContext) -> None:
        self.sink, self._log = sink, OutletLog(sink, task)

    def step(self, run: StepRun, *inputs: Flowing | None) -> None:
        """Emit the rows of this step."""
        sink = self.sink
        batch = joined(inputs, weighted=sink.changes)
        if batch is None:
            return
        if sink.changes:
            final = final_rows(batch, sink.plan.key, sink.where)
            weights = pl.when(final.here).then(1).otherwise(-1).cast(pl.Int64).alias(WEIGHT)
            batch = Batch(final.rows, final.times.to_frame().with_columns(weights))
        rows, gone = batch.rows.select(list(sink.schema)), pl.Series(GONE, [False]).new_from_index(0, len(batch))
        if sink.changes:
            gone = (batch.meta[WEIGHT] < 0).alias(GONE)
        kept = None
        if found := list(self._misfits(rows)):
            kept, gone = self._failed(run, Batch(rows, batch.meta), found, gone)
        frame = rows.hstack([batch.meta[TS], *([gone] if sink.plan.key else [])])
        frame = frame if kept is None else frame.filter(kept)
        if frame.height:
            self._log.write(run, frame)

    def _failed(
        self, run: StepRun, batch: Batch, found: list[tuple[pl.Series, str, bool]], gone: pl.Series
    ) -> tuple[pl.Series, pl.Series]:
        """Let rows fail. Returns the rows that are left, and which of them are gone: in a stream that changes, a failed row
        has replaced another, which must not stay."""
        keyless = reduce(or_, [mask for mask, _, of_key in found if of_key], gone & False)
        values = reduce(or_, [mask for mask, _, of_key in found if not of_key], gone & False) & ~keyless & ~gone
        catching = Catching(self.sink, run, batch)
        for mask, why, of_key in found:
            for i in (mask if of_key else mask & values).arg_true():
                catching.row(i, Misfit(why, HINT))
        catching.close(len(batch))
        if not self.sink.changes:
            return ~(keyless | values), gone
        return ~keyless, (gone | values).alias(GONE)

    def _misfits(self, rows: pl.DataFrame) -> Iterator[tuple[pl.Series, str, bool]]:
        """Rows that no table holds: a mask, the reason, and whether the key is what does not fit."""
        key = self.sink.plan.key
        for column in rows:
            name, of_key = column.name, column.name in key
            if of_key and column.null_count():
                yield column.is_null(), f"its key column {name!r} is null, and a primary key holds no null", True
            mask = unfit(column)
            if mask is not None and mask.any():
                yield mask, f"column {name!r} has a value that PostgreSQL does not hold: {_WHY[_kind(column)]}", of_key
        sized = [rows[name] for name in key if rows.schema[name] in (pl.String(), pl.Binary())]
        if sized:
            lengths = [c.str.len_bytes() if c.dtype == pl.String() else c.bin.size() for c in sized]
            long = sum((length.fill_null(0).cast(pl.Int64) for length in lengths), pl.Series([0])) > LONGEST_KEY
            if long.any():
                yield (
                    long,
                    f"its key has more than {LONGEST_KEY:,} bytes, and PostgreSQL's index does not hold that",
                    True,
                )


_WHY = {"text": "text with the character U+0000", "time": "a time outside of the years 1 to 9999"}


def _kind(column: pl.Series) -> str:
    return "time" if column.dtype in (pl.Date, pl.Datetime) else "text"


def unfit(column: pl.Series) -> pl.Series | None:
    """Which values of a column PostgreSQL does not hold; None if its type has no such values.

    >>> unfit(pl.Series(["a", "a\\0b", None])).to_list(), unfit(pl.Series([1]))
    ([False, True, False], None)
    """
    match column.dtype:
        case pl.String():
            return column.str.contains("\0", literal=True).fill_null(value=False)
        case pl.Date():
            return ~column.is_between(_FIRST.date(), _LAST.date()).fill_null(value=True)
        case pl.Datetime(time_zone=zone):
            first, last = (moment.replace(tzinfo=None if zone is None else UTC) for moment in (_FIRST, _LAST))
            return ~column.is_between(first, last).fill_null(value=True)
        case pl.List() | pl.Array() | pl.Struct():
            return pl.Series([_has_nul(value) for value in column.to_list()], dtype=pl.Boolean)
    return None


def _has_nul(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_has_nul(each) for each in value.values())
        case list():
            return any(_has_nul(each) for each in value)
    return False
