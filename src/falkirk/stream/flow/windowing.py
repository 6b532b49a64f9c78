"""Windows in `group_by`, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type, check_value_types
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import Bound
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.definition.event_time import check_time
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.windows import END, START, CountWindow, Session, Window
from falkirk.stream.formats import Key, column_key
from falkirk.stream.operators.windows.windows import bound_type

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

HINT = 'flow.source(…, time="at", late="30s"), and windows of that column'


class ToGroup(NamedTuple):
    """What `group_by` says."""

    before: op.Operator
    columns: tuple[str, ...]
    """The columns to group by: with windows and sessions, those that they add are the last two."""
    made_later: Session | CountWindow | None = None
    """Sessions and windows of so many rows are made when rows are grouped. Other windows are columns of `before`."""


def windowed(
    graph: op.Graph,
    before: op.Operator,
    given: Sequence[str | Sequence[str] | Window | Session | CountWindow],
    line: str,
) -> ToGroup:
    """The operator to group, and how. Raises DefinitionError."""
    where = f"group_by ({line})"
    flat: list[Any] = [one for some in given for one in (some if isinstance(some, list | tuple) else [some])]
    windows = [one for one in flat if isinstance(one, Window | Session | CountWindow)]
    names = [one for one in flat if not isinstance(one, Window | Session | CountWindow)]
    if not windows:
        return ToGroup(before, columns_of(names, before.schema, where))
    if len(windows) > 1:
        raise DefinitionError("a group has one kind of windows, and here are two", where=where)
    (window,) = windows
    columns = columns_of(names, before.schema, where) if names else ()
    if taken := next((c for c in (START, END) if c in before.schema), None):
        raise DefinitionError(
            f"there is already a column {taken!r}, which the windows are to add", where=where, hint="rename it first"
        )
    if isinstance(window, CountWindow):
        check_counted(before, columns, where)
        return ToGroup(before, (*columns, START, END), window)
    check_time(window.column, before.schema, where)
    bound = bound_type(before.schema[window.column])
    check_key_type(bound, where=f"column {window.column!r} of {where}")
    if isinstance(window, Session):
        check_session(window, columns, where)
        return ToGroup(before, (*columns, START, END), window)
    made = op.Windows(
        id=op.Windows.kind, line=line, inputs=(before,), schema=pl.Schema({**before.schema, START: bound, END: bound}),
        changes=before.changes, partitioned=before.partitioned, root=before.root, regime=before.regime,
        time=before.time, window=window,
    )  # fmt: skip
    return ToGroup(graph.add(made), (*columns, START, END))


def check_session(session: Session, columns: tuple[str, ...], where: str) -> None:
    """Raises DefinitionError unless sessions have a group, by other columns than their time."""
    if not columns:
        raise DefinitionError(
            "sessions are of a group, and here is none",
            where=where,
            hint='group_by("user", fk.session(…)); for sessions of all rows, add a column with with_columns(all=fk.lit(0))',
        )
    if session.column in columns:
        raise DefinitionError(
            f"column {session.column!r} is the time of the sessions, so rows of a group would all have the same time",
            where=where,
            hint="leave it out of the columns to group by",
        )


def check_counted(before: op.Operator, columns: tuple[str, ...], where: str) -> None:
    """Raises DefinitionError unless rows have a number in their group that never changes."""
    if before.changes:
        raise DefinitionError(
            "rows here can be taken back, and then all rows after them would have other numbers",
            where=where,
            hint="use windows of so many rows before rows are grouped; or fk.tumbling, windows of time",
        )
    if not columns:
        raise DefinitionError(
            "windows of so many rows are of a group, and here is none",
            where=where,
            hint='group_by("user", fk.count_window(…)); for windows of all rows, add a column with '
            "with_columns(all=fk.lit(0))",
        )


def count_windows(
    before: op.Operator,
    window: CountWindow,
    columns: tuple[str, ...],
    aggregates: Mapping[str, Bound],
    name: str,
    version: int,
    line: str,
) -> op.CountGroup:
    """The operator. `columns`: those of the group, then those that windows add."""
    own = columns[:-2]
    key, root = placed(before, own, name)
    schema = {**{c: before.schema[c] for c in own}, START: pl.Int64(), END: pl.Int64()}
    return op.CountGroup(
        id=name, line=line, inputs=(before,), schema=pl.Schema({**schema, **{n: b.returns for n, b in aggregates.items()}}),
        changes=True, unique=frozenset((*own, START)), partitioned=key, root=root, regime=before.regime, columns=columns,
        window=window, aggregates=aggregates, version=version,
    )  # fmt: skip


def sessions(
    before: op.Operator,
    session: Session,
    columns: tuple[str, ...],
    aggregates: Mapping[str, Bound],
    name: str,
    version: int,
    line: str,
) -> op.SessionGroup:
    """The operator. `columns`: those of the group, then those that sessions add."""
    own = columns[:-2]
    key, root = placed(before, own, name)
    bound = bound_type(before.schema[session.column])
    schema = {**{c: before.schema[c] for c in own}, START: bound, END: bound}
    made = op.SessionGroup(
        id=name, line=line, inputs=(before,), schema=pl.Schema({**schema, **{n: b.returns for n, b in aggregates.items()}}),
        changes=True, unique=frozenset((*own, START)), partitioned=key, root=root, regime=before.regime, columns=own,
        session=session, aggregates=aggregates, version=version,
    )  # fmt: skip
    if made.keeps_rows:
        check_value_types(made.kept, made.where)
    return made


def key_in_windows(columns: tuple[str, ...], name: str, before: op.Operator) -> tuple[Key, str]:
    """The columns that place the groups of windows, and their root: the group's own, or each window by itself."""
    own = [c for c in columns if c not in (START, END)] or [START if START in columns else END]
    if before.partitioned is not None and set(before.partitioned.columns) <= set(columns):
        return before.partitioned, before.root
    return column_key(own), name


def again(operator: op.Filter | op.Select | op.WithColumns, stream: Stream[Any]) -> Stream[Any]:
    """The operator behind another stream of the same columns."""
    if isinstance(operator, op.Filter):
        return stream.filter(*operator.predicates)
    return (stream.select if isinstance(operator, op.Select) else stream.with_columns)(*operator.exprs)


def final_size(operator: op.Operator, time: str, where: str) -> int | None:
    """The size of all windows, if their start is the event time of final rows. Raises DefinitionError if an operator has no
    final rows, or if they have no such time."""
    if isinstance(operator, op.CountGroup) and time == END:
        return None
    if isinstance(operator, op.WindowGroup) and time in (START, END):
        return operator.window.size if time == START else None
    if isinstance(operator, op.SessionGroup) and operator.expire and time == END:
        return None
    if isinstance(operator, op.WindowGroup) or (isinstance(operator, op.SessionGroup) and operator.expire):
        raise DefinitionError(
            f"time={time!r} is not a time by which these windows become complete in order",
            where=where,
            hint=f"time={END!r}, or {START!r} for windows that all have one size",
        )
    if isinstance(operator, op.CountGroup):
        raise DefinitionError("windows of so many rows have numbers and no time", where=where, hint="leave time= out")
    before = operator.inputs[0] if operator.inputs else operator
    if isinstance(operator, op.SessionGroup):
        column = operator.session.column
    elif isinstance(operator, op.Group) and isinstance(before, op.Windows) and END in operator.columns:
        column = before.window.column
    else:
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
        f"the watermark is about {before.time or 'a column that has since changed'}, and the windows are of {column}",
        where=where,
        hint=HINT,
    )
