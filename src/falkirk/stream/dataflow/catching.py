"""Rows for which a user's code fails. The app stops, or the step counts them as failures and continues with the others.

A retracted row of a grouped result fails in the same way as when it was added. It does not get another dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import polars as pl
from polars.exceptions import PanicException

from falkirk.blame import FAILURES, FIX, in_brief, raised
from falkirk.errors import UserCodeError
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch
from falkirk.stream.dataflow.failures import Failed, worded
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.frames import flaw, frame_if_all_fit, frame_of, misfits

T = TypeVar("T")

UNKNOWN_TO_PYTHON = (ValueError, OverflowError, PanicException)
"""What Polars raises for a value that it cannot give to Python, such as a time in the year 10000."""
YEARS = "a time in Python is in the years 1 to 9999: leave other rows out with a filter"
AT_ONCE = 512
"""Rows that become dicts together."""


class Misfit(Exception):
    """A user's function returned a wrong value."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def no_row(made: Any, schema: pl.Schema) -> Misfit:
    """The error for a function whose result is not a row of the schema."""
    return Misfit(
        f"the function gave {made!r}, which is not a valid row of {words(schema)}: {flaw(made, schema)}",
        "return dicts with these columns, or name others with returns={…}",
    )


class Catching:
    """The failures of one operator in one step."""

    def __init__(self, operator: Operator, run: StepRun, batch: Batch | None) -> None:
        self.operator, self.run, self.batch = operator, run, batch
        self.goes_on = not run.failures.stops(operator)
        self.failed: dict[int, Failed] = {}

    def row(self, i: int, error: BaseException) -> None:
        """A row of the batch failed. Raises UserCodeError if the app is to stop."""
        batch = self.batch
        assert batch is not None
        if not self.goes_on:
            raise self.stopped(error, where_of(self.operator, self.run, batch, [i])) from error
        if WEIGHT in batch.meta.columns and batch.meta[WEIGHT][i] < 0:
            self.failed.setdefault(i, _TAKEN_BACK)
            return
        origin = batch.meta[ORIGIN][i] if ORIGIN in batch.meta.columns else None
        self.note(i, error, origin, batch.meta[TS][i], lambda: row_of(batch.rows, i))

    def note(
        self, place: int, error: BaseException, origin: int | None, time: int, row: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Something failed, and the app continues. If one place fails twice, the first failure counts."""
        reason = worded(error.what if isinstance(error, Misfit) else in_brief(error))
        known = self.run.failures.known(self.run, origin) is not None
        self.failed.setdefault(place, Failed(place, reason, origin, time, None if known else row()))

    def close(self, given: int) -> None:
        """End the operator's part of the step, with its number of rows. Raises UserCodeError if too many failed."""
        if self.goes_on:
            failed = [f for _, f in sorted(self.failed.items()) if f is not _TAKEN_BACK]
            self.run.failures.take(self.run, self.operator, given, failed)

    def stopped(self, error: BaseException, where: str) -> UserCodeError:
        """The error with which the app stops."""
        if isinstance(error, Misfit):
            return UserCodeError(error.what, where=where, hint=error.hint)
        return UserCodeError(raised(f"{self.operator.kind} {self.operator.id!r}", error), where=where, hint=FIX)


_TAKEN_BACK = Failed(-1, "", None, 0)


def fitting(
    catching: Catching, made: Sequence[Any], origins: Sequence[int], schema: pl.Schema | None = None
) -> tuple[pl.DataFrame, Sequence[int]]:
    """A function's results as a frame of the schema, by default the operator's, and the row of the batch that each result
    comes from. These are the `origins`, if all results fit. If one result of a row does not fit, all results of this row are
    dropped. Raises UserCodeError if the app must stop."""
    schema = catching.operator.schema if schema is None else schema
    if (frame := frame_if_all_fit(made, schema)) is not None:
        return frame, origins
    for i in misfits(made, schema):
        catching.row(origins[i], no_row(made[i], schema))
    kept = [i for i, origin in enumerate(origins) if origin not in catching.failed]
    return frame_of([made[i] for i in kept], schema), [origins[i] for i in kept]


def made_frame(operator: Operator, made: Sequence[Any], wheres: Sequence[Callable[[], str]]) -> pl.DataFrame:
    """Dicts as a frame of the operator's schema. For a dict that does not fit, raises UserCodeError from a Misfit, with the
    dict's place."""
    schema = operator.schema
    if (frame := frame_if_all_fit(made, schema)) is not None:
        return frame
    wrong = misfits(made, schema)[0]
    error = no_row(made[wrong], schema)
    raise UserCodeError(error.what, where=wheres[wrong](), hint=error.hint) from error


def sifted(catching: Catching, rows: pl.DataFrame, function: Callable[[pl.DataFrame], T]) -> list[tuple[range, T]]:
    """The results of a function of a frame, piece by piece, without the rows for which it fails. If a frame fails, its halves
    are tried."""
    found: list[tuple[range, T]] = []
    waiting = [range(rows.height)]
    while waiting:
        piece = waiting.pop()
        try:
            found.append((piece, function(rows[piece.start : piece.stop])))
        except FAILURES as error:
            middle = piece.start + len(piece) // 2
            if len(piece) == 1:
                catching.row(piece.start, error)
            else:
                waiting += [range(middle, piece.stop), range(piece.start, middle)]
    return found


def rows_for(rows: pl.DataFrame, failed: Callable[[int, Misfit], None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows with their numbers, as a user's function gets them. `failed` is told of one with a value that Python does not
    have, such as a time in the year 10000."""
    for start in range(0, rows.height, AT_ONCE):
        part = rows[start : start + AT_ONCE]
        try:
            yield from enumerate(part.rows(named=True), start)
        except UNKNOWN_TO_PYTHON:
            for i in range(part.height):
                try:
                    row = part.row(i, named=True)
                except UNKNOWN_TO_PYTHON as error:
                    failed(
                        start + i, Misfit(f"the row has a value that Python does not have: {in_brief(error)}", YEARS)
                    )
                else:
                    yield start + i, row


def row_of(rows: pl.DataFrame, i: int) -> dict[str, Any]:
    """A row as Python's values. A time outside of the years that Python knows is text.

    >>> days = pl.Series([0, 3_000_000], dtype=pl.Int32()).cast(pl.Date())
    >>> row_of(pl.DataFrame({"id": [1, 2], "day": days}), 1)
    {'id': 2, 'day': '+10183-09-21'}
    """
    try:
        return rows.row(i, named=True)
    except UNKNOWN_TO_PYTHON:
        parts = [rows[i].select(name) for name in rows.columns]
        return {name: value for part in parts for name, value in _row_as_text(part).items()}


def rows_shown(rows: pl.DataFrame) -> Sequence[dict[str, Any]]:
    """All rows, likewise.

    >>> rows_shown(pl.DataFrame({"day": pl.Series([0, 3_000_000], dtype=pl.Int32()).cast(pl.Date())}))
    [{'day': datetime.date(1970, 1, 1)}, {'day': '+10183-09-21'}]
    """
    try:
        return rows.rows(named=True)
    except UNKNOWN_TO_PYTHON:
        return [row_of(rows, i) for i in range(rows.height)]


def _row_as_text(row: pl.DataFrame) -> dict[str, Any]:
    try:
        return row.row(0, named=True)
    except UNKNOWN_TO_PYTHON:
        try:
            told: dict[str, Any] = json.loads(row.write_json())[0]
        except PanicException:  # in no calendar at all
            told = row.select(pl.all().to_physical()).row(0, named=True)
        return told


def where_of(operator: Operator, run: StepRun, batch: Batch, rows: Sequence[int]) -> str:
    """For errors: the operator, and the origin of these rows if it is known."""
    span = run.span(batch, rows)
    return f"{operator.where}, {span}" if span else operator.where
