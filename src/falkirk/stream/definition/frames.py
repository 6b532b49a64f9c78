"""Frames from what users' functions give: dicts, held to a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

MISFITS = (TypeError, ValueError, OverflowError, AttributeError, pl.exceptions.PolarsError)
"""What Polars raises for values that are not of a column's type."""


def frame_of(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Rows as a frame; columns that a row leaves out are null. Raises one of MISFITS: text is no number, nor 1.5 an
    integer.

    >>> frame_of([{"n": 1}, {}], pl.Schema({"n": pl.Int64})).rows()
    [(1,), (None,)]
    """
    return pl.DataFrame([pl.Series(n, [r.get(n) for r in rows], dtype=t, strict=True) for n, t in schema.items()])


def frame_if_all_fit(rows: Sequence[Any], schema: pl.Schema) -> pl.DataFrame | None:
    """The same of what may be no rows at all; None where one of them does not fit, or has columns of its own.

    >>> frame_if_all_fit([{"n": 1}, {"m": 2}], pl.Schema({"n": pl.Int64}))
    """
    if all(isinstance(row, Mapping) and not row.keys() - schema.keys() for row in rows):
        try:
            return frame_of(rows, schema)
        except MISFITS:
            pass
    return None


def misfits(rows: Sequence[Any], schema: pl.Schema) -> list[int]:
    """Which of these are no rows of the schema.

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


def fits(row: Any, schema: pl.Schema) -> bool:
    """Is this a row of the schema?

    >>> [fits(row, pl.Schema({"n": pl.Int64})) for row in ({"n": 1}, {"n": "1"}, {"m": 1}, None)]
    [True, False, False, False]
    """
    return not misfits([row], schema)
