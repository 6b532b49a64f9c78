"""The operators of a stream that look at one row at a time, and `.errors`.

f(a ++ b) = f(a) ++ f(b) for each of them: the result does not depend on how the rows are divided into steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.aggregates.windowed import OverColumn
from falkirk.stream.dataflow.handling import ERRORS
from falkirk.stream.definition.expressions import (
    IntoExpr,
    columns_read,
    computed_columns,
    evaluate,
    expressions,
    passed_through,
    renamed,
    text,
)
from falkirk.stream.definition.functions import checked_function
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import described, schema_of

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


class RowWise(Generic[RowT_co]):
    """The methods of `Stream` for these operators."""

    def __init__(self, graph: op.Graph, operator: op.Operator) -> None:
        self._graph, self._op = graph, operator

    @property
    def schema(self) -> pl.Schema:
        """The Polars type of each column by name."""
        return self._op.schema

    def __repr__(self) -> str:
        return f"<Stream of {self._op.kind} {self._op.id!r}: {described(self.schema)}>"

    def filter(self, *predicates: IntoExpr) -> Stream[RowT_co]:
        """Keep the rows for which all predicates are true; null is not true.

        A predicate is a row-wise Boolean expression, or the name of a Boolean column. Raises DefinitionError for
        anything else.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"price": int}))
        >>> bids.filter(fk.col("price") > 100).sink("high", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"price": 120}, {"price": 90}]}).sinks["high"].rows
        [{'price': 120}]
        """
        line = user_line()
        where = f"filter ({line})"
        exprs = expressions(predicates, {}, where)
        for expr in exprs:  # One at a time: two predicates on one column would give two columns with the same name.
            if not columns_read([expr], self.schema):
                raise DefinitionError(
                    f"the predicate {text(expr)} reads no column",
                    where=where,
                    hint='write one like fk.col("price") > 100',
                )
            for name, dtype in evaluate([expr], self.schema, "select", where).items():
                if dtype != pl.Boolean():
                    raise DefinitionError(
                        f"a predicate is {dtype} (column {name!r}), not Boolean",
                        where=where,
                        hint="compare it to something",
                    )
        return self._then(op.Filter, line, predicates=exprs)

    def branch(self, *predicates: IntoExpr) -> tuple[Stream[RowT_co], ...]:
        """Split the stream: one stream for each predicate. A row goes to the stream of the first predicate that is
        true. If no predicate is true, the row is dropped.

        Predicates are as for `filter`. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"price": int}))
        >>> high, low = bids.branch(fk.col("price") > 100, fk.col("price") > 10)
        >>> low.sink("low", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"price": 120}, {"price": 90}, {"price": 5}]}).sinks["low"].rows
        [{'price': 90}]
        """
        streams = []
        before: list[Any] = []
        for expr in expressions(predicates, {}, f"branch ({user_line()})"):
            streams.append(self.filter(expr, *[~p.fill_null(False) for p in before]))
            before.append(expr)
        return tuple(streams)

    def select(self, *exprs: IntoExpr, **named: Any) -> Stream[Row]:
        """Only these columns, in this order, as in Polars. A string is a column's name; a keyword gives the name of an
        expression.

        Expressions must be row-wise. Raises DefinitionError for others, and for columns that do not exist.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int}))
        >>> bids.select("auction", cents=fk.col("price") * 100).sink("cents", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7, "price": 3}]}).sinks["cents"].rows
        [{'auction': 7, 'cents': 300}]
        """
        line = user_line()
        given = expressions(exprs, named, f"select ({line})")
        schema = evaluate(given, self.schema, "select", f"select ({line})")
        kept, time = passed_through(given, self.schema), renamed(given, self._op.time)
        unique = [c if c in kept else renamed(given, c) for c in self._op.unique or ()]
        known = None if self._op.unique is None or None in unique else frozenset(filter(None, unique))
        return self._then(op.Select, line, schema, kept, time, unique=known, exprs=given)

    def with_columns(self, *exprs: IntoExpr, **named: Any) -> Stream[Row]:
        """Add columns, or replace columns with the same name, as in Polars. A named column can also be a function of the
        rows around each row, `fk.sum("price").over("auction")`: see docs/operators/over.md. Raises DefinitionError as
        `select` does.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"price": int}))
        >>> bids.with_columns(cents=fk.col("price") * 100).sink("cents", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"price": 3}]}).sinks["cents"].rows
        [{'price': 3, 'cents': 300}]
        """
        line = user_line()
        windows = {name: column for name, column in named.items() if isinstance(column, OverColumn)}
        if windows:
            from falkirk.stream.flow.overs import with_windows

            return with_windows(self, exprs, named, windows, line)  # type: ignore[arg-type]  # there is no other subclass
        given = expressions(exprs, named, f"with_columns ({line})")
        schema = evaluate(given, self.schema, "with_columns", f"with_columns ({line})")
        computed = computed_columns(given, self.schema)
        kept = (self.schema.keys() - computed) | passed_through(given, self.schema)
        return self._then(op.WithColumns, line, schema, frozenset(kept), renamed(given, self._op.time), exprs=given)

    @overload
    def map(
        self, function: Callable[[RowT_co], RowT_co | Row], *, returns: None = None, on_error: OnError | None = None
    ) -> Stream[RowT_co]: ...
    @overload
    def map(
        self, function: Callable[[RowT_co], TypedRow | Row], *, returns: type[TypedRow], on_error: OnError | None = None
    ) -> Stream[TypedRow]: ...
    @overload
    def map(
        self, function: Callable[[RowT_co], Mapping[str, Any]], *, returns: Untyped, on_error: OnError | None = None
    ) -> Stream[Row]: ...
    def map(
        self, function: Callable[..., Any], *, returns: SchemaLike | None = None, on_error: OnError | None = None
    ) -> Stream[Any]:
        """Call a Python function for each row: it gets a dict and returns a dict.

        `returns` is the schema of the returned rows, if it differs from the stream's schema: a dict of types, a
        dataclass or a TypedDict.
        `on_error` applies to rows for which the function fails: `fk.Stop()`, `fk.Skip()` or `fk.DeadLetter()`. Raises
        DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> lines = flow.source("lines", value=fk.Text("line"))
        >>> lengths = lines.map(lambda row: {"length": len(row["line"])}, returns={"length": int})
        >>> lengths.sink("lengths", value=fk.Json())
        >>> fk.testing.run(flow, {"lines": [{"line": "to be"}]}).sinks["lengths"].rows
        [{'length': 5}]
        """
        return self._function(op.Map, function, returns, on_error)

    @overload
    def flat_map(
        self,
        function: Callable[[RowT_co], Iterable[RowT_co | Row]],
        *,
        returns: None = None,
        on_error: OnError | None = None,
    ) -> Stream[RowT_co]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[RowT_co], Iterable[TypedRow | Row]],
        *,
        returns: type[TypedRow],
        on_error: OnError | None = None,
    ) -> Stream[TypedRow]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[RowT_co], Iterable[Mapping[str, Any]]],
        *,
        returns: Untyped,
        on_error: OnError | None = None,
    ) -> Stream[Row]: ...
    def flat_map(
        self, function: Callable[..., Any], *, returns: SchemaLike | None = None, on_error: OnError | None = None
    ) -> Stream[Any]:
        """Call a Python function for each row: it gets a dict and returns any number of dicts, in a list or as a
        generator.

        `returns` and `on_error` are as for `map`. If the function fails midway through a row, it gives no rows for
        that row. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> lines = flow.source("lines", value=fk.Text("line"))
        >>> words = lines.flat_map(lambda row: [{"word": word} for word in row["line"].split()], returns={"word": str})
        >>> words.sink("words", value=fk.Text("word"))
        >>> fk.testing.run(flow, {"lines": [{"line": "to be"}]}).sinks["words"].rows
        [{'word': 'to'}, {'word': 'be'}]
        """
        return self._function(op.FlatMap, function, returns, on_error)

    @overload
    def map_batches(
        self, function: Callable[[pl.DataFrame], pl.DataFrame], *, returns: None = None, on_error: OnError | None = None
    ) -> Stream[RowT_co]: ...
    @overload
    def map_batches(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        returns: type[TypedRow],
        on_error: OnError | None = None,
    ) -> Stream[TypedRow]: ...
    @overload
    def map_batches(
        self, function: Callable[[pl.DataFrame], pl.DataFrame], *, returns: Untyped, on_error: OnError | None = None
    ) -> Stream[Row]: ...
    def map_batches(
        self, function: Callable[..., Any], *, returns: SchemaLike | None = None, on_error: OnError | None = None
    ) -> Stream[Any]:
        """Call a Python function for each step: it gets the step's rows as a Polars frame and returns a frame.

        The result must not depend on how rows are divided into frames: f(a ++ b) = f(a) ++ f(b). `returns` and
        `on_error` are as for `map`. If the function returns as many rows as it got, each row keeps its timestamp.
        Otherwise every row gets the greatest timestamp. If a frame fails and `on_error` lets the flow continue, Falkirk
        tries each half of the frame, then the halves of a failed half, until it finds the rows that fail. Raises
        DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"price": int}))
        >>> bids.map_batches(lambda frame: frame.with_columns(pl.col("price") // 100 * 100)).sink("rounded", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"price": 123}]}).sinks["rounded"].rows
        [{'price': 100}]
        """
        return self._function(op.MapBatches, function, returns, on_error)

    @property
    def errors(self) -> Stream[Row]:
        """The failures of this operator, as a stream in the same steps. If you use it, it replaces the dead letters,
        unless `on_error=fk.DeadLetter()` asks for both. Raises DefinitionError if nothing can fail in this operator.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> flow.source("bids", value=fk.Json({"price": fk.Int64})).errors.schema.names()
        ['operator', 'reason', 'topic', 'partition', 'offset', 'timestamp', 'key', 'payload', 'row']
        """
        return errors_of(self._graph, self._source, user_line())

    @property
    def late(self) -> Stream[RowT_co]:
        """The rows of this source that came too late (see its `late=`), as a stream in the same steps. If you do not use it,
        late rows are dropped. Raises DefinitionError for a stream that is not a source with `late=`.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> orders = flow.source("orders", value=fk.Json({"id": int, "at": int}), time="at", late="1s")
        >>> orders.sink("in-time", value=fk.Json())
        >>> orders.late.sink("late-orders", value=fk.Json())
        >>> rows = [{"id": 1, "at": 5_000}, {"id": 2, "at": 4_000}, {"id": 3, "at": 3_999}]
        >>> fk.testing.run(flow, {"orders": rows}).sinks["late-orders"].rows
        [{'id': 3, 'at': 3999}]
        """
        from falkirk.stream.flow.streams import Stream

        source, line = self._source, user_line()
        if not isinstance(source, op.Source) or not source.watermarked:
            raise DefinitionError(
                "only a source with late= has late rows",
                where=f"late of {source.kind} {source.id!r} ({line})",
                hint='flow.source(…, time="at", late="30s")',
            )
        late = op.Late(
            id=f"{source.id}.late", line=line, inputs=(source,), schema=source.schema, root=source.root,
            partitioned=source.partitioned, regime=source.regime,
        )  # fmt: skip
        return Stream(self._graph, self._graph.add(late))

    @property
    def _source(self) -> op.Operator:
        """The stream's operator; the source, if it is the exchange that repartition=True adds after it."""
        return (self._op.added_for or self._op) if isinstance(self._op, op.Repartition) else self._op

    def _function(
        self, kind: type[Any], function: Callable[..., Any], returns: SchemaLike | None, on_error: OnError | None
    ) -> Stream[Any]:
        line = user_line()
        checked_function(function, f"{kind.kind} ({line})")
        schema = self.schema if returns is None else schema_of(returns)
        name = getattr(function, "__name__", type(function).__name__)
        chosen = checked_on_error(on_error, f"{kind.kind} ({line})")
        return self._then(kind, line, schema, frozenset(), id=name, function=function, on_error=chosen)

    def _then(
        self,
        kind: type[Any],
        line: str,
        schema: pl.Schema | None = None,
        kept: frozenset[str] | None = None,
        dated: str | None = None,
        **more: Any,
    ) -> Stream[Any]:
        """The next operator in the same task. `kept` are the columns that it does not change; None: all. `dated` is another
        name of the event time, for if its column is not kept."""
        partitioned, unique, time = self._op.partitioned, self._op.unique, self._op.time
        if kept is not None:
            partitioned = partitioned if partitioned is not None and set(partitioned.columns) <= kept else None
            unique = unique if unique is not None and unique <= kept else None
            time = time if time in kept else dated
        known = {"partitioned": partitioned, "unique": unique, "time": time, **more}
        made = self._made(kind, line, schema=schema or self.schema, **known)
        from falkirk.stream.flow.streams import Stream

        return Stream(self._graph, self._graph.add(made))

    def _made(self, kind: type[Any], line: str, **more: Any) -> Any:
        before = self._op
        given = {
            "id": kind.kind, "schema": before.schema, "changes": before.changes, "unique": before.unique,
            "partitioned": before.partitioned, "root": before.root, "regime": before.regime, "time": before.time,
        }  # fmt: skip
        return kind(line=line, inputs=(before,), **{**given, **more})


def errors_of(graph: op.Graph, before: op.Operator, line: str) -> Stream[Row]:
    """The stream of an operator's failures. Raises DefinitionError if the app cannot continue after any failure of it."""
    where = f"errors of {before.kind} {before.id!r} ({line})"
    if not before.can_fail:
        raise DefinitionError(
            "no failure here lets the app continue",
            where=where,
            hint="use .errors of a source, a filter, a select, a map or a process",
        )
    if isinstance(before, op.TableSource) and before.broadcast:
        raise DefinitionError(
            "a broadcast table is read in no step, so what does not decode is logged, and nothing else", where=where
        )
    from falkirk.stream.flow.streams import Stream

    errors = op.Errors(
        id=f"{before.id}.errors", line=line, inputs=(before,), schema=ERRORS, root=before.root, regime=before.regime
    )
    return Stream(graph, graph.add(errors))
