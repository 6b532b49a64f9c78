"""Sinks of tables. A publisher writes their rows there after the step has committed (`falkirk.checkpoint.outlets`).

    no key   each row is added
    key      each row replaces the row of its key; of rows that change, a step has one row for each key: the row after it, or,
             marked as gone, one that it removed

A row that no table can hold fails here, in its step. Later it would hold up all rows that follow it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import ClassVar, NamedTuple

import polars as pl

from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.catching import Catching, Misfit
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.outlets import GONE, DeltaPlan, TablePlan
from falkirk.stream.operators.sinks.outlet import OutletLog, OutletSink
from falkirk.stream.operators.sinks.sink_changes import final_rows

HINT = (
    "right before the sink, leave such rows out with filter, or change them with fill_null: a change before an exchange does "
    "not reach rows that have passed it. To continue without such rows: on_error=fk.DeadLetter()"
)
YEARS = "a time outside of the years 1 to 9999"
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001  # in UTC


class Unfit(NamedTuple):
    """Rows that no table holds."""

    mask: pl.Series
    why: str
    of_key: bool
    """Whether the key is what does not fit."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KeyedSink(OutletSink):
    """Rows in a table."""

    log: ClassVar[str] = "rows"
    can_refuse: ClassVar[bool] = True
    plan: TablePlan | DeltaPlan


class KeyedRunner(Runner):
    """Writes one sink for one task."""

    def __init__(self, sink: KeyedSink, task: TaskContext) -> None:
        self.sink, self._log = sink, OutletLog(sink, task)

    @abstractmethod
    def unfit(self, rows: pl.DataFrame) -> Iterator[Unfit]:
        """Rows that the table cannot hold."""

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
        if found := list(self.unfit(rows)):
            kept, gone = self._failed(run, Batch(rows, batch.meta), found, gone)
        frame = rows.hstack([batch.meta[TS], *([gone] if sink.plan.key else [])])
        frame = frame if kept is None else frame.filter(kept)
        if frame.height:
            self._log.write(run, frame)

    def _failed(self, run: StepRun, batch: Batch, found: list[Unfit], gone: pl.Series) -> tuple[pl.Series, pl.Series]:
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


def null_keys(rows: pl.DataFrame, key: tuple[str, ...]) -> Iterator[Unfit]:
    """Rows with a null in their key.

    >>> [(found.mask.to_list(), found.why) for found in null_keys(pl.DataFrame({"id": [1, None]}), ("id",))]
    [([False, True], "its key column 'id' is null, and a primary key holds no null")]
    """
    for name in key:
        if rows[name].null_count():
            yield Unfit(rows[name].is_null(), f"its key column {name!r} is null, and a primary key holds no null", True)


def out_of_years(column: pl.Series) -> pl.Series | None:
    """Which dates or times are outside of the years that databases know; None if it has another type.

    >>> from datetime import date
    >>> out_of_years(pl.Series([date(1, 1, 1), None])).to_list(), out_of_years(pl.Series([1]))
    ([False, False], None)
    """
    if column.dtype == pl.Date():
        return ~column.is_between(_FIRST.date(), _LAST.date()).fill_null(value=True)
    if not isinstance(column.dtype, pl.Datetime):
        return None
    if column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return ~column.is_between(_FIRST, _LAST).fill_null(value=True)


def within(column: pl.Series, found: Callable[[pl.Series], pl.Series | None]) -> pl.Series | None:
    """Which rows have a value that is found, within lists and structs, too; None: the type has none. `found` says so of
    plain values. No values of Python are made: it has fewer years.

    >>> from datetime import date
    >>> column = pl.Series([[date(1, 1, 1)], None, []])
    >>> within(column, out_of_years).to_list(), within(pl.Series([[1]]), out_of_years)
    ([False, False, False], None)
    """
    match column.dtype:
        case pl.Array():
            return within(column.arr.to_list(), found)
        case pl.List():
            flat = pl.DataFrame({"row": range(len(column)), "value": column}).explode("value")
            mask = within(flat["value"], found)
            rows = pl.Series("row", range(len(column)), dtype=flat.schema["row"])
            return None if mask is None else rows.is_in(flat["row"].filter(mask).implode())
        case pl.Struct():
            masks = [mask for part in column.struct.unnest() if (mask := within(part, found)) is not None]
            return reduce(or_, masks) if masks else None
    return found(column)
