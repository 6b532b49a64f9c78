"""The checks of `over`, and its operators.

Functions of different frames are operators one after another: aggregates, numbers of places, `lag`, and `lead`, which is
`lag` in the opposite order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Never

import narwhals as nw
import polars as pl

from falkirk.blame import user_line
from falkirk.durations import DurationLike
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type, check_value_type
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context
from falkirk.stream.aggregates.positions import BoundPosition, BoundRank, BoundShift, Position
from falkirk.stream.aggregates.windowed import OverColumn, Window
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.definition.event_time import millis, per_milli
from falkirk.stream.definition.expressions import evaluate, expressions
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.names import default_id
from falkirk.stream.flow.alternatives import OVER, missing
from falkirk.stream.flow.tops import ordering_of
from falkirk.stream.flow.totals import check_named, check_object
from falkirk.stream.formats.rows import Row
from falkirk.stream.operators.groups.ordering import Ordering
from falkirk.stream.operators.groups.over_frames import Frame

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

MOST_ROWS = 1_000_000
"""Of a frame, on each side of a row."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Which rows, in which order, and where they are placed."""

    before: op.Operator
    columns: tuple[str, ...]
    ordering: Ordering
    frame: Frame
    id: str
    version: int
    line: str

    @property
    def where(self) -> str:
        """For errors."""
        return f"over {self.id!r} ({self.line})"


