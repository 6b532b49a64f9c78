"""`stream.join(other)`: checks what the user says, and makes the operator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from falkirk.blame import did_you_mean, user_line
from falkirk.durations import DurationLike
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_types
from falkirk.stream import operators as op
from falkirk.stream.definition.event_time import millis
from falkirk.stream.definition.names import default_id
from falkirk.stream.flow.joining.join_inputs import Input, On, both, inputs_of, placed
from falkirk.stream.flow.joining.join_results import columns_of, partitioned, unique
from falkirk.stream.formats import Key
from falkirk.stream.formats.rows import Row
from falkirk.stream.operators.joins.interval import FARTHEST_APART, time_of
from falkirk.stream.operators.joins.join import How, Out
from falkirk.stream.operators.joins.join_side import Side

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

logger = logging.getLogger(__name__)

Within = tuple[DurationLike, DurationLike]
"""The least and the greatest time from a left row to a right one; "-5m" is before it."""


def join(
    self: Stream[Any],
    other: Stream[Any],
    on: On | None = None,
    *,
    how: How = "inner",
    left_on: On | None = None,
    right_on: On | None = None,
    within: Within | None = None,
    suffix: str = "_right",
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Stream[Row]:
    """Join with another stream, or with a grouped result, kept up to date: names and columns are as in Polars.

    `on`, or `left_on` and `right_on`: a column, an expression, or a list of them. Their values must be equal; null equals
    nothing. `how` is "inner", "left", "right", "full", "semi" or "anti". A column of `other` whose name is taken gets the
    `suffix`. A right column that must be equal to a left column is not repeated ("right": the left one is not; "full": the
    one that is there). After an expression in `on`, all columns are kept.

    `within`: how far the event time of a right row may be from that of the left row, as in `within=("-5m", "1h")`: from 5
    minutes before it to an hour after it, both included. Both streams need an event time.

    State: all rows of both sides; with `within` and watermarks on both sides, those that can still find a partner. If a row
    comes later, or is taken back, the result changes: a row of a "left" join is first given with nulls, and taken back when
    its partner comes. `id` names the operator and its state. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> orders = flow.source("orders", key="id", value=fk.Json({"id": int, "item": str}))
    >>> paid = flow.source("paid", key="order", value=fk.Json({"order": int, "usd": int}))
    >>> orders.join(paid, left_on="id", right_on="order").sink("sold", key="id", value=fk.Json())
    >>> rows = {"orders": [{"id": 1, "item": "lamp"}, {"id": 2, "item": "chair"}], "paid": [{"order": 2, "usd": 40}]}
    >>> fk.testing.run(flow, rows).sinks["sold"].rows
    [{'id': 2, 'item': 'chair', 'usd': 40}]
    """
    from falkirk.stream.flow.streams import Stream

    line = user_line()
    where = f"join {id!r} ({line})" if id else f"join ({line})"
    check_joined(self, other, how, where)
    bounds = None if within is None else _bounds(within, where)
    left, right = inputs_of(self, other, both(on, left_on, right_on, where), line, where)
    name = id or default_id("join", right.op.id, "on", *left.spelt)
    keys, root = placed(self._graph, left, right, name)
    columns = columns_of(left, right, how, suffix, where)
    types = [left.op.schema, right.op.schema]
    times = None if bounds is None else event_times(left, right, where, "within=")
    of_right = [*right.on, *(times or ())[1:]]
    kept = [types[0], types[1] if how not in ("semi", "anti") else pl.Schema({c: types[1][c] for c in of_right})]
    for schema in kept:
        check_value_types(schema, where)
    known: dict[str, Any] = {
        "id": name, "line": line, "inputs": (left.op, right.op),
        "schema": pl.Schema({o.name: types[o.left is None][o.left or o.right or ""] for o in columns}),
        "changes": how not in ("inner", "semi") or left.op.changes or right.op.changes,
        "unique": unique(left, right, columns, how), "partitioned": partitioned(keys, columns, how), "root": root,
        "regime": self._op.regime, "how": how, "columns": columns, "version": version,
        "sides": (Side(left.on, keys[0], kept[0]), Side(right.on, keys[1], kept[1])),
    }  # fmt: skip
    if bounds is None or times is None:
        made = op.Join(**known)
    else:
        time = time_of(how, (_named(columns, times[0], 0), _named(columns, times[1], 1)))
        made = op.IntervalJoin(**known, times=times, lower=bounds[0], upper=bounds[1], time=time)
    warn_of_growth(made)
    return Stream(self._graph, self._graph.add(made, exchange=True))


def warn_of_growth(made: op.Join) -> None:
    """Says that a join's state has no bound. A command that loads the flow says so itself: its file may have other flows, and
    each worker loads it again."""
    from falkirk.stream.flow.load import loading  # which imports flows

    if made.growing and not loading():
        logger.warning("%s keeps %s. To do: %s", made.where, made.growing, made.bounded_by)


def _bounds(within: Any, where: str) -> tuple[int, int]:
    """The bounds of the interval in milliseconds. Raises DefinitionError."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise DefinitionError(
            f"within={within!r} is not an interval", where=where, hint='give two durations: within=("-5m", "1h")'
        )
    lower, upper = (_signed(bound, where) for bound in within)
    if lower > upper:
        raise DefinitionError(
            f"within={within!r} ends before it begins", where=where, hint="give the smaller one first"
        )
    return lower, upper


