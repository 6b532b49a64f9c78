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


def fits(row: Any, schema: pl.Schema) -> bool:
    """Is this a row of the schema?

    >>> [fits(row, pl.Schema({"n": pl.Int64})) for row in ({"n": 1}, {"n": "1"}, {"m": 1}, None)]
    [True, False, False, False]
    """
    if not isinstance(row, Mapping) or row.keys() - schema.keys():
        return False
    try:
        return frame_of([row], schema).height == 1
    except MISFITS:
        return False
