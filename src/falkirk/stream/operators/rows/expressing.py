"""Row-wise operators: expressions and users' functions over the rows of a batch, and the rows for which they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import polars as pl

from falkirk.blame import FAILURES, FIX, raised
from falkirk.errors import UserCodeError
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.catching import Catching, Misfit, fitting, sifted, where_of
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.step import StepRun

_T = TypeVar("_T")

Rows = Callable[[StepRun, Batch], Batch]


def columns(operator: Operator, evaluate: Callable[[pl.DataFrame], pl.DataFrame]) -> Rows:
    def run(run: StepRun, batch: Batch) -> Batch:
        rows, batch = expressed(operator, run, batch, evaluate)
        return Batch(rows, batch.meta)

    return run


def expressed(
    operator: Operator, run: StepRun, batch: Batch, evaluate: Callable[[pl.DataFrame], pl.DataFrame]
) -> tuple[pl.DataFrame, Batch]:
    """The results of expressions, one row for each row, and the input rows that did not fail. Raises UserCodeError."""
    catching = Catching(operator, run, batch)
    if not catching.goes_on:
        return evaluated(operator, run, batch, evaluate), batch
    pieces = sifted(catching, batch.rows, evaluate)
    catching.close(len(batch))
    if len(pieces) == 1 and not catching.failed:
        return pieces[0][1], batch
    if not pieces:
        return evaluate(batch.rows[:0]).clear(), batch.gather(pl.Series([], dtype=pl.UInt32))
    kept = pl.Series([i for piece, _ in pieces for i in piece], dtype=pl.UInt32)
    return pl.concat([rows for _, rows in pieces], rechunk=True), batch.gather(kept)


def evaluated(operator: Operator, run: StepRun, batch: Batch, evaluate: Callable[[pl.DataFrame], _T]) -> _T:
    """The result of a function of the whole frame. Raises UserCodeError with the address of the row that it fails on."""
    try:
        return evaluate(batch.rows)
    except Misfit as error:
        where = where_of(operator, run, batch, range(len(batch)))
        raise UserCodeError(error.what, where=where, hint=error.hint) from error
    except FAILURES as error:
        where = where_of(operator, run, batch, _culprits(evaluate, batch.rows))
        raise UserCodeError(raised(f"{operator.kind} {operator.id!r}", error), where=where, hint=FIX) from error


def made_batch(catching: Catching, batch: Batch, made: Sequence[Any], origins: Sequence[int]) -> Batch:
    """The rows that a user's function made. Each comes from the input row with the same place in `origins`."""
    frame, kept = fitting(catching, made, origins)
    catching.close(len(batch))
    return Batch(frame, batch.meta if isinstance(kept, range) else batch.meta[list(kept)])


def _culprits(function: Callable[[pl.DataFrame], Any], rows: pl.DataFrame) -> Sequence[int]:
    """The rows that make the function raise: one row, if it fails alone; all rows, if they fail only together."""
    low, high = 0, rows.height
    while high - low > 1:
        middle = (low + high) // 2
        if _raises(function, rows[low:middle]):
            high = middle
        elif _raises(function, rows[middle:high]):
            low = middle
        else:
            break
    return range(low, high)


def _raises(function: Callable[[pl.DataFrame], Any], rows: pl.DataFrame) -> bool:
    try:
        function(rows)
    except FAILURES:
        return True
    return False