def _signed(bound: Any, where: str) -> int:
    """A duration, which can be negative, in milliseconds."""
    size, before = bound, False
    if isinstance(bound, timedelta):
        size, before = abs(bound), bound < timedelta()
    elif isinstance(bound, str):
        size, before = bound.removeprefix("-"), bound.startswith("-")
    found = millis(size, "within", where, least=0)
    if found > FARTHEST_APART:
        raise DefinitionError(f"within={bound!r} is farther than a hundred years", where=where)
    return -found if before else found


def event_times(left: Input, right: Input, where: str, what: str) -> tuple[str, str]:
    """The columns with the event time of both sides. Raises DefinitionError."""
    found = []
    for side, called in ((left, "the stream"), (right, "the other stream")):
        if side.op.time is None or side.op.time not in side.visible:
            raise DefinitionError(
                f"{what} is about event time, and {called} ({side.op.id!r}) has none",
                where=where,
                hint='flow.source(…, time="at", late="30s"), and keep that column',
            )
        found.append(side.op.time)
    return found[0], found[1]


def _named(columns: Sequence[Out], column: str, port: int) -> str | None:
    """The name in the result of a column of one side."""
    return next((out.name for out in columns if (out.left, out.right)[port] == column), None)


def placed_by(before: op.Operator) -> frozenset[str]:
    """Behind a join, the columns of its key: a sink's key needs them, so that one task writes each of its rows."""
    found = before
    while found.row_wise and len(found.inputs) == 1:
        found = found.inputs[0]
    placed = before.partitioned if isinstance(found, op.Join) and found.root == before.root else None
    return frozenset(() if placed is None else placed.columns)


def check_one_writer(before: op.Operator, key: Key, where: str) -> None:
    """Raises DefinitionError if several tasks could write one key of a sink, behind a join or where the user says what
    identifies a row. A row that gets another join key moves to another task, and its old row could be removed after its new
    row was written."""
    found, assumed = before, isinstance(before, op.AssumeUnique)
    while found.row_wise and len(found.inputs) == 1:
        found = found.inputs[0]
        assumed = assumed or isinstance(found, op.AssumeUnique)
    placed = before.partitioned if found.root == before.root else None
    in_key = placed is not None and set(placed.columns) <= set(key.columns)
    if not isinstance(found, op.Join):
        if assumed and not in_key:
            raise DefinitionError(
                f"rows of one {', '.join(key.columns)} may be in several tasks, which would write them in any order",
                where=where,
                hint="leave out .assume_unique(…): the sink then brings them together, and keeps the rows of each key",
            )
        return
    if not in_key and (found is not before or set(key.columns) != set(before.schema)):
        raise DefinitionError(
            f"the sink's key {', '.join(key.columns)} does not contain the key of {found.kind} {found.id!r}: several tasks "
            "would write it, in any order",
            where=where,
            hint="add the columns of the join to the sink's key, or group the result by the sink's key",
        )


def check_joined(self: Stream[Any], other: Any, how: Any, where: str) -> None:
    """Raises DefinitionError if these cannot be joined in this way."""
    from falkirk.stream.flow.joining.lookups import Table
    from falkirk.stream.flow.streams import Stream

    if isinstance(other, Table):
        raise DefinitionError("a table is looked up, not joined", where=where, hint="write stream.lookup(table)")
    if not isinstance(other, Stream):
        raise DefinitionError(f"{other!r} is not a stream", where=where, hint="join with a source or what follows one")
    if other._graph is not self._graph:
        raise DefinitionError(
            "the streams belong to different flows", where=where, hint="read both sources in one flow"
        )
    if how not in get_args(How):
        raise DefinitionError(f"how={how!r} is not a join", where=where, hint=did_you_mean(str(how), get_args(How)))
    if other._op.batch and not self._op.batch:
        raise DefinitionError(
            "the other stream is batch, and the output of a batch part cannot be a stream again",
            where=where,
            hint="sink it, and read the topic as a source",
        )
