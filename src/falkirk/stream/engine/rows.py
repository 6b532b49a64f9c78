"""Operators without state: f(a ++ b) = f(a) ++ f(b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from falkirk.errors import UserCodeError
from falkirk.stream import operators as op
from falkirk.stream.blame import MEND, raised
from falkirk.stream.engine.batch import ORIGIN, TS, WEIGHT, Batch
from falkirk.stream.engine.catching import Catching, Misfit, fitting, sifted, where_of
from falkirk.stream.engine.step import StepRun
from falkirk.stream.expressions import native, words

_T = TypeVar("_T")


ROUTE = "fix the row, or list the topic in the sink's topic=[…]; to go on without such rows: on_error=fk.DeadLetter()"

Rows = Callable[[StepRun, Batch], Batch]
"""An operator, ready to run."""


def filtering(operator: op.Filter) -> Rows:
    """Rows for which all predicates are true."""
    all_true = pl.all_horizontal(native(operator.predicates)).alias("all")

    def run(run: StepRun, batch: Batch) -> Batch:
        found, batch = _expressed(operator, run, batch, lambda rows: rows.select(all_true))
        mask = found.to_series()
        return batch if mask.all(ignore_nulls=False) else batch.filter(mask)

    return run


def selecting(operator: op.Select) -> Rows:
    """New columns only."""
    exprs = native(operator.exprs)
    return _columns(operator, lambda rows: rows.select(exprs))


def extending(operator: op.WithColumns) -> Rows:
    """New columns beside the old."""
    exprs = native(operator.exprs)
    return _columns(operator, lambda rows: rows.with_columns(exprs))


def routing(route: op.Route) -> Rows:
    """Rows that name one of the sink's topics."""
    topics = list(route.topics)

    def run(run: StepRun, batch: Batch) -> Batch:
        named = batch.rows[route.by]
        known = named.is_in(topics).fill_null(value=False)
        catching = Catching(route, run, batch)
        for i in (~known).arg_true():
            catching.row(
                i, Misfit(f"column {route.by!r} names topic {named[i]!r}, and the sink has {', '.join(topics)}", ROUTE)
            )
        catching.close(len(batch))
        return batch if known.all() else batch.filter(known)

    return run


def _columns(operator: op.Operator, evaluate: Callable[[pl.DataFrame], pl.DataFrame]) -> Rows:
    def run(run: StepRun, batch: Batch) -> Batch:
        rows, batch = _expressed(operator, run, batch, evaluate)
        return Batch(rows, batch.meta)

    return run


def _expressed(
    operator: op.Operator, run: StepRun, batch: Batch, evaluate: Callable[[pl.DataFrame], pl.DataFrame]
) -> tuple[pl.DataFrame, Batch]:
    """What expressions give, a row for each row, and the rows that it is of. Raises UserCodeError."""
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


def evaluated(operator: op.Operator, run: StepRun, batch: Batch, evaluate: Callable[[pl.DataFrame], _T]) -> _T:
    """What a function of the whole frame gives. Raises UserCodeError with the address of the row that it fails on."""
    try:
        return evaluate(batch.rows)
    except Misfit as error:
        where = where_of(operator, run, batch, range(len(batch)))
        raise UserCodeError(error.what, where=where, hint=error.hint) from error
    except Exception as error:
        where = where_of(operator, run, batch, _culprits(evaluate, batch.rows))
        raise UserCodeError(raised(f"{operator.kind} {operator.id!r}", error), where=where, hint=MEND) from error


def concatenated(batches: Sequence[Batch], *, weighted: bool) -> Batch:
    """All rows, the first batch's first. With `weighted`, those of append-only batches weigh +1."""
    if len(batches) == 1 and not weighted:
        return batches[0]
    come = pl.lit(1, pl.Int8).alias(WEIGHT)
    metas = [b.meta.with_columns(come) if weighted and WEIGHT not in b.meta.columns else b.meta for b in batches]
    if len(batches) == 1:
        return Batch(batches[0].rows, metas[0])
    # What one of them lacks is needed by nobody behind them.
    shared = [c for c in batches[0].rows.columns if all(c in b.rows.columns for b in batches)]
    rows = pl.concat([b.rows.select(shared) for b in batches], rechunk=True)
    return Batch(rows, pl.concat(metas, how="diagonal", rechunk=True))


