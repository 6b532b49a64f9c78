"""Windows in `group_by`, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type
from falkirk.stream import operators as op
from falkirk.stream.definition.event_time import check_time
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.windows import END, START, Window
from falkirk.stream.formats import Key, key_of
from falkirk.stream.operators.windows import bound_type

HINT = 'flow.source(…, time="at", late="30s"), and windows of that column'


def windowed(
    graph: op.Graph, before: op.Operator, given: Sequence[str | Sequence[str] | Window], line: str
) -> tuple[op.Operator, tuple[str, ...]]:
    """The operator to group, and the columns to group by: with windows, those that they add are the last two. Raises
    DefinitionError."""
    where = f"group_by ({line})"
    flat: list[Any] = [one for some in given for one in (some if isinstance(some, list | tuple) else [some])]
    windows = [one for one in flat if isinstance(one, Window)]
    names = [one for one in flat if not isinstance(one, Window)]
    if not windows:
        return before, columns_of(names, before.schema, where)
    if len(windows) > 1:
        raise DefinitionError("a group has one kind of windows, and here are two", where=where)
    (window,) = windows
    columns = columns_of(names, before.schema, where) if names else ()
    check_time(window.column, before.schema, where)
    if taken := next((c for c in (START, END) if c in before.schema), None):
        raise DefinitionError(
            f"there is already a column {taken!r}, which the windows are to add", where=where, hint="rename it first"
        )
    bound = bound_type(before.schema[window.column])
    check_key_type(bound, where=f"column {window.column!r} of {where}")
    made = op.Windows(
        id=op.Windows.kind, line=line, inputs=(before,), schema=pl.Schema({**before.schema, START: bound, END: bound}),
        changes=before.changes, partitioned=before.partitioned, root=before.root, regime=before.regime,
        time=before.time, window=window,
    )  # fmt: skip
    return graph.add(made), (*columns, START, END)


def key_in_windows(columns: tuple[str, ...], name: str, before: op.Operator) -> tuple[Key, str]:
    """The columns that place the groups of windows, and their root: the group's own, or each window by itself."""
    own = [c for c in columns if c not in (START, END)] or [START]
    if before.partitioned is not None and set(before.partitioned.columns) <= set(columns):
        return before.partitioned, before.root
    return key_of(own if len(own) > 1 else own[0]), name


def check_final(operator: op.Operator, where: str) -> None:
    """Raises DefinitionError if an operator has no final rows."""
    if isinstance(operator, op.WindowGroup):
        return
    before = operator.inputs[0] if operator.inputs else operator
    if not isinstance(before, op.Windows) or not isinstance(operator, op.Group):
        raise DefinitionError(
            "only windows have final rows: this is no group_by with windows",
            where=where,
            hint='.group_by(fk.tumbling("at", "1h")).agg(n=fk.len()).final()',
        )
    if before.changes:
        raise DefinitionError(
            "rows of these windows can be taken back at any time",
            where=where,
            hint="use windows before rows are grouped",
        )
    if not before.watermarked:
        raise DefinitionError("there is no watermark that says when a window is complete", where=where, hint=HINT)
    raise DefinitionError(
        f"the watermark is about {before.time or 'a column that has since changed'}, and the windows are of "
        f"{before.window.column}",
        where=where,
        hint=HINT,
    )
