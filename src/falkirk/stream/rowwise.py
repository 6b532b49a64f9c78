"""The operators of a stream that look at one row at a time, and `.errors`.

f(a ++ b) = f(a) ++ f(b) for each of them: how rows are cut into steps does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.blame import user_line
from falkirk.stream.expressions import IntoExpr, computed_columns, evaluate, expressions, passed_through, words
from falkirk.stream.failing import CAN_FAIL, ERRORS
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import schema_of
from falkirk.stream.functions import checked_function
from falkirk.stream.on_error import OnError, checked_on_error

if TYPE_CHECKING:
    from falkirk.stream.streams import Stream


class RowWise(Generic[RowT_co]):
    """What `Stream` has of these operators."""

    def __init__(self, graph: op.Graph, operator: op.Operator) -> None:
        self._graph, self._op = graph, operator

    @property
    def schema(self) -> pl.Schema:
        """The columns."""
        return self._op.schema

    def __repr__(self) -> str:
        return f"<Stream of {self._op.kind} {self._op.id!r}: {words(self.schema)}>"

    def filter(self, *predicates: IntoExpr) -> Stream[RowT_co]:
        """Keep the rows for which all predicates are true."""
        line = user_line()
        where = f"filter ({line})"
        exprs = expressions(predicates, {}, where)
        for expr in exprs:  # one at a time: two predicates of one column give columns of one name
            for name, dtype in evaluate([expr], self.schema, "select", where).items():
                if dtype != pl.Boolean():
                    raise DefinitionError(
                        f"a predicate is {dtype} (column {name!r}), not Boolean",
                        where=where,
                        hint="compare it to something",
                    )
        return self._then(op.Filter, line, predicates=exprs)

    def branch(self, *predicates: IntoExpr) -> tuple[Stream[RowT_co], ...]:
        """One stream a predicate: each row goes to the first whose predicate is true, and nowhere if none is."""
        streams = []
        before: list[Any] = []
        for expr in expressions(predicates, {}, f"branch ({user_line()})"):
            streams.append(self.filter(expr, *[~p.fill_null(False) for p in before]))
            before.append(expr)
        return tuple(streams)

    def select(self, *exprs: IntoExpr, **named: Any) -> Stream[Row]:
        """Only these columns, as Narwhals' select."""
        line = user_line()
        given = expressions(exprs, named, f"select ({line})")
        schema = evaluate(given, self.schema, "select", f"select ({line})")
        return self._then(op.Select, line, schema, passed_through(given, self.schema), exprs=given)

    def with_columns(self, *exprs: IntoExpr, **named: Any) -> Stream[Row]:
        """These columns beside the others, as Narwhals' with_columns."""
        line = user_line()
        given = expressions(exprs, named, f"with_columns ({line})")
        schema = evaluate(given, self.schema, "with_columns", f"with_columns ({line})")
        computed = computed_columns(given, self.schema)
        kept = (self.schema.keys() - computed) | passed_through(given, self.schema)
        return self._then(op.WithColumns, line, schema, frozenset(kept), exprs=given)

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
        """A row for each row: a Python function from dict to dict. `returns` is the schema, if it is another; `on_error`
        says what becomes of rows for which the function fails."""
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
        """Any number of rows for each row: a Python function from dict to an iterable of dicts. A row for which it fails
        midway gives none."""
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
        """A Polars frame for the frame of a step's rows. How rows are cut into frames is not for the function to
        depend on: f(a ++ b) = f(a) ++ f(b). Rows keep their timestamps if there are as many as before; else each gets
        the greatest. With an `on_error` that goes on, the halves of a frame that fails are tried, and theirs, down to the
        rows that fail."""
        return self._function(op.MapBatches, function, returns, on_error)

    @property
    def errors(self) -> Stream[Row]:
        """What failed here: a stream beside this one, of the same steps. Where it is used, it takes the place of dead
        letters, unless `on_error=fk.DeadLetter()` asks for them too.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> flow.source("bids", value=fk.Json({"price": fk.Int64})).errors.schema.names()
        ['operator', 'reason', 'topic', 'partition', 'offset', 'timestamp', 'key', 'payload', 'row']
        """
        before, line = self._op, user_line()
        if (
            isinstance(before, op.Repartition)
            and isinstance(source := before.inputs[0], op.Source)
            and not source.checked
        ):
            before = source  # the exchange that repartition=True puts behind it
        return errors_of(self._graph, before, line)

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
        **more: Any,
    ) -> Stream[Any]:
        """The next operator in the same task. `kept` are the columns that it hands on unchanged; None: all."""
        partitioned, unique = self._op.partitioned, self._op.unique
        if kept is not None:
            partitioned = partitioned if partitioned is not None and set(partitioned.columns) <= kept else None
            unique = unique if unique is not None and unique <= kept else None
        made = self._made(kind, line, schema=schema or self.schema, partitioned=partitioned, unique=unique, **more)
        from falkirk.stream.streams import Stream

        return Stream(self._graph, self._graph.add(made))

    def _made(self, kind: type[Any], line: str, **more: Any) -> Any:
        before = self._op
        given = {
            "id": kind.kind, "schema": before.schema, "changes": before.changes, "unique": before.unique,
            "partitioned": before.partitioned, "root": before.root, "regime": before.regime,
        }  # fmt: skip
        return kind(line=line, inputs=(before,), **{**given, **more})


def errors_of(graph: op.Graph, before: op.Operator, line: str) -> Stream[Row]:
    """The stream of what fails in an operator. Raises DefinitionError where nothing can that the app goes on after."""
    where = f"errors of {before.kind} {before.id!r} ({line})"
    if not isinstance(before, CAN_FAIL):
        raise DefinitionError(
            "nothing fails here that the app goes on after",
            where=where,
            hint=f"take .errors of a {', '.join(kind.kind for kind in CAN_FAIL[:-1])} or {CAN_FAIL[-1].kind}",
        )
    if isinstance(before, op.TableSource) and before.broadcast:
        raise DefinitionError(
            "a broadcast table is read in no step, so what does not decode is logged, and nothing else", where=where
        )
    from falkirk.stream.streams import Stream

    errors = op.Errors(
        id=f"{before.id}.errors", line=line, inputs=(before,), schema=ERRORS, root=before.root, regime=before.regime
    )
    return Stream(graph, graph.add(errors))
