"""`stream.join_asof(other)`: checks what the user says, and makes the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from falkirk.blame import did_you_mean, user_line
from falkirk.durations import DurationLike
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_types
from falkirk.stream import operators as op
from falkirk.stream.definition.event_time import millis
from falkirk.stream.definition.names import default_id
from falkirk.stream.flow.joining.join_inputs import On, both, inputs_of, placed
from falkirk.stream.flow.joining.join_results import columns_of, partitioned
from falkirk.stream.flow.joining.joins import check_joined, event_times, warn_of_growth
from falkirk.stream.formats.rows import Row
from falkirk.stream.operators.joins.asof import Strategy
from falkirk.stream.operators.joins.interval import FARTHEST_APART
from falkirk.stream.operators.joins.join_side import Side

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


def join_asof(
    self: Stream[Any],
    other: Stream[Any],
    *,
    by: On | None = None,
    by_left: On | None = None,
    by_right: On | None = None,
    strategy: Strategy = "backward",
    tolerance: DurationLike | None = None,
    suffix: str = "_right",
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Stream[Row]:
    """Each row with the one row of another stream that is the nearest in event time, kept up to date: as in Polars, where
    `on` would be the event times of both.

    `by`, or `by_left` and `by_right`: what must be equal. `strategy`: "backward" is the last row at or before the time of
    the left row, "forward" the first one at or after it, "nearest" the nearer of both (of two as near, the later).
    `tolerance`: how far it may be; "forward" and "nearest" need one. A row without a partner is given with nulls. Of several
    rows of `other` with one key and time, it is always the same one. A column of `other` whose name is taken gets the
    `suffix`.

    If a row of `other` comes late or is taken back, the rows that it is the nearest to change. State: with watermarks on
    both sides, rows within reach of what can still come, and for "backward" without `tolerance` the last row of each key of
    `other`. `id` names the operator and its state. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> trades = flow.source("trades", value=fk.Json({"stock": str, "at": int, "n": int}), time="at", late="1s")
    >>> quotes = flow.source("quotes", value=fk.Json({"stock": str, "at": int, "usd": int}), time="at", late="1s")
    >>> priced = trades.join_asof(quotes, by="stock", tolerance="1m").select("stock", "at", "n", "usd")
    >>> priced.sink("priced", key=["stock", "at", "n", "usd"], value=fk.Json())
    >>> rows = {"trades": [{"stock": "A", "at": 2500, "n": 3}], "quotes": [{"stock": "A", "at": 2000, "usd": 7}]}
    >>> list(fk.testing.run(flow, rows).sinks["priced"].table.values())
    [{'stock': 'A', 'at': 2500, 'n': 3, 'usd': 7}]
    """
    from falkirk.stream.flow.streams import Stream

    line = user_line()
    where = f"join_asof {id!r} ({line})" if id else f"join_asof ({line})"
    check_joined(self, other, "left", where)
    if strategy not in get_args(Strategy):
        known = get_args(Strategy)
        raise DefinitionError(
            f"strategy={strategy!r} is not known", where=where, hint=did_you_mean(str(strategy), known)
        )
    far = None if tolerance is None else millis(tolerance, "tolerance", where, least=0)
    if far is not None and far > FARTHEST_APART:
        raise DefinitionError(f"tolerance={tolerance!r} is more than a hundred years", where=where)
    if far is None and strategy != "backward":
        raise DefinitionError(
            f"strategy={strategy!r} needs a tolerance: without one, a row could wait for its partner for ever",
            where=where,
            hint='tolerance="1m"',
        )
    given = both(by, by_left, by_right, where, ("by=", "by_left=", "by_right="))
    left, right = inputs_of(self, other, given, line, where)
    name = id or default_id("asof", right.op.id, "by", *left.spelt)
    keys, root = placed(self._graph, left, right, name)
    columns = columns_of(left, right, "left", suffix, where)
    types = [left.op.schema, right.op.schema]
    times = event_times(left, right, where, "join_asof")
    for schema in types:
        check_value_types(schema, where)
    made = op.AsofJoin(
        id=name, line=line, inputs=(left.op, right.op),
        schema=pl.Schema({o.name: types[o.left is None][o.left or o.right or ""] for o in columns}),
        changes=True, unique=left.op.unique, partitioned=partitioned(keys, columns, "left"), root=root,
        regime=self._op.regime, how="left", columns=columns, version=version, times=times, strategy=strategy,
        tolerance=far, time=times[0], sides=(Side(left.on, keys[0], types[0]), Side(right.on, keys[1], types[1])),
    )  # fmt: skip
    warn_of_growth(made)
    return Stream(self._graph, self._graph.add(made, exchange=True))