def mapped(operator: op.Map, run: StepRun, batch: Batch) -> Batch:
    """One row of a user's function for each row."""
    catching = Catching(operator, run, batch)
    function = operator.function
    made: list[Any] = []
    for i, row in enumerate(batch.rows.iter_rows(named=True)):
        try:
            made.append(function(row))
        except Exception as error:  # noqa: BLE001
            catching.row(i, error)
    every = range(len(batch))
    return _made(catching, batch, made, [i for i in every if i not in catching.failed] if catching.failed else every)


def flat_mapped(operator: op.FlatMap, run: StepRun, batch: Batch) -> Batch:
    """Any number of rows of a user's function for each row."""
    catching = Catching(operator, run, batch)
    made: list[Any] = []
    origins: list[int] = []
    for i, row in enumerate(batch.rows.iter_rows(named=True)):
        try:
            # Generators run while they are read: that belongs to the call too.
            several = _listed(operator.function(row))
        except Exception as error:  # noqa: BLE001
            catching.row(i, error)
        else:
            made += several
            origins += [i] * len(several)
    return _made(catching, batch, made, origins)


def _made(catching: Catching, batch: Batch, made: Sequence[Any], origins: Sequence[int]) -> Batch:
    frame, kept = fitting(catching, made, origins)
    catching.close(len(batch))
    return Batch(frame, batch.meta if isinstance(kept, range) else batch.meta[list(kept)])


def batch_mapped(operator: op.MapBatches, run: StepRun, batch: Batch) -> Batch:
    """A user's function of the whole frame: of rows that come, and of rows that are taken back, apart."""
    if WEIGHT not in batch.meta.columns:
        return _batch_mapped(operator, run, batch)
    signs = [batch.filter(batch.meta[WEIGHT] < 0), batch.filter(batch.meta[WEIGHT] > 0)]
    return concatenated([_batch_mapped(operator, run, part) for part in signs if len(part)], weighted=True)


def _batch_mapped(operator: op.MapBatches, run: StepRun, batch: Batch) -> Batch:
    def function(frame: pl.DataFrame) -> pl.DataFrame:
        rows: Any = operator.function(frame)
        if not isinstance(rows, pl.DataFrame) or rows.schema != operator.schema:
            given = f"a frame of {words(rows.schema)}" if isinstance(rows, pl.DataFrame) else type(rows).__name__
            raise Misfit(
                f"the function gave {given}, not a Polars frame of {words(operator.schema)}",
                "return these columns in this order, or name others with returns={…}",
            )
        return rows

    catching = Catching(operator, run, batch)
    if not catching.goes_on:
        return _with_meta(evaluated(operator, run, batch, function), batch.meta)
    pieces = sifted(catching, batch.rows, function)
    catching.close(len(batch))
    nothing = Batch(operator.schema.to_frame(), batch.meta[:0])
    made = [_with_meta(rows, batch.meta[piece.start : piece.stop]) for piece, rows in pieces]
    return concatenated(made, weighted=False) if made else nothing


def _with_meta(rows: pl.DataFrame, meta: pl.DataFrame) -> Batch:
    """The rows that came of some: each has what the one in its place had; or all have the greatest timestamp, and it is not
    known which record each is of, unless there was one alone."""
    if rows.height == meta.height:
        return Batch(rows, meta)
    last = meta[-1:].with_columns(pl.lit(meta[TS].max()).alias(TS))
    if ORIGIN in meta.columns and meta.height > 1:
        last = last.with_columns(pl.lit(None, pl.UInt32()).alias(ORIGIN))
    return Batch(rows, last[[0] * rows.height])


def _culprits(function: Callable[[pl.DataFrame], Any], rows: pl.DataFrame) -> Sequence[int]:
    """The rows that make the function raise: one, if one alone does; all, if only together they do."""
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
    except Exception:  # noqa: BLE001
        return True
    return False


def _listed(rows: Any) -> list[Any]:
    if isinstance(rows, Mapping):
        raise TypeError("flat_map gives an iterable of dicts, not one dict")
    return list(rows)
