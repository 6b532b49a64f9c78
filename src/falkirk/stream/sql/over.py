"""Window functions, as the DSL's `over`: sum(x) over (partition by k order by t rows between 2 preceding and current row).

rows m preceding … n following, range d preceding … e following, or to the current row on either side
rows or range unbounded preceding         up to the current row
no frame                                  as SQL has it: range unbounded preceding; all rows, if there is no order
rows or range unbounded preceding … unbounded following      all rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import narwhals as nw
from sqlglot import exp

from falkirk.state.codec import check_key_type
from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.aggregates.positions import dense_rank, lag, lead, rank, row_number
from falkirk.stream.definition.expressions import bare_column, columns_read
from falkirk.stream.flow.overs import Spec, check_kept, framed, made
from falkirk.stream.flow.streams import Stream
from falkirk.stream.flow.tops import ordering_of
from falkirk.stream.operators.groups.ordering import Ordering
from falkirk.stream.operators.groups.over_frames import Frame
from falkirk.stream.sql.aggregates import Aggregates
from falkirk.stream.sql.relations import Ids, Relation, free
from falkirk.stream.sql.scalar.conditions import Uses
from falkirk.stream.sql.scalar.times import duration_of
from falkirk.stream.sql.text import Text

HOW = "sum(x) over (partition by k order by t rows between 2 preceding and 1 following)"
UNBOUNDED = "turn the order round: order by t desc rows unbounded preceding; or give both ends a number"
_RANKS: Mapping[type[exp.Expr], Callable[[], AggregateLike]] = {
    exp.RowNumber: row_number,
    exp.Rank: rank,
    exp.DenseRank: dense_rank,
}


class Order(NamedTuple):
    """What windows have in common that are one operator."""

    groups: tuple[str, ...]
    orders: tuple[tuple[str, bool], ...]
    """Columns, and whether the greatest is first."""
    frame: tuple[str, Any]
    """Its kind, and how far it goes before the row and after it; None: everything before it."""


def windows_in(node: exp.Expr) -> list[exp.Window]:
    """The window functions in an expression; those of subqueries are not of this select."""
    if isinstance(node, exp.Query):
        return []
    if isinstance(node, exp.Window):
        return [node]
    return [window for child in node.iter_expressions() for window in windows_in(child)]


def windowed(
    windows: Sequence[exp.Window], names: Mapping[exp.Expr, str], relation: Relation, given: dict[exp.Expr, str], uses: Uses,
    ids: Ids, text: Text,
) -> tuple[Relation, dict[exp.Expr, str]]:  # fmt: skip
    """The rows with a column for each window function. Raises DefinitionError."""
    reader = _Reader(relation, given, names, text)
    orders: dict[Order, list[exp.Window]] = {}
    for window in dict.fromkeys(windows):
        orders.setdefault(reader.order(window), []).append(window)
    relation = _read(relation, {c for order in orders for c in (*order.groups, *dict(order.orders))}, uses)
    reader.build = relation.expressions(text, given)
    stream = relation.stream.with_columns(**reader.computed) if reader.computed else relation.stream
    columns = dict(given)
    for number, (order, mine) in enumerate(orders.items(), 1):
        with text.at(mine[0]):
            stream, found = reader.run(stream, order, mine, ids.of("over" if number == 1 else f"over{number}"))
        columns |= found
    return replace(relation, stream=stream), columns


def _read(relation: Relation, ordered: set[str], uses: Uses) -> Relation:
    """The columns that the query reads: the others would be kept too."""
    if relation.grouped:
        return relation
    stream = relation.stream
    read = {name for column, name in relation.columns.items() if column in uses}
    read |= {*ordered, *(stream._op.unique or ())}
    kept = [c for c in stream.schema if c in read] or stream.schema.names()[:1]
    if kept == stream.schema.names():
        return relation
    return replace(
        relation, stream=stream.select(*kept), columns={c: n for c, n in relation.columns.items() if n in kept}
    )


class _Reader:
    """Reads the windows of one select."""

    def __init__(
        self, relation: Relation, given: dict[exp.Expr, str], names: Mapping[exp.Expr, str], text: Text
    ) -> None:
        self.relation, self.given, self.names, self.text = relation, given, names, text
        self.build = relation.expressions(text, given)
        self.taken = {*relation.stream.schema, *names.values()}
        self.computed: dict[str, nw.Expr] = {}
        self.known: dict[exp.Expr, str] = {}
        """The columns of keys and orders that are expressions."""

    def order(self, window: exp.Window) -> Order:
        """The rows of a window function, and their order."""
        self.text.only(window, "partition_by", "order", "over", "spec")
        groups = tuple(dict.fromkeys(self._column(e) for e in window.args.get("partition_by") or [exp.true()]))
        ordered, frame = window.args.get("order"), self._frame(window)
        if ordered is None and self._of_places(window.this):
            raise self.text.error(window, "the window has no order", HOW)
        if (ordered is None and window.args.get("spec") is None) or frame[0] == "all":
            return Order(groups, (), ("all", None))
        if ordered is None:
            raise self.text.error(window, "the window has no order, and so a row has no neighbours", HOW)
        orders: dict[str, bool] = {}
        for term, descending in self.text.terms(ordered):
            if (name := self._column(term)) not in groups:
                orders.setdefault(name, descending)
        if not orders:
            raise self.text.error(ordered, "all rows of a partition are equal in this order", "order by another column")
        return Order(groups, tuple(orders.items()), frame)

    def run(
        self, stream: Stream[Any], order: Order, windows: Sequence[exp.Window], name: str
    ) -> tuple[Stream[Any], dict[exp.Expr, str]]:
        """The rows with the functions of windows in one order."""
        aggregates = Aggregates(self.build, self.taken)
        asked: dict[str, AggregateLike] = {}
        columns: dict[exp.Expr, str] = {}
        for window in windows:
            function, wanted = window.this, self.names.get(window, "")
            if wanted not in stream.schema:
                self.taken.discard(wanted)
            if (position := self._position(function)) is not None:
                columns[window] = free(wanted or function.sql_name().lower(), self.taken)
                asked[columns[window]] = position
            else:
                aggregates.add(function, wanted)
                columns[window] = aggregates.given[function]
        schema, line = stream.schema, self.text.line
        where = f"over {name!r} ({line})"
        for column in order.groups:
            check_key_type(schema[column], where=where)
        check_kept(schema, order.groups, where)
        kind, size = order.frame
        if kind == "all":
            ordering = Ordering((), (), tuple(c for c in schema if c not in order.groups))
        else:
            ordering = ordering_of(
                schema, order.groups, [c for c, _ in order.orders], [d for _, d in order.orders], where,
                option="order by", other="desc", descending=True,
            )  # fmt: skip
        rows, range_ = (None, size) if kind == "range" else (size, None)
        frame = (
            Frame("range", None) if order.frame == ("range", None) else framed(rows, range_, ordering, schema, where)
        )
        spec = Spec(stream._op, order.groups, ordering, frame, name, 1, line)
        over = made(stream._graph, spec, {**aggregates.asked, **asked})
        return aggregates.with_nulls(Stream(stream._graph, over)), columns

    def _position(self, function: exp.Expr) -> AggregateLike | None:
        """A function of places; None: it is an aggregate."""
        if (made_rank := _RANKS.get(type(function))) is not None:
            return made_rank()
        if isinstance(function, exp.Lag | exp.Lead):
            self.text.only(function, "offset")
            offset = function.args.get("offset")
            if offset is not None and not (isinstance(offset, exp.Literal) and offset.is_int and int(offset.name) > 0):
                raise self.text.error(
                    offset, "the offset is not a number of rows", f"{function.sql_name().lower()}(x, 1)"
                )
            shift = lag if isinstance(function, exp.Lag) else lead
            value = self.build(function.this).settled()
            if not columns_read([value], self.relation.stream.schema):
                word = function.sql_name().lower()
                what = f"{word} of a constant is the same in all rows"
                raise self.text.error(
                    function.this, what, f"give a column first, then the number of rows: {word}(x, 1)"
                )
            return shift(value, int(offset.name) if offset is not None else 1)
        return None

    def _column(self, of: exp.Expr) -> str:
        expr = self.build(of).settled()
        if (name := bare_column(expr)) is not None:
            return name
        if of not in self.known:
            self.known[of] = free("by", self.taken)
            self.computed[self.known[of]] = expr
        return self.known[of]

    @staticmethod
    def _of_places(function: exp.Expr) -> bool:
        return type(function) in _RANKS or isinstance(function, exp.Lag | exp.Lead)

    def _frame(self, window: exp.Window) -> tuple[str, Any]:
        if self._of_places(window.this):
            return "rows", None
        spec = window.args.get("spec")
        if spec is None:
            return "range", None
        self.text.only(spec, "kind", "start", "start_side", "end", "end_side")
        kind = spec.args["kind"].lower()
        start, end = (self._bound(window, spec, side) for side in ("start", "end"))
        if kind in ("rows", "range") and start is end is None:
            return "all", None
        if kind not in ("rows", "range") or end is None or (start is None and end != 0):
            raise self.text.error(
                window, "the frame has all rows after a row, or rows after it and all before it", UNBOUNDED
            )
        if start is None:
            return kind, None
        return kind, (start, end)

    def _bound(self, window: exp.Window, spec: exp.Expr, side: str) -> Any:
        """How far a frame goes: before the row with a minus; None: all rows."""
        bound, way = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").lower()
        if bound in (None, "CURRENT ROW"):
            return 0
        if way != ("preceding" if side == "start" else "following"):
            raise self.text.error(window, "the frame does not have the row itself", HOW)
        if bound == "UNBOUNDED":
            return None
        sign = -1 if side == "start" else 1
        if isinstance(bound, exp.Interval):
            return sign * duration_of(bound, self.text, "the frame")
        if isinstance(bound, exp.Literal) and bound.is_int:
            return sign * int(bound.name)
        raise self.text.error(bound, "the frame is not of a number of rows, nor of a range", HOW)