class Over:
    """Rows in order. `.agg(…)` returns a stream of them with more columns.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int, "at": int}))
    >>> bids.over("auction", order_by="at").agg(total=fk.sum("price")).schema.names()
    ['auction', 'price', 'at', 'total']
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(OVER)

    def __init__(self, graph: op.Graph, spec: Spec) -> None:
        self._graph, self._spec = graph, spec

    def agg(self, *unnamed: Never, **functions: AggregateLike) -> Stream[Row]:
        """Each row, with these functions of its frame by name: aggregates, and `fk.row_number`, `fk.rank`, `fk.dense_rank`,
        `fk.lag` and `fk.lead`, which do not depend on the frame.

        A row that comes, or is taken back, changes the rows whose frame has it. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int, "at": int}))
        >>> last = bids.over("auction", order_by="at", rows=1).agg(both=fk.sum("price"), before=fk.lag("price"))
        >>> last.sink("last", key="at", value=fk.Json())
        >>> rows = [{"auction": 7, "price": p, "at": at} for at, p in ((1, 90), (3, 120), (2, 100))]
        >>> app = fk.testing.run(flow, {"bids": rows}, step_rows=1)
        >>> [(row["at"], row["both"], row["before"]) for row in app.sinks["last"].table.values()]
        [(1, 90, None), (3, 220, 100), (2, 190, 90)]
        """
        from falkirk.stream.flow.streams import Stream

        check_named(unnamed, self._spec.where)
        return Stream(self._graph, made(self._graph, self._spec, functions))


def framed(rows: Any, range_: Any, ordering: Ordering, schema: pl.Schema, where: str) -> Frame:
    """The frame. Raises DefinitionError."""
    if not ordering.by:
        if rows is not None or range_ is not None:
            raise DefinitionError("rows without an order have no neighbours", where=where, hint='order_by="at"')
        return Frame("all", None)
    if rows is not None and range_ is not None:
        raise DefinitionError("a frame is of rows or of a range, and here are both", where=where)
    if range_ is not None:
        return _ranged(range_, ordering, schema, where)
    if rows is None:
        return Frame("rows", None)
    before, after = _sides(rows)
    if not all(type(size) is int and 0 <= size <= MOST_ROWS for size in (before, after)):
        hint = f"from 0 to {MOST_ROWS:,}; or a pair, from rows before to rows after: rows=(-2, 1)"
        raise DefinitionError(f"rows={rows!r} is not a number of rows", where=where, hint=hint)
    return Frame("rows", before, following=after)


def _sides(given: Any) -> tuple[Any, Any]:
    """How much is before the row, and after it. What is before has a minus in a pair. None: it cannot be."""
    if not isinstance(given, tuple | list):
        return given, 0
    if len(given) != 2:
        return None, None
    before, after = given
    if isinstance(before, str):
        none = before.lstrip("0.") in ("ms", "s", "m", "h", "d")
        return before.removeprefix("-") if before.startswith("-") or none else None, after
    return -before if isinstance(before, int | timedelta) else None, after


def _ranged(given: Any, ordering: Ordering, schema: pl.Schema, where: str) -> Frame:
    dtype = schema[ordering.by[0]]
    if len(ordering.by) > 1 or not ordering.smallest[0]:
        raise DefinitionError("a range is of one column, smallest first", where=where, hint='order_by="at"')
    if not (dtype.is_integer() or isinstance(dtype, pl.Datetime)):
        raise DefinitionError(
            f"a range is of times or integers, and {ordering.by[0]!r} is {dtype}",
            where=where,
            hint="order by a column of these types, or use a frame of rows",
        )
    unit = per_milli(dtype)

    def size(side: Any) -> int:
        if isinstance(side, str | timedelta):
            return millis(side, "range", where, least=0) * unit
        if type(side) is int and (side == 0 or (side > 0 and dtype.is_integer())):
            return side
        hint = 'range="1h"' if isinstance(dtype, pl.Datetime) else 'range=100, or range="1h" for milliseconds'
        hint += '; or a pair, from before to after: range=("-1h", "5m")'
        raise DefinitionError(f"range={given!r} is not a range of {ordering.by[0]!r}", where=where, hint=hint)

    before, after = map(size, _sides(given))
    # How long a row is needed is told by a watermark in milliseconds. Units of integers are taken as these.
    return Frame("range", before, unit, after)


def spec_of(
    before: op.Operator, columns: tuple[str, ...], order_by: Any, descending: bool | Sequence[bool], rows: Any, range_: Any,
    name: str, version: int, line: str,
) -> Spec:  # fmt: skip
    """Rows in order. Raises DefinitionError."""
    where = f"over {name!r} ({line})"
    if order_by is None:
        ordering = Ordering((), (), tuple(c for c in before.schema if c not in columns))
    else:
        ordering = ordering_of(
            before.schema, columns, order_by, descending, where, option="order_by", other="descending", descending=True
        )
    check_kept(before.schema, columns, where)
    return Spec(before, columns, ordering, framed(rows, range_, ordering, before.schema, where), name, version, line)


def check_kept(schema: pl.Schema, columns: Sequence[str], where: str) -> None:
    """Raises DefinitionError if rows of these columns cannot be kept in order. `columns` are those of their groups."""
    for column, dtype in schema.items():
        check_value_type(dtype, where=f"column {column!r} of {where}")
        if column not in columns and not isinstance(dtype, pl.Decimal):
            check_key_type(dtype, where=f"column {column!r} of {where}")


def made(graph: op.Graph, spec: Spec, functions: Mapping[str, Any]) -> op.Operator:
    """The operators. Raises DefinitionError."""
    bound = {name: _bound(name, function, spec) for name, function in functions.items()}
    if not bound:
        raise DefinitionError("agg() has no functions", where=spec.where, hint='agg(total=fk.sum("price"))')
    running = Frame("rows", None)
    shifts = [b for b in bound.values() if isinstance(b, BoundShift)]
    aggregates = [b for b in bound.values() if not isinstance(b, BoundPosition)]
    ranks = [b for b in bound.values() if isinstance(b, BoundRank)]
    if spec.frame.running and aggregates:  # numbers of places run on, too
        aggregates, ranks = [b for b in bound.values() if not isinstance(b, BoundShift)], []
    parts: list[tuple[str, Sequence[Bound], Frame, bool]] = [
        ("", aggregates, spec.frame, False),
        (".rank", ranks, running, False),
        (".lag", [b for b in shifts if not b.backwards], Frame("rows", 0), False),
        (".lead", [b for b in shifts if b.backwards], Frame("rows", 0), True),
    ]
    before = spec.before
    for suffix, some, frame, backwards in parts:
        if some:
            name = spec.id if before is spec.before else f"{spec.id}{suffix}"
            before = _over(graph, before, spec, name, tuple(some), frame, backwards)
    wanted = [*spec.before.schema, *bound]
    if before.schema.names() == wanted:
        return before
    return graph.add(
        op.Select(
            id=op.Select.kind, line=spec.line, inputs=(before,), schema=pl.Schema({c: before.schema[c] for c in wanted}),
            changes=True, unique=before.unique, partitioned=before.partitioned, root=before.root, regime=before.regime,
            exprs=tuple(nw.col(c) for c in wanted),
        )
    )  # fmt: skip


def _bound(name: str, function: Any, spec: Spec) -> Bound:
    schema, where = spec.before.schema, spec.where
    if name in schema:
        raise DefinitionError(f"{name!r} is already a column", where=where, hint="choose another name")
    check_object(name, function, where)
    if not hasattr(function, "bind"):
        raise DefinitionError(
            f"{name}={function!r} is not a function of a frame",
            where=where,
            hint='use aggregates, fk.sum("price"), or fk.row_number(), fk.rank(), fk.lag("price")',
        )
    context = Context(name, schema, False, where)
    if isinstance(function, Position):
        if not spec.ordering.by:
            raise DefinitionError(f"{name} is about the order of rows", where=where, hint='over(…, order_by="at")')
        return function.placed(context)
    bound: Bound = function.bind(context).in_one_row()
    for column, dtype in bound.states().items():
        check_value_type(dtype, where=f"{column} of {where}")
    if spec.frame.running and not bound.folds:
        raise DefinitionError(
            f"{name} cannot run on from row to row", where=where, hint='give it a frame: rows=100, or range="1h"'
        )
    return bound


def _over(
    graph: op.Graph,
    before: op.Operator,
    spec: Spec,
    name: str,
    functions: tuple[Bound, ...],
    frame: Frame,
    backwards: bool,
) -> op.Over:
    key, root = placed(before, spec.columns, name)
    # A row whose key changes moves to another task: its sink is keyed by that, too, or two tasks would write one key.
    unique = before.unique
    if unique is not None and root != before.root:
        unique |= set(spec.columns)
    others = tuple(c for c in before.schema if c not in spec.columns and c not in spec.ordering.by)
    over = op.Over(
        id=name, line=spec.line, inputs=(before,), changes=True, unique=unique, partitioned=key, root=root,
        regime=before.regime, schema=pl.Schema({**before.schema, **{f.name: f.returns for f in functions}}),
        columns=spec.columns, ordering=Ordering(spec.ordering.by, spec.ordering.smallest, others), backwards=backwards,
        frame=frame, functions=functions, version=spec.version,
    )  # fmt: skip
    return graph.add(over, exchange=True)


def with_windows(
    stream: Stream[Any], exprs: Sequence[Any], named: Mapping[str, Any], windows: Mapping[str, OverColumn], line: str
) -> Stream[Row]:
    """`with_columns` where some of the named columns are functions of the rows around each row. All of them, and all other
    expressions, see the rows as they were before. Raises DefinitionError."""
    from falkirk.stream.flow.streams import Stream

    where = f"with_columns ({line})"
    others = {name: column for name, column in named.items() if name not in windows}
    given = expressions(exprs, others, where) if exprs or others else ()
    added = evaluate(given, stream.schema, "with_columns", where).names() if given else stream.schema.names()
    together: dict[Window, dict[str, AggregateLike]] = {}
    for name, column in windows.items():
        together.setdefault(column.window, {})[name] = column.function
    taken: list[str] = []
    before = stream._op
    for window, functions in together.items():
        keys = columns_of(window.columns, stream.schema, where)
        name = window.id or default_id("over", *keys)
        taken.append(name)
        if window.id is None and (again := taken.count(name)) > 1:
            name = f"{name}.{again}"
        spec = spec_of(
            before=before,
            columns=keys,
            order_by=window.order_by,
            descending=window.descending,
            rows=window.rows,
            range_=window.range,
            name=name,
            version=window.version,
            line=line,
        )
        before = made(stream._graph, spec, functions)
    found: Stream[Any] = Stream(stream._graph, before)
    if given:
        found = found.with_columns(*given)
    unnamed = [name for name in added if name not in stream.schema and name not in others]
    wanted = [*stream.schema, *unnamed, *(name for name in named if name not in stream.schema)]
    return found if found.schema.names() == wanted else found.select(*wanted)


def over(
    stream: Stream[Any],
    /,
    *columns: str | Sequence[str],
    order_by: str | Sequence[str] | None = None,
    descending: bool | Sequence[bool] = False,
    rows: int | tuple[int, int] | None = None,
    range: DurationLike | int | tuple[DurationLike | int, DurationLike | int] | None = None,  # noqa: A002
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Over:
    """Rows of each key in the order of a column, for `.agg(…)`, which adds functions of the rows around each row.

    The frame of a row is all rows up to it; without `order_by` all rows of its key; with `rows=2` the row and two
    before it; with `range="1h"` the rows of the hour up to its time, those of the same time included. A pair goes
    beyond the row: `rows=(-2, 1)` is from two rows before it to one after it, `range=("-1h", "5m")` from an hour before
    its time to five minutes after it. So the row changes when those come. Nulls of `order_by` come last. Rows that are
    equal in it follow each other in the order of their other columns, smallest first. `id` and `version` are as for
    `group_by`. Raises DefinitionError. See docs/operators/over.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int, "at": int}))
    >>> totals = bids.over("auction", order_by="at").agg(total=fk.sum("price"), n=fk.row_number())
    >>> totals.sink("totals", key=["auction", "at"], value=fk.Json())
    >>> rows = [{"auction": 7, "price": 90, "at": 1}, {"auction": 7, "price": 120, "at": 2}]
    >>> [row["total"] for row in fk.testing.run(flow, {"bids": rows}).sinks["totals"].rows]
    [90, 210]
    """
    line = user_line()
    keys = columns_of(columns, stream.schema, f"over ({line})")
    name = id or default_id("over", *keys)
    spec = spec_of(
        before=stream._op,
        columns=keys,
        order_by=order_by,
        descending=descending,
        rows=rows,
        range_=range,
        name=name,
        version=version,
        line=line,
    )
    return Over(stream._graph, spec)
