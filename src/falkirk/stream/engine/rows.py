"""Operators without state: f(a ++ b) = f(a) ++ f(b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl

from falkirk.errors import UserCodeError
from falkirk.stream import operators as op
from falkirk.stream.blame import MEND, raised
from falkirk.stream.engine.batch import TS, WEIGHT, Batch
from falkirk.stream.engine.step import StepRun
from falkirk.stream.expressions import native, words
from falkirk.stream.frames import MISFITS, fits, frame_of

_T = TypeVar("_T")


Rows = Callable[[StepRun, Batch], Batch]
"""An operator, ready to run."""


def filtering(operator: op.Filter) -> Rows:
    """Rows for which all predicates are true."""
    all_true = pl.all_horizontal(native(operator.predicates)).alias("all")

    def run(run: StepRun, batch: Batch) -> Batch:
        mask = evaluated(operator, run, batch, lambda rows: rows.select(all_true)).to_series()
        return batch if mask.all(ignore_nulls=False) else batch.filter(mask)

    return run


def selecting(operator: op.Select) -> Rows:
    """New columns only."""
    exprs = native(operator.exprs)
    return lambda run, batch: Batch(evaluated(operator, run, batch, lambda rows: rows.select(exprs)), batch.meta)


def extending(operator: op.WithColumns) -> Rows:
    """New columns beside the old."""
    exprs = native(operator.exprs)
    return lambda run, batch: Batch(evaluated(operator, run, batch, lambda rows: rows.with_columns(exprs)), batch.meta)


def evaluated(operator: op.Operator, run: StepRun, batch: Batch, evaluate: Callable[[pl.DataFrame], _T]) -> _T:
    """What a function of the whole frame gives. Raises UserCodeError with the address of the row that it fails on."""
    try:
        return evaluate(batch.rows)
    except Exception as error:
        raise _blamed(operator, run, batch, _culprits(evaluate, batch.rows), error) from error


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
    made = []
    for i, row in enumerate(batch.rows.iter_rows(named=True)):
        made.append(_called(operator, run, batch, i, operator.function, row))
    return Batch(made_frame(operator, made, lambda i: where_of(operator, run, batch, [i])), batch.meta)


def flat_mapped(operator: op.FlatMap, run: StepRun, batch: Batch) -> Batch:
    """Any number of rows of a user's function for each row."""
    made: list[Any] = []
    origins: list[int] = []
    for i, row in enumerate(batch.rows.iter_rows(named=True)):
        # Generators run while they are read: that belongs to the call too.
        several = _called(operator, run, batch, i, lambda r: _listed(operator.function(r)), row)
        made += several
        origins += [i] * len(several)
    return Batch(
        made_frame(operator, made, lambda i: where_of(operator, run, batch, [origins[i]])), batch.meta[origins]
    )


def batch_mapped(operator: op.MapBatches, run: StepRun, batch: Batch) -> Batch:
    """A user's function of the whole frame: of rows that come, and of rows that are taken back, apart."""
    if WEIGHT not in batch.meta.columns:
        return _batch_mapped(operator, run, batch)
    signs = [batch.filter(batch.meta[WEIGHT] < 0), batch.filter(batch.meta[WEIGHT] > 0)]
    return concatenated([_batch_mapped(operator, run, part) for part in signs if len(part)], weighted=True)


def _batch_mapped(operator: op.MapBatches, run: StepRun, batch: Batch) -> Batch:
    rows: Any = evaluated(operator, run, batch, operator.function)
    if not isinstance(rows, pl.DataFrame) or rows.schema != operator.schema:
        given = f"a frame of {words(rows.schema)}" if isinstance(rows, pl.DataFrame) else type(rows).__name__
        raise UserCodeError(
            f"the function gave {given}, not a Polars frame of {words(operator.schema)}",
            where=where_of(operator, run, batch, range(len(batch))),
            hint="return these columns in this order, or name others with returns={…}",
        )
    if rows.height == len(batch):
        return Batch(rows, batch.meta)
    last = batch.meta[-1:].with_columns(pl.lit(batch.meta[TS].max()).alias(TS))
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


def _called(
    operator: op.Operator,
    run: StepRun,
    batch: Batch,
    i: int,
    function: Callable[[dict[str, Any]], Any],
    row: dict[str, Any],
) -> Any:
    try:
        return function(row)
    except Exception as error:
        raise _blamed(operator, run, batch, [i], error) from error


def made_frame(operator: op.Operator, made: Sequence[Any], where: Callable[[int], str]) -> pl.DataFrame:
    """Dicts as a frame of the operator's schema. Raises UserCodeError with `where(i)` of the one that does not fit."""
    schema = operator.schema
    if all(isinstance(row, Mapping) and not row.keys() - schema.keys() for row in made):
        try:
            return frame_of(made, schema)
        except MISFITS:
            pass
    wrong = next(i for i, row in enumerate(made) if not fits(row, schema))
    raise UserCodeError(
        f"the function gave {made[wrong]!r}, which is no row of {words(schema)}",
        where=where(wrong),
        hint="return dicts with these columns, or name others with returns={…}",
    )


def _blamed(operator: op.Operator, run: StepRun, batch: Batch, rows: Sequence[int], error: Exception) -> UserCodeError:
    return UserCodeError(
        raised(f"{operator.kind} {operator.id!r}", error),
        where=where_of(operator, run, batch, rows),
        hint=MEND,
    )


def where_of(operator: op.Operator, run: StepRun, batch: Batch, rows: Sequence[int]) -> str:
    """For errors: the operator, and where these rows come from, if that is known."""
    span = run.span(batch, rows)
    return f"{operator.where}, {span}" if span else operator.where
