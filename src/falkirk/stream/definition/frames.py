"""Frames from the dicts that users' functions return, checked against a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from falkirk.stream.definition.fitting import fit_of
from falkirk.stream.formats.types import type_name

MISFITS = (TypeError, ValueError, OverflowError, AttributeError, pl.exceptions.PolarsError)
"""The errors for values of a wrong type."""

_LOOSE = (pl.Date, pl.Decimal, pl.List, pl.Struct)
"""Types for which Polars keeps, rounds or converts values of other types, and is strict in no way."""


def frame_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Rows as a frame. Missing columns are null. Raises one of MISFITS, for example for text or 1.5 in an integer column.

    >>> frame_of([{"n": 1}, {}], pl.Schema({"n": pl.Int64})).rows()
    [(1,), (None,)]
    """
    return pl.DataFrame([_series(n, [r.get(n) for r in rows], t) for n, t in schema.items()])


def as_given(row: Any) -> Any:
    """A row as a user's function gives it now: it may change the same dict for its next row.

    >>> given = {"n": 1}
    >>> rows = [as_given(given)]
    >>> given["n"] = 2
    >>> rows
    [{'n': 1}]
    """
    return row.copy() if type(row) is dict else row


def _series(name: str, values: list[Any], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, _LOOSE):
        fit = fit_of(dtype)
        values = [None if v is None else fit(name, v) for v in values]
    return pl.Series(name, values, dtype=dtype, strict=True)


def frame_if_all_fit(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame | None:
    """Rows as a frame, or None if one of them is not a dict, does not fit the schema, or has other columns.

    >>> frame_if_all_fit([{"n": 1}, {"m": 2}], pl.Schema({"n": pl.Int64}))
    """
    if all(isinstance(row, Mapping) and not row.keys() - schema.keys() for row in rows):
        try:
            return frame_of(rows, schema)
        except MISFITS:
            pass
    return None


def misfits(rows: Sequence[Any], schema: pl.Schema) -> list[int]:
    """The indexes of the values that are not rows of the schema.

    >>> misfits([{"n": 1}, {"n": "1"}, {}, None, {"n": 2}], pl.Schema({"n": pl.Int64}))
    [1, 3]
    """
    found, waiting = [], [range(len(rows))] if rows else []
    while waiting:
        piece = waiting.pop()
        if frame_if_all_fit(rows[piece.start : piece.stop], schema) is not None:
            continue
        middle = piece.start + len(piece) // 2
        if len(piece) == 1:
            found.append(piece.start)
        else:
            waiting += [range(middle, piece.stop), range(piece.start, middle)]
    return found


def flaw(row: Any, schema: pl.Schema) -> str:
    """Why a value is not a row of the schema.

    >>> [flaw(row, pl.Schema({"n": pl.Int64})) for row in ({"n": "1"}, {"m": 1}, 7)]
    ["column 'n' is Int64, not '1'", "there is no column 'm'", 'it is not a dict']
    """
    if not isinstance(row, Mapping):
        return "it is not a dict"
    for name, value in row.items():
        if name not in schema:
            return f"there is no column {name!r}"
        try:
            frame_of([{name: value}], pl.Schema({name: schema[name]}))
        except MISFITS:
            return f"column {name!r} is {type_name(schema[name])}, not {value!r}"
    return "its values do not fit"


def fits(row: Any, schema: pl.Schema) -> bool:
    """Whether the value is a row of the schema.

    >>> [fits(row, pl.Schema({"n": pl.Int64})) for row in ({"n": 1}, {"n": "1"}, {"m": 1}, None)]
    [True, False, False, False]
    """
    return not misfits([row], schema)
