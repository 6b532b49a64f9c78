"""State of an earlier version: converts rows with a user's function, and checks the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from falkirk.blame import FAILURES, did_you_mean, raised
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.state.codec import decode_key
from falkirk.stream.dataflow.earlier import Function
from falkirk.stream.dataflow.operator import Operator, Pairs
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.frames import flaw, frame_if_all_fit, misfits


def check_earlier_tables(
    was: Mapping[str, pl.Schema], now: Mapping[str, pl.Schema], by: Mapping[str, Function], where: str
) -> None:
    """Check that tables of the version before can continue. Raises DefinitionError."""
    both = was.keys() & now.keys()
    if unknown := sorted(by.keys() - both):
        raise DefinitionError(
            f"`by` is for table {unknown[0]!r}, which is not in both versions",
            where=where,
            hint=did_you_mean(unknown[0], both),
        )
    if changed := sorted(t for t in both - by.keys() if was[t] != now[t]):
        raise DefinitionError(
            f"table {changed[0]!r} has different columns in the next version, and nothing says how to compute them",
            where=where,
            hint=f'by={{"{changed[0]}": function}}',
        )


def changed(
    was: Operator, function: Function, schema: pl.Schema, hidden: Sequence[str], rows: pl.DataFrame, of: Pairs
) -> pl.DataFrame:
    """A user's function, applied to each row. Raises UserCodeError."""
    made: list[Any] = []
    for i, row in enumerate(rows.drop(hidden).iter_rows(named=True)):
        try:
            made.append(function(row))
        except FAILURES as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise _failed(was, raised(f"{name}({row})", error), of[i][0]) from error
    if (frame := frame_if_all_fit(made, schema)) is not None:
        return frame
    wrong = misfits(made, schema)[0]
    why = f"not a valid row of the next version: {words(schema)}: {flaw(made[wrong], schema)}"
    what = f"`by` gave {made[wrong]!r}, which is {why}"
    raise _failed(was, what, of[wrong][0])


def _failed(was: Operator, what: str, key: bytes) -> UserCodeError:
    where = f"migrate= of {was.where}, version {getattr(was, 'version', '')}, key {decode_key(key)[2]}"
    return UserCodeError(
        what, where=where, hint="fix it and start again: it is then given all rows that are not moved yet"
    )
